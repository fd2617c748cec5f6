package transparency

import (
	"net/url"
	"regexp"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

// comment matches comment lines. They are removed first, because commas in them do not separate entries.
var comment = regexp.MustCompile(`(?m)^[\t ]*#.*$`)

// readPeers reads servers, one per line or separated by commas: a word, a space, an address. Lines that begin with #
// are comments. The names that add returns must be unique.
func readPeers(text, expects string, add func(word, address string) (name string, err error)) error {
	names := map[string]bool{}
	for line := range strings.FieldsFuncSeq(comment.ReplaceAllString(text, ""), func(c rune) bool {
		return c == ',' || c == '\n'
	}) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return say.Errorf("each line must be %s, a space, and an address", expects)
		}
		name, err := add(fields[0], fields[1])
		if err != nil {
			return err
		}
		if names[name] {
			return say.Errorf("%s is named twice", name)
		}
		names[name] = true
	}
	return nil
}

// checkPeer checks the address of a server that the log sends requests to: https, or http to this machine.
func checkPeer(name, address string) error {
	if err := CheckAddress(address); err != nil {
		return say.Errorf("%s: %w", name, err)
	}
	return nil
}

// CheckAddress checks the address of a witness or a timestamp authority: https, or http to this machine.
func CheckAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" ||
		u.Scheme != "https" && (u.Scheme != "http" || !domain.IsLoopbackHost(u.Hostname())) {
		return say.Errorf("the address must be https without user and query, or http on this machine")
	}
	return nil
}

// newPeerClient returns a client that uses no proxy. most is the largest answer in bytes. A context may end an exchange
// earlier.
func newPeerClient(most int64) *outbound.Client {
	return outbound.New(outbound.Config{Timeout: 10 * time.Second, Connect: 5 * time.Second, Answer: most})
}
