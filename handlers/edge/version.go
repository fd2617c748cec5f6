package edge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"

	"integrityledger/handlers/wire"
	"integrityledger/schemas"
)

// commit is set by the linker (-X integrityledger/handlers/edge.commit=…) where a build cannot see the repository.
var commit = "unknown"

// Build is what is known of the program that runs.
type Build struct {
	Module   string `json:"module"`
	Version  string `json:"version"` // of the module; (devel) where the build does not know it
	Commit   string `json:"commit"`  // unknown where the build does not know it
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

// ReadBuild reads it from the program itself. It answers something, however the program was built.
func ReadBuild() Build {
	b := Build{Module: "integrityledger", Version: "(devel)", Commit: commit}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go, b.Module, b.Version = info.GoVersion, cmp.Or(info.Main.Path, b.Module), cmp.Or(info.Main.Version, b.Version)
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

// versionHeader says who speaks, as one product of RFC 9110: the client in a request, the service in every answer of
// the API. It decides nothing: a missing, unknown or malformed one changes no answer.
const versionHeader = "Integrity-Version"

// product bounds what of a caller's text reaches the log and an answer.
var product = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}/[A-Za-z0-9.+_-]{1,64}$`)

// clientVersion is the client that a request names; empty where it names none, more than one, or something else.
func clientVersion(r *http.Request) string {
	values := r.Header[versionHeader]
	if len(values) != 1 || !product.MatchString(values[0]) {
		return ""
	}
	return values[0]
}

// serviceVersion is the version of the contract, and the commit of the build if it is known.
func serviceVersion() (string, error) {
	text, err := schemas.File(schemas.OpenAPIFile)
	if err != nil {
		return "", err
	}
	var document struct{ Info struct{ Version string } }
	if err := json.Unmarshal(text, &document); err != nil {
		return "", err
	}
	version := "integrity-ledger/" + document.Info.Version
	if b := ReadBuild(); len(b.Commit) >= 12 {
		version += "+" + b.Commit[:12]
	}
	return version, nil
}

// Versions are those of a request's two ends.
func (s *Edge) Versions(c *Call) wire.Versions {
	return wire.Versions{Service: s.version[0], Client: wire.OrNull(c.client)}
}
