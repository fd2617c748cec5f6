package transparency

import (
	"iter"
	"net/url"
	"regexp"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

// comment matches comment lines. They are removed first, because commas in them do not separate entries.
var comment = regexp.MustCompile(`(?m)^[\t ]*#.*$`)

// Entries returns the entries of a list, one per line or separated by commas, without the space around them. Lines that
// begin with # are comments.
func Entries(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for entry := range strings.FieldsFuncSeq(comment.ReplaceAllString(text, ""), func(c rune) bool {
			return c == ',' || c == '\n'
		}) {
			if entry = strings.TrimSpace(entry); entry != "" && !yield(entry) {
				return
			}
		}
	}
}

// readPeers reads servers: each entry is a word, a space, an address. The names that add returns must be unique.
func readPeers(text, expects string, add func(word, address string) (name string, err error)) error {
	names := map[string]bool{}
	for entry := range Entries(text) {
		fields := strings.Fields(entry)
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

// checkPeer checks the name and the address of a server that the log sends requests to.
func checkPeer(name, address string) error {
	err := evidence.CheckListedName(name)
	if err == nil {
		err = CheckAddress(address)
	}
	if err != nil {
		return say.Errorf("%s: %w", name, err)
	}
	return nil
}

// visible matches what a list, a log line and a terminal show as it is. A comma would end the address in a list.
var visible = regexp.MustCompile(`^[!-+\--~]*$`)

// CheckAddress checks the address of a witness or a timestamp authority: https, or http to this machine.
func CheckAddress(address string) error {
	if !visible.MatchString(address) {
		return say.Errorf("the address must be visible ASCII characters without a comma")
	}
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
