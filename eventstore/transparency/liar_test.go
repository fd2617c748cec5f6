package transparency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/projections/ledgertest"
)

// TestLyingAuthority: one of two authorities lies. Whatever it does, nothing from it is stored, and the other's tokens
// are.
func TestLyingAuthority(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	good, liar, stranger := stamptest.New(t, "good"), stamptest.New(t, "liar"), stamptest.New(t, "liar")
	log := process(t, l, signer, stamping(t, good, liar))
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	t.Cleanup(elsewhere.Close)
	forged := func(change func(*timestamp.Timestamp)) func(http.ResponseWriter, *http.Request, []byte) {
		return func(w http.ResponseWriter, _ *http.Request, query []byte) {
			stamptest.Reply(w, liar.Forge(query, liar.Cert, change))
		}
	}
	answers := func(body []byte) func(http.ResponseWriter, *http.Request, []byte) {
		return func(w http.ResponseWriter, _ *http.Request, _ []byte) { stamptest.Reply(w, body) }
	}
	rejected, err := asn1.Marshal(struct{ Status struct{ Status int } }{struct{ Status int }{2}})
	check(t, err)
	granted, err := asn1.Marshal(struct{ Status struct{ Status int } }{})
	check(t, err)
	expired, forServers := liar.Certify(time.Now().Add(-time.Hour), true), liar.Certify(time.Now().Add(time.Hour), false)
	var replayed []byte
	n := 0
	turn := func(what string) {
		t.Helper()
		register(t, l, o, n, 3)
		n += 3
		log.turned(t)
		if log.stampNow(); behind(t, l) != 0 {
			t.Errorf("one that %s: the tree was held up", what)
		}
	}
	stored := func() (of map[string]int) {
		of = map[string]int{}
		for _, token := range tokens(t, l, signer, good, liar) {
			of[strings.Fields(token)[1]]++
		}
		return of
	}
	liar.Does(func(w http.ResponseWriter, _ *http.Request, query []byte) {
		replayed = liar.Forge(query, liar.Cert, func(*timestamp.Timestamp) {})
		stamptest.Reply(w, replayed)
	})
	turn("is honest")
	if got := stored(); got["good"] != 1 || got["liar"] != 1 {
		t.Fatalf("the test's own tokens are not taken: %v", got)
	}
	lies := map[string]func(http.ResponseWriter, *http.Request, []byte){
		"stamps another imprint": forged(func(s *timestamp.Timestamp) { s.HashedMessage = bytes.Repeat([]byte{1}, 32) }),
		"sends another nonce":    forged(func(s *timestamp.Timestamp) { s.Nonce.Add(s.Nonce, s.Nonce) }),
		"sends no nonce":         forged(func(s *timestamp.Timestamp) { s.Nonce = nil }),
		"is an hour ahead":       forged(func(s *timestamp.Timestamp) { s.Time = s.Time.Add(time.Hour) }),
		"is an hour behind":      forged(func(s *timestamp.Timestamp) { s.Time = s.Time.Add(-time.Hour) }),
		"is a minute ahead":      forged(func(s *timestamp.Timestamp) { s.Time = s.Time.Add(65 * time.Second) }),
		"sends no certificate":   forged(func(s *timestamp.Timestamp) { s.AddTSACertificate = false }),
		"replays":                func(w http.ResponseWriter, _ *http.Request, _ []byte) { stamptest.Reply(w, replayed) },
		"is another authority": func(w http.ResponseWriter, _ *http.Request, query []byte) {
			stamptest.Reply(w, stranger.Forge(query, stranger.Cert, func(*timestamp.Timestamp) {}))
		},
		"has an expired certificate": func(w http.ResponseWriter, _ *http.Request, query []byte) {
			stamptest.Reply(w, liar.Forge(query, expired, func(*timestamp.Timestamp) {}))
		},
		"has a certificate for something else": func(w http.ResponseWriter, _ *http.Request, query []byte) {
			stamptest.Reply(w, liar.Forge(query, forServers, func(*timestamp.Timestamp) {}))
		},
		"answers nonsense":       answers([]byte("no token")),
		"answers nothing":        answers(nil),
		"rejects":                answers(rejected),
		"grants without a token": answers(granted),
		"answers too much":       answers(make([]byte, maxStampAnswer+1)),
		"answers without a type": func(w http.ResponseWriter, _ *http.Request, query []byte) {
			_, _ = w.Write(liar.Forge(query, liar.Cert, func(*timestamp.Timestamp) {}))
		},
		"fails":    func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusInternalServerError) },
		"hangs up": func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) },
		"hangs up in the middle": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			stamptest.Reply(w, []byte{0x30, 0x82})
			panic(http.ErrAbortHandler)
		},
		"appends bytes to a token": func(w http.ResponseWriter, _ *http.Request, query []byte) {
			stamptest.Reply(w, append(liar.Forge(query, liar.Cert, func(*timestamp.Timestamp) {}), 0))
		},
		"redirects": func(w http.ResponseWriter, r *http.Request, _ []byte) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"answers without end": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Header().Set("Content-Type", stamptest.ReplyType)
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		},
	}
	failures := int64(0)
	for what, lie := range lies {
		liar.Does(lie)
		turn(what)
		failures++
		if got := log.Authorities[1].Failures(); got != failures {
			t.Errorf("one that %s: %d failures, want %d", what, got, failures)
		}
	}
	if got := stored(); got["liar"] != 1 || got["good"] != 1+len(lies) || log.Authorities[0].Failures() != 0 {
		t.Errorf("stored %v, want one of the liar and %d of the other", got, 1+len(lies))
	}
	states, err := ReadStamps(context.Background(), l.Pool, []string{"good", "liar"})
	check(t, err)
	if !states[0].Unstamped.IsZero() || states[1].Unstamped.IsZero() || states[0].TreeSize <= states[1].TreeSize {
		t.Errorf("states %+v", states)
	}
	liar.Does(nil)
	log.stampNow()
	if got := stored(); got["liar"] != 2 {
		t.Errorf("one that is honest again: %v", got)
	}
}

