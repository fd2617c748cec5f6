package evidence

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// LogName returns the origin of a ledger's checkpoints: its issuer without the scheme, followed by /log. An issuer that
// is not a URL is used unchanged. Characters that a note does not allow in a name are percent-encoded.
func LogName(issuer string) string {
	name := strings.TrimRight(issuer, "/")
	if u, err := url.Parse(issuer); err == nil && u.Host != "" {
		name = strings.ToLower(u.Host) + strings.TrimRight(u.EscapedPath(), "/")
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c <= ' ' || c == '+' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + "/log"
}

var (
	hostPattern     = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*:)?//`)
	plainURLPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._~-]*)*$`)
)

// isNamedAfter reports whether a log is named after an issuer. It is false for URLs with more than a host name, a port
// and a plain path: libraries of other languages read such URLs differently, and all verifiers must agree.
func isNamedAfter(log, issuer string) bool {
	return log == LogName(issuer) && (plainURLPattern.MatchString(issuer) || !hostPattern.MatchString(issuer))
}
