package handlers

import (
	"encoding/json"
	"net/http"
	"regexp"

	"integrityledger/handlers/wire"
	"integrityledger/schemas"
)

// versionHeader says who speaks, as one product of RFC 9110: the client in a request, the service in every answer of the
// API. It decides nothing: a missing, unknown or malformed one changes no answer.
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

// serviceVersion is the version of the contract, and the commit of the build where that is known.
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

// versions are those of a request's two ends.
func (s *server) versions(r *http.Request) wire.Versions {
	v := wire.Versions{Service: s.version[0]}
	if client := clientVersion(r); client != "" {
		v.Client = &client
	}
	return v
}
