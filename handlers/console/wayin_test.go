package console

import (
	"errors"
	"testing"
	"time"
)

// While one request asks whether there are passkeys, others do not wait. A failure is cached, and an answer from before
// a passkey was added is not.
func TestPasskeysMade(t *testing.T) {
	var made passkeysMade
	now, broken, asked := time.Now(), errors.New("the ledger does not answer"), 0
	known, err := made.ask(now, func() (bool, error) {
		if _, err := made.ask(now, func() (bool, error) { t.Error("two ask at once"); return false, nil }); err == nil {
			t.Error("a request has an answer while another asks")
		}
		asked++
		return false, broken
	})
	if known || !errors.Is(err, broken) {
		t.Errorf("%t, %v", known, err)
	}
	none := func() (bool, error) { asked++; return false, nil }
	if _, err := made.ask(now.Add(noPasskeysFor-1), none); !errors.Is(err, broken) || asked != 1 {
		t.Errorf("a failure is not cached: %v, asked %d times", err, asked)
	}
	if _, err := made.ask(now.Add(noPasskeysFor), func() (bool, error) { made.forget(); return none() }); err != nil {
		t.Error(err)
	}
	if known, err := made.ask(now.Add(noPasskeysFor), func() (bool, error) { return true, nil }); !known || err != nil {
		t.Errorf("an answer from before a passkey was added: %t, %v", known, err)
	}
	if known, err := made.ask(now.Add(noPasskeysFor+passkeysFor-1), none); !known || err != nil {
		t.Errorf("%t, %v", known, err)
	}
}
