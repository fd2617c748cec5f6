package monitor_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/monitor"
	"integrityledger/handlers/client/monitor/monitortest"
)

const name = "ledger.example/log"

// watched is a log behind a server, with its monitor.
type watched struct {
	*monitortest.Log
	monitor.Monitor
	t      *testing.T
	paused int // how often the monitor has waited
}

func watch(t *testing.T, size int) *watched {
	t.Helper()
	w := &watched{Log: monitortest.New(name, 1), t: t}
	w.Grow(size)
	server := httptest.NewServer(w.Log)
	t.Cleanup(server.Close)
	service, err := client.New(client.Config{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	w.Monitor = monitor.Monitor{Client: service, Trusted: w.Pinned(), Now: time.Now,
		Wait: func(context.Context, time.Duration) error {
			w.paused++
			return nil
		}}
	return w
}

// kept is the log's present checkpoint as a client stores it.
func (w *watched) kept() monitor.Kept { return monitor.Kept{Name: "a file", Note: w.Checkpoint()} }

func (w *watched) check(kept ...monitor.Kept) (monitor.Seen, error) {
	return w.Check(context.Background(), kept)
}

// alarm requires an alarm of a kind.
func (w *watched) alarm(kind monitor.Kind, kept ...monitor.Kept) *monitor.AlarmError {
	w.t.Helper()
	seen, err := w.check(kept...)
	var alarm *monitor.AlarmError
	if !errors.As(err, &alarm) || alarm.Kind != kind || alarm.Seen == "" || seen.Note != "" {
		w.t.Fatalf("want %s: %+v, %v", kind, seen, err)
	}
	return alarm
}

func (w *watched) raises(kind monitor.Kind, kept ...monitor.Kept) {
	w.t.Helper()
	_ = w.alarm(kind, kept...)
}

func TestEveryGrowthContinues(t *testing.T) {
	w := watch(t, 0)
	var kept []monitor.Kept
	for _, size := range []int{0, 0, 1, 2, 3, 255, 256, 257, 511, 600, 65_535, 65_800} {
		w.Grow(size)
		seen, err := w.check(kept...)
		if err != nil || seen.Size != int64(size) || seen.Note != w.Checkpoint() {
			t.Fatalf("%d entries: %+v, %v", size, seen, err)
		}
		if _, err := w.check(); err != nil { // also for a monitor that starts only now
			t.Fatalf("%d entries, first: %v", size, err)
		}
		kept = append(kept, w.kept())
	}
	if w.paused > 0 {
		t.Error("it waited")
	}
}

// Any change of an entry that was seen is found, wherever it is.
func TestRewrittenHistory(t *testing.T) {
	for _, size := range []int{1, 2, 255, 256, 257, 600} {
		for _, at := range []int{0, size / 2, size - 1} {
			for _, grown := range []int{size, size + 1, 700} {
				w := watch(t, size)
				known := w.kept()
				w.Edit(func(entries []string) []string {
					entries[at] = "another"
					return entries
				})
				w.Grow(grown)
				alarm := w.alarm(monitor.Rewritten, known)
				if alarm.Known != known.Note || alarm.KnownFrom != "a file" || alarm.Seen != w.Checkpoint() {
					t.Errorf("%+v", alarm)
				}
				provesRewriting(t, w.Pinned(), alarm)
			}
		}
	}
}

// provesRewriting checks an alarm with only the alarm and the log's key.
func provesRewriting(t *testing.T, trusted *evidence.TrustedKeys, alarm *monitor.AlarmError) {
	t.Helper()
	known, err := evidence.OpenCheckpoint(alarm.Known, trusted)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := evidence.OpenCheckpoint(alarm.Seen, trusted)
	if err != nil {
		t.Fatal(err)
	}
	if seen.Size == known.Size {
		if seen.Root == known.Root || len(alarm.Proof) > 0 {
			t.Errorf("%+v", alarm)
		}
		return
	}
	root, err := tlog.ParseHash(alarm.RootAtKnownSize)
	if err != nil || root == known.Root {
		t.Errorf("%v: %+v", err, alarm)
	}
	var proof tlog.TreeProof
	for _, text := range alarm.Proof {
		hash, err := tlog.ParseHash(text)
		if err != nil {
			t.Fatal(err)
		}
		proof = append(proof, hash)
	}
	if err := tlog.CheckTree(proof, seen.Size, seen.Root, known.Size, root); err != nil {
		t.Errorf("the proof does not hold: %v", err)
	}
}

func TestEntriesSwappedOrRemoved(t *testing.T) {
	for name, change := range map[string]func([]string) []string{
		"swapped": func(e []string) []string { e[3], e[4] = e[4], e[3]; return e },
		"removed": func(e []string) []string { return append(slices.Delete(e, 7, 8), "one more", "and more") },
		"begun":   func(e []string) []string { return append([]string{"before"}, e...) },
	} {
		w := watch(t, 300)
		known := w.kept()
		w.Edit(change)
		if alarm := w.alarm(monitor.Rewritten, known); alarm.Detail == "" {
			t.Errorf("%s: %+v", name, alarm)
		}
	}
}

func TestRestoredToAnEarlierState(t *testing.T) {
	w := watch(t, 300)
	known := w.kept()
	w.Edit(func(e []string) []string { return e[:299] })
	alarm := w.alarm(monitor.Shrunk, known)
	if w.paused != 2 || !strings.Contains(alarm.Detail, "300 entries and now has 299") {
		t.Errorf("after %d pauses: %+v", w.paused, alarm)
	}
	w.Edit(func([]string) []string { return nil })
	w.raises(monitor.Shrunk, known)
	// The other history is found even after the log has grown beyond the kept checkpoint.
	w.Edit(func(e []string) []string { return append(e, strings.Split(strings.Repeat("other ", 400), " ")...) })
	w.raises(monitor.Rewritten, known)
}

// A cache may serve an older checkpoint for a moment.
func TestAStaleCheckpointIsAskedForAgain(t *testing.T) {
	w := watch(t, 299)
	stale := w.Checkpoint()
	w.Grow(300)
	known, asked := w.kept(), 0
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			_, _ = rw.Write([]byte(stale))
			return
		}
		w.Serve(rw, r)
	})
	if seen, err := w.check(known); err != nil || seen.Size != 300 || w.paused != 1 {
		t.Errorf("%+v, %v, %d pauses", seen, err, w.paused)
	}
}