// TestSilentAuthority: an authority that accepts a request and never answers delays nothing beyond its time limit.
func TestSilentAuthority(t *testing.T) {
	a := stamptest.New(t, "silent")
	entered, release := make(chan struct{}), make(chan struct{})
	a.Does(func(http.ResponseWriter, *http.Request, []byte) {
		close(entered)
		<-release
	})
	defer close(release)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-entered
		cancel() // like the end of its time
	}()
	if _, _, err := configured(t, a).Stamp(ctx, a.Pinned(), [32]byte{}, time.Now); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestAuthorityAway: an authority that is down for an hour is asked again with growing pauses and delays nothing. Once
// it is back, one token covers everything since.
func TestAuthorityAway(t *testing.T) {
	l, signer, a := ledgertest.New(t), newSigner(t), stamptest.New(t, "away")
	o := l.Organization(t, 1, domain.InternalPlan)
	log := process(t, l, signer, stamping(t, a))
	ctx := context.Background()
	a.Does(func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) })
	log.turned(t)
	var elapsed, before time.Duration
	for n := 0; elapsed < time.Hour; n++ {
		register(t, l, o, n, 1)
		if log.turned(t); behind(t, l) != 0 {
			t.Error("the tree was held up")
		}
		pause := log.stamp(ctx, log.Authorities[0])
		if pause < before || pause > maxStampPause {
			t.Errorf("a pause of %s after one of %s", pause, before)
		}
		elapsed, before = elapsed+pause, pause
	}
	if failures := log.Authorities[0].Failures(); failures < 15 || failures > 25 || len(tokens(t, l, signer, a)) > 0 {
		t.Errorf("%d failures in an hour, tokens %v", failures, tokens(t, l, signer, a))
	}
	a.Does(nil)
	if pause := log.stamp(ctx, log.Authorities[0]); pause != log.Stamp {
		t.Errorf("a pause of %s after a token", pause)
	}
	size, _ := published(t, l, signer)
	if got := tokens(t, l, signer, a); !slices.Equal(got, []string{fmt.Sprintf("%d away", size)}) {
		t.Errorf("tokens %v", got)
	}
}

// TestUnpinnedAuthority: an authority is not asked while the trusted keys pin nothing under its name, and this is
// logged once.
func TestUnpinnedAuthority(t *testing.T) {
	l, signer, a := ledgertest.New(t), newSigner(t), stamptest.New(t, "unpinned")
	l.Organization(t, 1, domain.InternalPlan)
	var said strings.Builder
	pinned := false
	log := process(t, l, signer, stamping(t, a), func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&said, nil))
		c.Pinned = func(string) (evidence.Authority, bool) { return a.Pinned(), pinned }
	})
	log.turned(t)
	log.stampNow()
	log.stampNow()
	if a.Asked() != 0 || strings.Count(said.String(), "authority skipped") != 1 {
		t.Errorf("asked %d times; said %q", a.Asked(), said.String())
	}
	pinned = true
	if log.stampNow(); a.Asked() != 1 || len(tokens(t, l, signer, a)) != 1 {
		t.Errorf("asked %d times once it was pinned", a.Asked())
	}
	if _, err := New(Config{
		Pool: log.Pool, Signer: log.Signer, Now: time.Now, Log: log.Log, Authorities: log.Authorities,
	}); err == nil {
		t.Error("authorities without what is pinned were taken")
	}
}

