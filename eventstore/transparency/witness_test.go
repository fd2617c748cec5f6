package transparency

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/projections/ledgertest"
)

func keysOf(signers ...*Signer) (keys []evidence.LogKey) {
	for _, s := range signers {
		keys = append(keys, s.LogKey)
	}
	return keys
}

// witness is a witness that follows C2SP tlog-witness, with another implementation of the proofs.
type witness struct {
	t       *testing.T
	log     note.Verifier
	private ed25519.PrivateKey
	name    string
	*httptest.Server

	mu    sync.Mutex
	size  uint64
	root  []byte
	asked int
	// misbehave, if set, answers in its place.
	misbehave func(w http.ResponseWriter, r *http.Request, body []byte)
}

func newWitness(t *testing.T, name string, signer *Signer) *witness {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	log, err := note.NewVerifier(signer.VerifierKey)
	check(t, err)
	w := &witness{t: t, log: log, private: private, name: name}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

func (w *witness) verifierKey() string {
	typed := append([]byte{4}, w.private.Public().(ed25519.PublicKey)...)
	sum := sha256.Sum256(append([]byte(w.name+"\n"), typed...))
	return fmt.Sprintf("%s+%x+%s", w.name, sum[:4], base64.StdEncoding.EncodeToString(typed))
}

func (w *witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/prefix/add-checkpoint" {
		out.WriteHeader(http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.misbehave != nil {
		w.misbehave(out, r, body)
		return
	}
	w.judge(out, body)
}

func (w *witness) judge(out http.ResponseWriter, body []byte) {
	head, signed, _ := bytes.Cut(body, []byte("\n\n"))
	opened, err := note.Open(signed, note.VerifierList(w.log))
	if err != nil {
		out.WriteHeader(http.StatusForbidden)
		return
	}
	lines := strings.Split(string(head), "\n")
	old, err := strconv.ParseUint(strings.TrimPrefix(lines[0], "old "), 10, 64)
	text := strings.Split(opened.Text, "\n")
	size, sizeErr := strconv.ParseUint(text[1], 10, 64)
	root, rootErr := base64.StdEncoding.DecodeString(text[2])
	if err != nil || sizeErr != nil || rootErr != nil || old > size {
		out.WriteHeader(http.StatusBadRequest)
		return
	}
	if old != w.size || old == size && !bytes.Equal(root, w.root) {
		out.Header().Set("Content-Type", "text/x.tlog.size")
		out.WriteHeader(http.StatusConflict)
		fmt.Fprintf(out, "%d\n", w.size)
		return
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			out.WriteHeader(http.StatusBadRequest)
			return
		}
		proof = append(proof, hash)
	}
	if old == 0 && len(proof) > 0 ||
		old > 0 && tlog.CheckTree(proof, int64(size), hashOf(root), int64(old), hashOf(w.root)) != nil {
		out.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	w.size, w.root = size, root
	fmt.Fprint(out, w.cosign(opened.Text))
}

func (w *witness) cosign(text string) string { return w.cosignAt(text, time.Now()) }

func (w *witness) cosignAt(text string, at time.Time) string {
	now := uint64(at.Unix())
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(w.verifierKey(), "+", 3)[2])
	check(w.t, err)
	sum := sha256.Sum256(append([]byte(w.name+"\n"), raw...))
	line := binary.BigEndian.AppendUint64(append([]byte{}, sum[:4]...), now)
	line = append(line, ed25519.Sign(w.private, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", now, text))...)
	return "— " + w.name + " " + base64.StdEncoding.EncodeToString(line) + "\n"
}

func (w *witness) configured() *Witness {
	w.t.Helper()
	configured, err := NewWitness(w.verifierKey(), w.URL+"/prefix/")
	check(w.t, err)
	return configured
}

// cosigned returns the names in the signature lines of the served checkpoint, after verifying them all.
func cosigned(t *testing.T, l *ledgertest.Ledger, signer *Signer, witnesses ...*Witness) (names []string) {
	t.Helper()
	text, err := (&Reader{Pool: l.Pool}).Checkpoint(context.Background())
	check(t, err)
	log, err := note.NewVerifier(signer.VerifierKey)
	check(t, err)
	known := []note.Verifier{log}
	for _, w := range witnesses {
		known = append(known, w)
	}
	opened, err := note.Open([]byte(text), note.VerifierList(known...))
	check(t, err)
	if len(opened.UnverifiedSigs) > 0 {
		t.Errorf("not verified: %v", opened.UnverifiedSigs)
	}
	for _, s := range opened.Sigs {
		names = append(names, s.Name)
	}
	return names
}

// TestWitnesses: cosignatures are served with the checkpoint. A witness that has not cosigned is left out and does no
// harm.
func TestWitnesses(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	good, second := newWitness(t, "witness.example/good", signer), newWitness(t, "witness.example/second", signer)
	a, b := good.configured(), second.configured()
	now := time.Now()
	log := process(t, l, signer, func(c *Config) {
		c.Witnesses, c.Witness = []*Witness{a, b}, time.Minute
		c.Now = func() time.Time { return now }
	})
	n := 0
	turn := func() {
		t.Helper()
		register(t, l, o, n, 3)
		n += 3
		log.turned(t)
		if behind(t, l) != 0 {
			t.Error("the tree was held up")
		}
	}
	both := logName + " witness.example/good witness.example/second"
	is := func(what, want string) {
		t.Helper()
		if got := strings.Join(cosigned(t, l, signer, a, b), " "); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	turn()
	is("the first checkpoint", both)
	turn()
	is("the second", both)
	asked := good.asked
	log.turned(t)
	if good.asked != asked {
		t.Error("a witness was asked again without news")
	}

	first, err := (&Reader{Pool: l.Pool}).Checkpoint(context.Background())
	check(t, err)
	stale := submittedText([]byte("\n\n" + first)) // once the tree has grown
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	t.Cleanup(elsewhere.Close)
	entered, release := make(chan struct{}), make(chan struct{})
	for what, misbehave := range map[string]func(http.ResponseWriter, *http.Request, []byte){
		"fails":    func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusInternalServerError) },
		"hangs up": func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) },
		"signs another root": func(w http.ResponseWriter, _ *http.Request, body []byte) {
			lines := strings.Split(submittedText(body), "\n")
			lines[2] = tlog.Hash{1}.String()
			fmt.Fprint(w, second.cosign(strings.Join(lines, "\n")))
		},
		"signs a stale size": func(w http.ResponseWriter, _ *http.Request, _ []byte) { fmt.Fprint(w, second.cosign(stale)) },
		"signs with another's key": func(w http.ResponseWriter, _ *http.Request, body []byte) {
			line := strings.Fields(good.cosign(submittedText(body)))[2]
			raw, _ := base64.StdEncoding.DecodeString(line)
			own, _ := base64.StdEncoding.DecodeString(strings.Fields(second.cosign(stale))[2])
			fmt.Fprintf(w, "— %s %s\n", second.name, base64.StdEncoding.EncodeToString(append(own[:4], raw[4:]...)))
		},
		"answers another's cosignature": func(w http.ResponseWriter, _ *http.Request, body []byte) {
			fmt.Fprint(w, good.cosign(submittedText(body)))
		},
		"dates a day ahead": func(w http.ResponseWriter, _ *http.Request, body []byte) {
			fmt.Fprint(w, second.cosignAt(submittedText(body), now.Add(24*time.Hour)))
		},
		"signs at no time": func(w http.ResponseWriter, _ *http.Request, body []byte) {
			fmt.Fprint(w, second.cosignAt(submittedText(body), time.Unix(0, 0)))
		},
		"signs another text": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			fmt.Fprint(w, second.cosign(fmt.Sprintf("%s\n5\n%s\n", logName, tlog.Hash{})))
		},
		"signs by another name": func(w http.ResponseWriter, _ *http.Request, body []byte) {
			fmt.Fprint(w, strings.Replace(second.cosign(string(body)), second.name, "witness.example/other", 1))
		},
		"answers nonsense": func(w http.ResponseWriter, _ *http.Request, _ []byte) { fmt.Fprint(w, "— x\n\n") },
		"redirects": func(w http.ResponseWriter, r *http.Request, _ []byte) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"conflicts without end":        func(w http.ResponseWriter, _ *http.Request, _ []byte) { conflict(w, "0\n") },
		"conflicts with a larger tree": func(w http.ResponseWriter, _ *http.Request, _ []byte) { conflict(w, "99999999\n") },
		"conflicts without a size":     func(w http.ResponseWriter, _ *http.Request, _ []byte) { conflict(w, "-1\n") },
		"answers too much": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
		},
		"never answers": func(http.ResponseWriter, *http.Request, []byte) {
			close(entered)
			<-release
		},
	} {
		second.does(misbehave)
		now = now.Add(time.Hour) // past every pause
		if what == "never answers" {
			log.Witness = time.Nanosecond
			turn()
			log.Witness = time.Minute
			is(what, logName)
			now = now.Add(time.Hour)
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				<-entered
				cancel() // like the end of its time
			}()
			log.Witnesses = []*Witness{b}
			log.ask(ctx)
			close(release)
			log.Witnesses = []*Witness{a, b}
			a.failures, a.next = 0, time.Time{}
		} else {
			turn()
			is("one that "+what, logName+" witness.example/good")
		}
		second.does(nil)
	}
	now = now.Add(time.Hour) // the first witness may have been cut off as well
	second.does(func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusInternalServerError) })
	turn()
	second.does(nil)
	turn()
	is("it is left alone for a while", logName+" witness.example/good")
	now = now.Add(time.Hour)
	turn()
	is("it has recovered", both)

	// The witness forgot, or another process asked it: 409 gives the size to continue from.
	second.mu.Lock()
	second.size, second.root = 0, nil
	second.mu.Unlock()
	turn()
	is("one that begins anew", both)
	exec(t, owner(t, l), "DELETE FROM transparency_cosignatures")
	turn()
	is("all cosignatures were lost here", both)
}