// A check that exceeds the rate limit of its address waits as long as the answer says, and still finishes. A service
// that always asks to wait is an outage.
func TestTooManyRequests(t *testing.T) {
	w := watch(t, 300)
	known := w.kept()
	w.Grow(66_000)
	var waited []time.Duration
	left, wait, forgiving := 0, 7, true
	w.Wait = func(_ context.Context, d time.Duration) error {
		if waited = append(waited, d); forgiving {
			left = 1
		}
		return nil
	}
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		if left--; left >= 0 {
			w.Serve(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Retry-After", strconv.Itoa(wait))
		rw.WriteHeader(http.StatusTooManyRequests)
		_, _ = rw.Write([]byte(
			`{"data":null,"error":{"code":"RATE_LIMITED","retryable":true,"status":429,"title":"Too many requests","detail":"Wait."},"meta":{}}`,
		))
	})
	if seen, err := w.check(known); err != nil || seen.Size != 66_000 {
		t.Errorf("%+v, %v", seen, err)
	}
	if len(waited) < 4 || slices.ContainsFunc(waited, func(d time.Duration) bool { return d != 7*time.Second }) {
		t.Errorf("waited %v", waited)
	}
	forgiving = false
	for _, c := range []struct{ retryAfter, waits int }{{7, 1}, {60, 1}, {61, 0}, {86_400, 0}} {
		left, wait, waited = 1, c.retryAfter, nil // the checkpoint is answered
		var alarm *monitor.AlarmError
		if seen, err := w.check(known); client.RetryAfter(err) != time.Duration(wait)*time.Second ||
			errors.As(err, &alarm) || len(waited) != c.waits {
			t.Errorf("Retry-After %d: %+v, %v, waited %v", wait, seen, err, waited)
		}
	}
}

func TestCheckpointsOfOthers(t *testing.T) {
	w := watch(t, 300)
	known := w.kept()
	answer := func(note string) {
		w.Answer(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(note)) })
	}
	foreign := monitortest.New(name, 2)
	foreign.Grow(301)
	answer(foreign.Checkpoint())
	w.raises(monitor.UnknownKey, known)
	w.raises(monitor.UnknownKey)

	good := w.Checkpoint()
	answer(strings.Replace(good, "\n300\n", "\n301\n", 1))
	w.raises(monitor.BadSignature, known)
	answer(good + good[strings.Index(good, "\n\n")+2:])
	w.raises(monitor.BadSignature, known)

	other := monitortest.New("other.example/log", 3)
	other.Grow(301)
	both, err := evidence.NewTrustedKeys(nil, nil, []evidence.LogKey{w.Key(), other.Key()})
	if err != nil {
		t.Fatal(err)
	}
	w.Trusted = both
	w.Answer(other.Serve)
	w.raises(monitor.OtherLog, known)
}

