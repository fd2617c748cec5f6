package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// moduleDirs returns the directory of each module that the sources need, and for std that of Go itself.
func moduleDirs(ctx context.Context, s source) (map[string]string, error) {
	goTool := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are written below
		c.Dir, c.Stderr, c.Env = s.root, os.Stderr, s.environ()
		out, err := c.Output()
		if err != nil {
			err = fmt.Errorf("go %s: %w", args[0], err)
		}
		return out, err
	}
	root, err := goTool("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	list, err := goTool("list", "-m", "-json=Path,Dir", "all")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{"std": strings.TrimSpace(string(root))}
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var m struct{ Path, Dir string }
		switch err := d.Decode(&m); {
		case errors.Is(err, io.EOF):
			return dirs, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		dirs[m.Path] = m.Dir
	}
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([._-].*)?$`)

// recognized is the part of a licence file, in percent, from which on it is the text of known licences. One file of a
// directory must be; others may be lists of copied code, which quote licences.
const recognized = 75

// licencesIn returns the licences whose texts are in the licence files of a directory, sorted. Several may mean a
// choice, or that each holds for some files: the files say which.
func licencesIn(dir string) (ids []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	most := 0.0
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		found := licensecheck.Scan(text)
		most = max(most, found.Percent)
		for _, m := range found.Match {
			ids = append(ids, m.ID)
		}
	}
	if most < recognized {
		return nil, fmt.Errorf("no licence file in %q is the text of licences that are known: read them", dir)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
