package bundle

import (
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
)

// TestLineWithMore: of a line that holds anything else nothing is taken, so that the history's digest differs too.
func TestLineWithMore(t *testing.T) {
	e := audit.Event{Event: domain.Event{Sequence: 1, V: 1, OccurredAt: time.Unix(0, 0), Data: []byte("{}"), Hash: [32]byte{1}}}
	e.ID[15] = 1
	text, err := line(&e, true)
	if err != nil {
		t.Fatal(err)
	}
	if read := readLine(text, e.Organization, 1); read.Fault != "" || read.Hash != e.Hash {
		t.Fatalf("%s: %+v", text, read)
	}
	good := string(text)
	for more, fault := range map[string]string{
		strings.Replace(good, "{", `{"more":1,`, 1):         `unknown field "more"`,
		strings.TrimSuffix(good, "\n") + "{}\n":             "more than one value",
		strings.TrimSuffix(good, "\n") + " \x00\n":          "more than one value",
		strings.Replace(good, `"texts":[]`, `"texts":1`, 1): "cannot unmarshal",
	} {
		if read := readLine([]byte(more), e.Organization, 7); !strings.Contains(read.Fault, fault) || read.Hash != [32]byte{} || read.Sequence != 7 {
			t.Errorf("%s: %+v", more, read)
		}
	}
}
