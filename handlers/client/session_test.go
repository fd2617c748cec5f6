package client

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"integrityledger/handlers/wire"
)

// A client always requests at least the state that it has seen, and the newest state if it has not written recently.
func TestSession(t *testing.T) {
	sequence, asked := 0, ""
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Integrity-Read-After")
		switch {
		case r.Method == http.MethodPost:
			w.Header().Set("Integrity-Sequence", fmt.Sprint(sequence))
			fmt.Fprintf(w, `{"data":{"publicId":%q},"meta":{}}`, publicID)
		case r.URL.Path == "/api/v1/integrity/changes":
			fmt.Fprintf(
				w, `{"data":{"events":[{"id":"evt_1","sequence":%d}],"nextCursor":1,"hasMore":false},"meta":{"epoch":1}}`,
				sequence,
			)
		default:
			fmt.Fprintf(w, `{"data":{"publicId":%q},"meta":{}}`, publicID)
		}
	})
	now := time.Now()
	c.session.now = func() time.Time { return now }
	ctx := context.Background()
	read := func(want string) {
		t.Helper()
		if _, err := c.Record(ctx, publicID); err != nil {
			t.Fatal(err)
		}
		if asked != want {
			t.Errorf("read after %q, want %q", asked, want)
		}
	}
	write := func(to int) {
		t.Helper()
		sequence = to
		if _, err := c.Register(ctx, wire.Declaration{}); err != nil {
			t.Fatal(err)
		}
		if asked != "" {
			t.Errorf("a write asked for %q", asked)
		}
	}
	feed := func(to int) {
		t.Helper()
		sequence = to
		if _, err := c.Changes(ctx, "c", 0, 0); err != nil {
			t.Fatal(err)
		}
		if asked != "" {
			t.Errorf("the feed was asked for after %q", asked)
		}
	}
	read("")
	feed(3)
	read("") // the feed may be far behind
	write(7)
	read("7")
	feed(9)
	read("9")
	write(8) // an answer that arrives out of order
	read("9")
	if _, err := c.Compare(ctx, publicID, ""); err == nil && asked != "" {
		t.Errorf("a public question was asked for after %q", asked)
	}
	now = now.Add(sessionLength)
	read("")
	write(12)
	read("12")
}