// TestOneProcessAsks: the process that signed the last checkpoint asks. If it does not, another process steps in.
func TestOneProcessAsks(t *testing.T) {
	l, signer, a := ledgertest.New(t), newSigner(t), stamptest.New(t, "tsa")
	o := l.Organization(t, 1, domain.InternalPlan)
	signs, other := process(t, l, signer, stamping(t, a)), process(t, l, signer, stamping(t, a))
	signs.turned(t)
	asked := func(what string, want int) {
		t.Helper()
		if a.Asked() != want {
			t.Errorf("%s: asked %d times, want %d", what, a.Asked(), want)
		}
	}
	other.stampNow()
	asked("one that has not signed", 0)
	signs.stampNow()
	asked("one that has signed", 1)
	other.stampNow()
	asked("there is nothing new", 1)
	register(t, l, o, 0, 3)
	signs.turned(t)
	for range leftTo {
		other.stampNow()
	}
	asked("the one that has signed may still ask", 1)
	other.stampNow()
	asked("the one that has signed does not ask", 2)
	register(t, l, o, 3, 3)
	signs.turned(t)
	signs.stampNow()
	asked("another has got a token since the last look", 2)
	signs.stampNow()
	asked("no other has", 3)
	if len(tokens(t, l, signer, a)) != 3 {
		t.Errorf("tokens %v", tokens(t, l, signer, a))
	}
}

// TestRestoredBeforeStamped: a process that was frozen with a new token never stores it in a database that was restored
// to before the stamped tree, neither while the log is halted nor after it forked.
func TestRestoredBeforeStamped(t *testing.T) {
	l, signer, a := ledgertest.New(t), newSigner(t), stamptest.New(t, "tsa")
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	log := process(t, l, signer, stamping(t, a))
	log.turned(t)
	log.stampNow()
	kept := tokens(t, l, signer, a)
	pool := owner(t, l)
	backUp(t, pool)
	register(t, l, o, 0, 3)
	log.turned(t)
	lost, err := log.dueForStamp(ctx, log.Authorities[0])
	check(t, err)
	der, token, err := log.Authorities[0].Stamp(ctx, a.Pinned(), sha256.Sum256([]byte(lost.note)), time.Now)
	check(t, err)
	thaws := func(what, want string) {
		t.Helper()
		if err := log.storeStamp(ctx, log.Authorities[0], lost, der, token); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
		if got := tokens(t, l, signer, a); !slices.Equal(got, kept) {
			t.Errorf("%s: tokens %v, want %v", what, got, kept)
		}
	}
	restore(t, l, pool)
	thaws("the log stands still", ErrRestored.Error())
	if log.stampNow(); a.Asked() != 2 || log.Authorities[0].Failures() != 0 {
		t.Errorf("a log that stands still: asked %d times, %d failures", a.Asked(), log.Authorities[0].Failures())
	}
	made := newSigner(t)
	check(t, MakeForkKey(ctx, pool, made.LogKey))
	_, _, err = Resume(ctx, pool, Resumption{Fork: true, Signer: made})
	check(t, err)
	thaws("the tree is smaller", "the database was replaced")
	// The lost events are registered again, in another order.
	first := l.Organization(t, 0, domain.InternalPlan)
	register(t, l, first, 0, 5)
	fork := process(t, l, made, stamping(t, a))
	fork.turned(t)
	thaws("the tree is another", "does not contain the earlier tree")
	fork.stampNow() // the first check does not replace existing tokens
	fork.stampNow()
	if got := stampsOf(t, l); len(got) != len(kept)+1 {
		t.Errorf("the fork is not stamped: %v", got)
	}
	trusted, err := evidence.NewTrustedKeys(nil, nil, keysOf(signer, made))
	check(t, err)
	trusted, err = trusted.PutAuthority(a.Pinned())
	check(t, err)
	checked, err := CheckStamps(ctx, l.Pool, trusted, func(s Stamp, err error) {
		t.Errorf("the token of %d leaves: %v", s.TreeSize, err)
	})
	if err != nil || checked.Tokens != 2 || checked.Unpinned != nil {
		t.Errorf("%+v, %v", checked, err)
	}
}

func stampsOf(t *testing.T, l *ledgertest.Ledger) []Stamp {
	t.Helper()
	stamps, err := (&Reader{Pool: l.Pool}).Timestamps(context.Background(), 0, 1000)
	check(t, err)
	return stamps
}

