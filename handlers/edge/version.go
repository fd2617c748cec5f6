package edge

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// commit is set by the linker (-X integrityledger/handlers/edge.commit=…) for a build that cannot see the repository.
var commit = "unknown"

// Build describes the running program.
type Build struct {
	Module   string `json:"module"`
	Version  string `json:"version"` // domain.ThisRelease
	Commit   string `json:"commit"`  // unknown if the build does not know it
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

// ReadBuild reads the description from the program itself. It returns one however the program was built.
func ReadBuild() Build {
	b := Build{Module: "integrityledger", Version: domain.ThisRelease.String(), Commit: commit}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go, b.Module = info.GoVersion, cmp.Or(info.Main.Path, b.Module)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b Build) String() string {
	modified := ""
	if b.Modified {
		modified = " and changes"
	}
	return fmt.Sprintf("%s (commit %s%s)", b.Version, b.Commit, modified)
}

// Semantic returns the version as semver.org writes it, with the commit as build metadata if it is known: 1.0.0+2f0c….
func (b Build) Semantic() string {
	if len(b.Commit) < 12 {
		return b.Version
	}
	return b.Version + "+" + b.Commit[:12]
}

// versionHeader names the sender as one product of RFC 9110: the client in a request, the service in every answer of
// the API. It is informational: a missing, unknown or malformed value changes no answer.
const versionHeader = "Integrity-Version"

// product bounds the caller's text that reaches the log and an answer.
var product = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}/[A-Za-z0-9.+_-]{1,64}$`)

// clientVersion returns the client that a request names. It is empty unless the request names exactly one in the right
// form.
func clientVersion(r *http.Request) string {
	values := r.Header[versionHeader]
	if len(values) != 1 || !product.MatchString(values[0]) {
		return ""
	}
	return values[0]
}

// Versions returns the versions of the client and the service.
func (s *Edge) Versions(c *Call) wire.Versions {
	return wire.Versions{Service: s.version[0], Client: wire.OrNull(c.client)}
}
