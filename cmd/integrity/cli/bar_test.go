package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBar: a bar shows the share, counts, speed and remaining time, at most ten times a second, and leaves an empty
// line.
func TestBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		b := (&App{Errs: &screen}).NewBar("file", "MB", 1e6, 40e6)
		b.Add(1)
		b.Close()
		if screen.Len() != 0 {
			t.Errorf("what is no terminal shows %q", screen.String())
		}
		b.to = &screen
		time.Sleep(2 * time.Second)
		if n, err := b.Write(make([]byte, 10e6-1)); n != 10e6-1 || err != nil {
			t.Error(n, err)
		}
		b.Add(1) // too soon to show
		want := "\r\x1b[Kfile  25% |" + strings.Repeat("█", 7) + strings.Repeat(" ", 23) + "| 10/40 MB, 5 MB/s, 6s left"
		if screen.String() != want {
			t.Errorf("%q, want %q", screen.String(), want)
		}
		time.Sleep(time.Second)
		b.Set(50e6, 40e6)
		b.Close()
		if text := screen.String(); !strings.Contains(text, " 100% ") || !strings.Contains(text, " 0s left") ||
			!strings.HasSuffix(text, "\r\x1b[K") {
			t.Errorf("%q", text)
		}
		empty := (&App{Errs: &screen}).NewBar("events", "events", 1, 0)
		empty.to = &screen
		empty.Set(0, 0)
		if text := screen.String(); !strings.Contains(text, "events   0% ") || strings.Contains(text, "NaN events") {
			t.Errorf("%q", text)
		}
	})
}