// Every hash that was altered in transit is found, if the check uses it.
func TestAlteredTiles(t *testing.T) {
	w := watch(t, 300)
	known := w.kept()
	w.Grow(66_000)
	var asked []string
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.Serve(rw, r)
	})
	if _, err := w.check(known); err != nil {
		t.Fatal(err)
	}
	tiles := slices.DeleteFunc(asked, func(path string) bool { return strings.HasSuffix(path, "/checkpoint") })
	if len(tiles) < 4 || len(tiles) > 8 {
		t.Fatalf("it asked for %v", tiles)
	}
	for _, path := range tiles {
		for _, at := range []int{0, 31, -1} {
			w.Answer(func(rw http.ResponseWriter, r *http.Request) {
				tile, found := w.Tile(r)
				if r.URL.Path != path || !found {
					w.Serve(rw, r)
					return
				}
				tile = bytes.Clone(tile)
				tile[(at+len(tile))%len(tile)] ^= 1
				_, _ = rw.Write(tile)
			})
			w.raises(monitor.BadTiles, known)
		}
	}
	// The first check reads the tiles of the root.
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		if tile, found := w.Tile(r); found {
			_, _ = rw.Write(make([]byte, len(tile)))
			return
		}
		w.Serve(rw, r)
	})
	w.raises(monitor.BadTiles)
	w.Edit(func([]string) []string { return nil })
	w.Answer(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(w.Sign(name + "\n0\n" + tlog.Hash{}.String() + "\n")))
	})
	w.raises(monitor.BadTiles)
}

// A partial tile may be dropped once the full one exists.
func TestPartialTilesMayBeGone(t *testing.T) {
	w := watch(t, 100)
	known := w.kept()
	w.Grow(200)
	signed := w.Checkpoint() // the log grows while the tiles are read
	w.Grow(256)
	partial := 0
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/checkpoint"):
			_, _ = rw.Write([]byte(signed))
		case strings.Contains(r.URL.Path, ".p/"):
			partial++
			r.URL.Path = "/gone"
			w.Serve(rw, r)
		default:
			w.Serve(rw, r)
		}
	})
	if seen, err := w.check(known); err != nil || seen.Size != 200 || partial == 0 {
		t.Errorf("%+v, %v, %d", seen, err, partial)
	}
}

// A failure in transit is no alarm.
func TestOutagesSayNothingAboutTheLog(t *testing.T) {
	w := watch(t, 300)
	known := w.kept()
	w.Grow(400)
	endless := func(rw http.ResponseWriter, r *http.Request) {
		block := bytes.Repeat([]byte("a"), 1<<16)
		for r.Context().Err() == nil {
			if _, err := rw.Write(block); err != nil {
				return
			}
		}
	}
	checkpoint := w.Checkpoint()
	text := func(status int, body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(body))
		}
	}
	faults := map[string]http.HandlerFunc{
		"500": text(500, ""), "404": text(404, "<html>"), "429": text(429, ""), "503": text(503, "busy"),
		"nothing": text(200, ""), "a page": text(200, "<html>\n\n"),
		"a redirection": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "/elsewhere", http.StatusFound)
		},
		"a broken line": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"endless":       endless, "half": text(200, checkpoint[:50]),
		"CRLF":     text(200, strings.ReplaceAll(checkpoint, "\n", "\r\n")),
		"no UTF-8": text(200, "\xff"+checkpoint),
		"too long": text(200, checkpoint+strings.Repeat(checkpoint[strings.LastIndex(checkpoint, "—"):], 1000)),
	}
	for name, fault := range faults {
		for _, of := range []string{"/checkpoint", "/tile/"} {
			w.Answer(func(rw http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, of) {
					fault(rw, r)
					return
				}
				w.Serve(rw, r)
			})
			var alarm *monitor.AlarmError
			if seen, err := w.check(known); err == nil || errors.As(err, &alarm) {
				t.Errorf("%s at %s: %+v, %v", name, of, seen, err)
			}
		}
	}
	// Neither is a kept checkpoint that no pinned key signed.
	foreign := monitortest.New(name, 2)
	var alarm *monitor.AlarmError
	w.Answer(nil)
	if _, err := w.check(monitor.Kept{Name: "mine", Note: foreign.Checkpoint()}); err == nil || errors.As(err, &alarm) ||
		!strings.Contains(err.Error(), "mine") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.Check(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