// TestWitnessOfTwoProcesses: a process whose checkpoint is no longer the last accuses no witness. A witness that has
// seen a tree that was never published is still accused.
func TestWitnessOfTwoProcesses(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	w := newWitness(t, "witness.example/both", signer)
	asks := func(c *Config) { c.Witnesses, c.Witness = []*Witness{w.configured()}, time.Minute }
	late, other := process(t, l, signer, asks), process(t, l, signer, asks)
	register(t, l, o, 0, 3)
	late.turned(t)
	register(t, l, o, 3, 3)
	other.turned(t)
	asked := w.asked
	check(t, late.cosign(context.Background(), late.Witnesses[0]))
	if w.asked != asked {
		t.Error("it was asked for less than another process has had cosigned")
	}
	exec(t, owner(t, l), "DELETE FROM transparency_cosignatures") // as if the other process had not stored its own yet
	check(t, late.cosign(context.Background(), late.Witnesses[0]))
	if w.asked == asked {
		t.Error("it was not asked")
	}
	w.does(func(w http.ResponseWriter, _ *http.Request, _ []byte) { conflict(w, "9999\n") })
	if err := late.cosign(context.Background(), late.Witnesses[0]); err == nil ||
		!strings.Contains(err.Error(), "published history was lost") {
		t.Errorf("a witness knows a tree that nobody has published: %v", err)
	}
}

