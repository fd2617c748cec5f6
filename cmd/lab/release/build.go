package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
)

// source is what a release is built from.
type source struct {
	root      string
	commit    string
	time      time.Time // of the commit; every time in the release's files
	version   domain.Release
	toolchain string // the Go that compiles it, which go fetches unless it is installed
}

var goLine = regexp.MustCompile(`(?m)^go (1\.\d+\.\d+)$`)

// readSource describes a checkout. It refuses one with changes, which no other machine could build again.
func readSource(ctx context.Context, root string) (s source, err error) {
	git := func(args ...string) string {
		if err != nil {
			return ""
		}
		var out []byte
		//nolint:gosec // the arguments are written below
		c := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
		c.Stderr = os.Stderr
		if out, err = c.Output(); err != nil {
			err = fmt.Errorf("git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out))
	}
	commit, seconds := git("rev-parse", "HEAD"), git("log", "-1", "--format=%ct")
	changes := git("status", "--porcelain")
	if err != nil {
		return s, err
	}
	if changes != "" {
		return s, fmt.Errorf("a release is built from a commit: commit or remove these changes first\n%s", changes)
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("time of the commit: %w", err)
	}
	return newSource(root, commit, time.Unix(unix, 0).UTC())
}

func newSource(root, commit string, at time.Time) (source, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return source{}, err
	}
	version := goLine.FindSubmatch(text)
	if version == nil {
		return source{}, errors.New("go.mod must name the version of Go with all three numbers")
	}
	return source{
		root: root, commit: commit, time: at, version: domain.ThisRelease, toolchain: "go" + string(version[1]),
	}, nil
}

// platform is what a program is built for.
type platform struct{ os, arch string }

// platforms are all for which there is a program. Only Linux has the service: packages and the image are for it.
func platforms() []platform {
	return []platform{
		{linux, "amd64"}, {linux, "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
		{"windows", "arm64"},
	}
}

const linux = "linux"

func (p platform) String() string { return p.os + "_" + p.arch }

// file is a file of a release.
type file struct {
	document  string // its reference in the ledger, the same in every release
	path      string
	mediaType string
}

const program = "application/octet-stream"

// build writes the files of a release into a directory of their own, which it empties first.
func build(ctx context.Context, s source, out string, targets []platform) ([]file, error) {
	if err := emptied(out); err != nil {
		return nil, err
	}
	var files []file
	add := func(document, name, mediaType string) string {
		files = append(files, file{document, filepath.Join(out, name), mediaType})
		return files[len(files)-1].path
	}
	programs := map[platform]string{}
	for _, p := range targets {
		fmt.Println("Compiling for", p)
		name := fmt.Sprintf("integrity_%s_%s", s.version, p)
		if p.os == "windows" {
			name += ".exe"
		}
		programs[p] = add("integrity_"+p.String(), name, program)
		if err := compile(ctx, s, p, programs[p]); err != nil {
			return nil, err
		}
	}
	services := slices.DeleteFunc(slices.Clone(targets), func(p platform) bool { return p.os != linux })
	for _, p := range services {
		to := add(
			"integrity-ledger_"+p.arch+".deb", fmt.Sprintf("%s_%s_%s.deb", packageName, s.version, p.arch),
			"application/vnd.debian.binary-package",
		)
		if err := writePackage(s, p, programs[p], to); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(to), err)
		}
	}
	image := add("image", fmt.Sprintf("%s_%s_oci.tar", packageName, s.version), "application/x-tar")
	if err := writeImage(s, services, programs, image); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(image), err)
	}
	components := add("components", fmt.Sprintf("integrity_%s.cdx.json", s.version), "application/vnd.cyclonedx+json")
	if err := writeComponents(ctx, s, programs, components); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(components), err)
	}
	var sums strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), filepath.Base(f.path))
	}
	//nolint:gosec // everybody may read a release
	return files, os.WriteFile(add("SHA256SUMS", "SHA256SUMS", "text/plain"), []byte(sums.String()), 0o644)
}

// emptied makes a directory that holds nothing. It removes only what looks like an earlier release.
func emptied(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o755) //nolint:gosec // everybody may read a release
	}
	if err != nil {
		return err
	}
	sums := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "SHA256SUMS" })
	if len(entries) > 0 && !sums {
		return fmt.Errorf("%s holds something other than a release: name an empty directory with -out", dir)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// environ has the settings of Go for a release. Only those that say where modules come from are the caller's.
func (s source) environ() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=",
		"GOFIPS140=off", "GODEBUG=", "GOTOOLCHAIN="+s.toolchain)
}

// compile builds the program.
func compile(ctx context.Context, s source, p platform, to string) error {
	//nolint:gosec // the arguments are written here
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags", "-s -w -buildid= -X integrityledger/handlers/edge.commit="+s.commit, "-o", to,
		"./cmd/integrity")
	c.Dir = s.root
	c.Env = append(s.environ(), "GOOS="+p.os, "GOARCH="+p.arch)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("compile for %s: %w", p, err)
	}
	return nil
}