// TestCheckStamps: a modified stored token is found.
func TestCheckStamps(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	a, b := stamptest.New(t, "a"), stamptest.New(t, "b")
	o := l.Organization(t, 1, domain.InternalPlan)
	log := process(t, l, signer, stamping(t, a, b))
	for round := range 3 {
		register(t, l, o, 300*round, 300)
		log.turned(t)
		log.stampNow()
	}
	pool := owner(t, l)
	trusted, err := evidence.NewTrustedKeys(nil, nil, keysOf(signer))
	check(t, err)
	one, err := trusted.PutAuthority(a.Pinned())
	check(t, err)
	both, err := one.PutAuthority(b.Pinned())
	check(t, err)
	finds := func(trusted *evidence.TrustedKeys) (faults []string, checked CheckedStamps) {
		t.Helper()
		checked, err := CheckStamps(context.Background(), l.Pool, trusted, func(s Stamp, err error) {
			faults = append(faults, s.Authority+": "+err.Error())
		})
		check(t, err)
		return faults, checked
	}
	if faults, checked := finds(both); faults != nil || checked.Tokens != 6 || checked.Unpinned != nil {
		t.Fatalf("%v, %+v", faults, checked)
	}
	if faults, checked := finds(one); faults != nil || !slices.Equal(checked.Unpinned, []string{"b"}) {
		t.Errorf("one that is not pinned: %v, %+v", faults, checked)
	}
	other, err := evidence.NewTrustedKeys(nil, nil, keysOf(newSigner(t)))
	check(t, err)
	if faults, _ := finds(other); len(faults) != 6 {
		t.Errorf("under another log key: %v", faults)
	}
	size, _ := published(t, l, signer)
	exec(t, pool, "CREATE TABLE saved AS TABLE log_timestamps")
	last := fmt.Sprintf(" WHERE authority = 'a' AND tree_size = %d", size)
	for what, c := range map[string]struct{ sql, found string }{
		"the token": {
			"SET token = set_byte(token, length(token) - 1, get_byte(token, length(token) - 1) # 1)" + last, "signature",
		},
		"its time": {"SET gen_time = gen_time - interval '1 microsecond'" + last, "stored as"},
		"the checkpoint": {
			"SET checkpoint = (SELECT checkpoint FROM saved s WHERE s.tree_size < log_timestamps.tree_size ORDER BY " +
				"s.tree_size LIMIT 1)" + last,
			"does not belong to the tree",
		},
		"its white space":   {"SET checkpoint = checkpoint || E'\\n'" + last, "not a checkpoint"},
		"the size":          {"SET tree_size = tree_size - 1" + last, "does not belong to the tree"},
		"a size of no tree": {"SET tree_size = tree_size + 1000000" + last, "the tree does not have"},
		"a size of 2^63-1":  {"SET tree_size = 9223372036854775807" + last, "no tree has"},
		"another's token": {
			"SET token = (SELECT token FROM saved s WHERE s.authority = 'b' AND s.tree_size = log_timestamps.tree_size)" + last,
			"does not lead to",
		},
		"an older token": {
			"SET token = (SELECT token FROM saved s WHERE s.authority = 'a' ORDER BY s.tree_size LIMIT 1)" + last, "imprint",
		},
	} {
		exec(t, pool, "UPDATE log_timestamps "+c.sql)
		faults, _ := finds(both)
		if len(faults) != 1 || !strings.HasPrefix(faults[0], "a: ") || !strings.Contains(faults[0], c.found) {
			t.Errorf("%s: %v", what, faults)
		}
		exec(t, pool, "TRUNCATE log_timestamps")
		exec(t, pool, "INSERT INTO log_timestamps TABLE saved")
	}
	exec(t, pool, "UPDATE transparency_tiles SET hashes = set_byte(hashes, 9, get_byte(hashes, 9) # 1) WHERE level = 1")
	if faults, _ := finds(both); len(faults) == 0 {
		t.Error("a tree that is another than the one that was stamped")
	}
}

func TestParseTimestampAuthorities(t *testing.T) {
	list, err := ParseTimestampAuthorities(
		"# who stamps, and where\nfreetsa https://freetsa.example/tsr\n\nlocal.1\thttp://127.0.0.1:3161/x \n",
	)
	if err != nil || len(list) != 2 || list[0].Name() != "freetsa" || list[0].address != "https://freetsa.example/tsr" ||
		list[1].address != "http://127.0.0.1:3161/x" {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := ParseTimestampAuthorities("a https://a.example, b http://localhost:1/"); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	for _, wrong := range []string{
		"a", "https://a.example", "a https://a.example x", "a http://a.example", "a https://u:p@a.example",
		"a https://a.example/?q", "a https://a.example#f", "a /x", "-a https://a.example",
		"a/b https://a.example", "a https://a.example,a https://b.example",
		"a https://x,b https://x,c https://x,d https://x,e https://x",
	} {
		if _, err := ParseTimestampAuthorities(wrong); err == nil {
			t.Errorf("%s was taken", wrong)
		}
	}
}