func (w *witness) does(misbehave func(http.ResponseWriter, *http.Request, []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.misbehave = misbehave
}

func conflict(w http.ResponseWriter, size string) {
	w.Header().Set("Content-Type", "text/x.tlog.size")
	w.WriteHeader(http.StatusConflict)
	_, _ = io.WriteString(w, size)
}

// submittedText returns the text of the checkpoint in a request.
func submittedText(body []byte) string {
	_, signed, _ := strings.Cut(string(body), "\n\n")
	text, _, _ := strings.Cut(signed, "\n\n")
	return text + "\n"
}

func TestParseWitnesses(t *testing.T) {
	w := newWitness(t, "witness.example/a", newSigner(t))
	other := newWitness(t, "witness.example/b", newSigner(t))
	list, err := ParseWitnesses(
		"# who cosigns\n" + w.verifierKey() + " https://witness.example/a\n\n" + other.verifierKey() +
			"\thttps://b.example:8443/x/ \n",
	)
	if err != nil || len(list) != 2 || list[0].prefix != "https://witness.example/a" ||
		list[1].prefix != "https://b.example:8443/x" {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := ParseWitnesses(
		w.verifierKey() + " https://a.example, " + other.verifierKey() + " http://127.0.0.1:1",
	); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	key := w.verifierKey()
	for _, wrong := range []string{
		key, key + " https://a.example x", "x https://a.example", key + " http://a.example", key + " https://u:p@a.example",
		key + " https://a.example/?q", key + " /x",
		strings.Replace(key, "/a+", "/b+", 1) + " https://a.example", newSigner(t).VerifierKey + " https://a.example",
		key + " https://a.example," + key + " https://b.example",
	} {
		if _, err := ParseWitnesses(wrong); err == nil {
			t.Errorf("%s was taken", wrong)
		}
	}
}

// refusals returns what all processes know about the last failure of each witness, by verifier key.
func refusals(t *testing.T, l *ledgertest.Ledger) map[string]Refusal {
	t.Helper()
	v, err := (&Reader{Pool: l.Pool}).Vouched(context.Background())
	check(t, err)
	return v.Refused
}

// TestRefusals: a process that does not ask a witness knows why it refused another process, until it cosigns. A witness
// cannot say that the log differs from what it has cosigned unless its cosignature is known.
func TestRefusals(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	w := newWitness(t, "witness.example/a", signer)
	now := time.Now()
	log := process(t, l, signer, func(c *Config) {
		c.Witnesses, c.Witness, c.Now = []*Witness{w.configured()}, time.Minute, func() time.Time { return now }
	})
	n := 0
	turn := func() (Refusal, bool) {
		t.Helper()
		now = now.Add(time.Hour)
		register(t, l, o, n, 3)
		n += 3
		log.turned(t)
		r, ok := refusals(t, l)[w.verifierKey()]
		return r, ok
	}
	status := func(status int) func(http.ResponseWriter, *http.Request, []byte) {
		return func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(status) }
	}
	for range 2 { // before its first cosignature, and after
		other := OtherHistory
		if n == 0 {
			other = NotAccepted
		}
		for _, c := range []struct {
			misbehave func(http.ResponseWriter, *http.Request, []byte)
			want      RefusalReason
		}{
			{status(http.StatusUnprocessableEntity), other},
			{status(http.StatusConflict), NotAccepted},
			{func(w http.ResponseWriter, _ *http.Request, _ []byte) { conflict(w, "many\n") }, NotAccepted},
			{func(w http.ResponseWriter, _ *http.Request, _ []byte) { conflict(w, "99999999\n") }, other},
			{status(http.StatusForbidden), NotAccepted},
			{status(http.StatusServiceUnavailable), Unreachable},
			{func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) }, Unreachable},
			{func(w http.ResponseWriter, _ *http.Request, _ []byte) { _, _ = io.WriteString(w, "nothing") }, NoCosignature},
		} {
			w.does(c.misbehave)
			if r, ok := turn(); !ok || r.Reason != c.want || r.TreeSize != log.last.size ||
				!r.At.Equal(now.Truncate(time.Microsecond)) {
				t.Errorf("%+v %v, want %s of %d leaves", r, ok, c.want, log.last.size)
			}
		}
		w.does(nil)
		if r, ok := turn(); ok {
			t.Errorf("it has cosigned, but %+v is left", r)
		}
	}
	exec(t, owner(t, l), "ALTER TABLE transparency_cosignatures RENAME TO gone")
	now = now.Add(time.Hour)
	log.ask(context.Background())
	exec(t, owner(t, l), "ALTER TABLE gone RENAME TO transparency_cosignatures")
	if r, ok := refusals(t, l)[w.verifierKey()]; ok {
		t.Errorf("the database failed, but the witness is accused: %+v", r)
	}
}

// TestWitnessWithANewKey: a witness that has a new key under its old name is asked at once, not when the log grows.
func TestWitnessWithANewKey(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	w := newWitness(t, "witness.example/a", signer)
	asks := func(c *Config) { c.Witnesses, c.Witness = []*Witness{w.configured()}, time.Minute }
	former := w.configured()
	register(t, l, o, 0, 3)
	process(t, l, signer, asks).turned(t)
	if got := cosigned(t, l, signer, former); len(got) != 2 {
		t.Fatalf("by the former key: %q", got)
	}
	_, w.private, _ = ed25519.GenerateKey(rand.Reader)
	next := process(t, l, signer, asks)
	for range 2 { // the log does not grow
		next.signed.Store(next.last.size)
		next.turned(t)
	}
	if got := cosigned(t, l, signer, w.configured()); len(got) != 2 {
		t.Errorf("by the new key: %q", got)
	}
	asked := w.asked
	next.turned(t)
	if w.asked != asked {
		t.Error("it was asked again")
	}
}
