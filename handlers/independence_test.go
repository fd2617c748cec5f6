package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
	"integrityledger/projections/ledgertest"
)

// otherWitness is a witness with a database of its own.
type otherWitness struct {
	*transparency.Witness
	key  evidence.WitnessKey
	logs atomic.Pointer[witness.Logs]
	away atomic.Bool
}

func newOtherWitness(t *testing.T, name string) *otherWitness {
	t.Helper()
	pool, err := cluster.At(ledgertest.New(t).URL).WitnessPool(context.Background(), 2)
	check(t, err)
	t.Cleanup(pool.Close)
	signer, err := witness.NewSigner(name, evidence.GenerateSigner())
	check(t, err)
	w := &otherWitness{key: signer.WitnessKey}
	w.logs.Store(&witness.Logs{})
	discard := slog.New(slog.DiscardHandler)
	handler := handlers.NewWitness(handlers.WitnessConfig{
		Witness: &witness.Witness{Pool: pool, Signer: signer, Now: time.Now, Log: discard},
		Logs:    func() witness.Logs { return *w.logs.Load() }, Now: time.Now, Log: discard, PerMinute: 10_000,
		TrustedProxies: []netip.Prefix{}, Observe: func(string, handlers.WitnessOutcome, int64) {},
	})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.away.Load() {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	w.Witness, err = transparency.NewWitness(signer.VerifierKey, server.URL)
	check(t, err)
	return w
}

const independence = "/api/public/log/independence"

// independence reads the document until it has the wanted property: the service reads the log again each second.
func (s *service) independence(what string, holds func(wire.Independence) bool) (view wire.Independence) {
	s.t.Helper()
	s.eventually(what, func() bool {
		a := s.public(independence)
		if a.status != http.StatusOK {
			s.t.Fatalf("%d %s", a.status, a.body)
		}
		check(s.t, json.Unmarshal(a.body, &view))
		return holds(view)
	})
	return view
}

var vouchedPattern = regexp.MustCompile(`<div id="vouched"><dt>[^<]*</dt><dd>([^<]*?) <a`)

// vouched returns what the page of a record says about the parties that bind it, empty if it says nothing.
func (s *service) vouched(id string) string {
	s.t.Helper()
	found := vouchedPattern.FindSubmatch(s.page("/en/integrity/" + id).body)
	if found == nil {
		return ""
	}
	return html.UnescapeString(string(found[1]))
}

func (s *service) vouches(id, want string) {
	s.t.Helper()
	last := ""
	s.eventually(fmt.Sprintf("the page says %q", want), func() bool {
		last = s.vouched(id)
		return last == want
	})
}

const alone = "Only this service vouches for this record."

// The document and the page show which parties signed what, and the page of a record counts those that bind it.
func TestIndependence(t *testing.T) {
	a, b := newOtherWitness(t, "a.example/witness"), newOtherWitness(t, "b.example/witness")
	alpha := stamptest.New(t, "alpha")
	stamper, err := transparency.NewTimestampAuthority(alpha.Name, alpha.URL)
	check(t, err)
	var own atomic.Pointer[string]
	own.Store(new(string))
	parties := action.Parties{
		Witnesses: []*transparency.Witness{a.Witness, b.Witness}, Authorities: []*transparency.TimestampAuthority{stamper},
		Custody: func() wire.KeyCustody {
			return wire.KeyCustody{SigningKey: wire.CustodyAgent, LogKey: wire.CustodyFile}
		},
		OwnKey: func() string { return *own.Load() },
	}
	s := open(t, options{config: func(c *handlers.Config) {
		c.Parties = parties
		c.Relationship = map[evidence.Language]string{evidence.Spanish: "Dicho.", evidence.English: "Disclosed."}
	}})
	first := s.registered("a", 1, "one")
	signer, err := transparency.NewSigner(evidence.LogName(s.Installation.Issuer), evidence.GenerateSigner())
	check(t, err)
	logs, err := witness.ParseLogs(signer.VerifierKey)
	check(t, err)
	a.logs.Store(&logs)
	b.logs.Store(&logs)
	trusted, err := s.trusting([]*transparency.Signer{signer}, alpha).AddWitnessKey(a.key)
	check(t, err)
	keys := *s.keys.Load()
	keys.Trusted = trusted
	s.keys.Store(&keys)

	if parties.Alone(trusted) || !(action.Parties{Witnesses: []*transparency.Witness{b.Witness}}).Alone(trusted) ||
		(action.Parties{Authorities: parties.Authorities}).Alone(trusted) ||
		!(action.Parties{Authorities: parties.Authorities}).Alone(nil) {
		t.Error("who counts depends on what is configured and pinned")
	}

	view := s.independence("no checkpoint", func(v wire.Independence) bool { return v.State == wire.LogEmpty })
	if view.Checkpoint != nil || len(view.Witnesses) != 2 || view.Witnesses[0].Cosignature != nil ||
		len(view.TimestampAuthorities) != 1 || view.TimestampAuthorities[0].Stamp != nil ||
		view.Custody.SigningKey != wire.CustodyAgent || !strings.HasSuffix(view.Relationship.ES, " Dicho.") ||
		!strings.HasSuffix(view.Relationship.EN, " Disclosed.") || view.Witness != nil || len(view.SigningKeys) == 0 ||
		len(view.LogKeys) != 1 || view.LogKeys[0].VerifierKey != signer.VerifierKey {
		t.Errorf("before the first checkpoint: %+v", view)
	}
	if got := s.vouched(first); got != alone {
		t.Errorf("before the first checkpoint: %q", got)
	}
	if got := s.vouched(s.reserved("r", 1)); got != "" {
		t.Errorf("a reservation: %q", got)
	}

	both := map[*transparency.Witness]bool{a.Witness: true, b.Witness: true}
	s.publish(signer, both, alpha)
	view = s.independence("published", func(v wire.Independence) bool { return v.State == wire.LogPublished })
	if note := string(s.public("/api/public/log/checkpoint").body); view.Checkpoint.Note != note {
		t.Errorf("the checkpoint is\n%s\nmust be\n%s", view.Checkpoint.Note, note)
	}
	for i, w := range []*otherWitness{a, b} {
		got := view.Witnesses[i]
		if got.VerifierKey != w.key.VerifierKey || got.Cosignature == nil || !got.Cosignature.Newest || !got.Configured ||
			got.Pinned != (w == a) || got.Own || got.Refusal != nil || got.FingerprintSHA256 != w.key.FingerprintSHA256() {
			t.Errorf("witness: %+v", got)
			continue
		}
		// What the document says can be checked with the witness's key and the published checkpoint alone.
		for _, note := range []string{got.Cosignature.Note, view.Checkpoint.Note} {
			if at, ok := w.key.CosignedAt(note, time.Now()); !ok || evidence.FormatTime(at) != got.Cosignature.CosignedAt {
				t.Errorf("the cosignature of\n%s", note)
			}
		}
	}
	stamp := view.TimestampAuthorities[0]
	if !stamp.Configured || !stamp.Pinned || stamp.Stamp == nil || !stamp.Stamp.Newest || len(stamp.CertificateSHA256) == 0 {
		t.Errorf("authority: %+v", stamp)
	}
	// Verifiers do not count a witness until its key is pinned, and neither does the page.
	s.eventually("one witness and an authority", func() bool {
		return strings.HasPrefix(s.vouched(first), "1 witness cosigned a log state that contains this record. This record ")
	})
	keys = *s.keys.Load()
	keys.Trusted, err = trusted.AddWitnessKey(b.key)
	check(t, err)
	s.keys.Store(&keys)
	s.eventually("two witnesses and an authority", func() bool {
		got := s.vouched(first)
		return strings.HasPrefix(
			got, "2 witnesses cosigned a log state that contains this record. This record existed before ",
		) && strings.HasSuffix(got, " UTC according to alpha.")
	})
	spanish := string(s.page("/integrity/" + first + "?lang=es").body)
	if !strings.Contains(spanish, "2 testigos han cofirmado un estado del registro de transparencia que contiene este "+
		"registro. Este registro existía antes del ") {
		t.Error("the Spanish page does not count witnesses")
	}

	// The cosignature of an earlier checkpoint binds the records in it, and no others.
	b.away.Store(true)
	second := s.registered("b", 1, "two")
	s.vouches(second, alone)
	s.publish(signer, map[*transparency.Witness]bool{a.Witness: true, b.Witness: false})
	view = s.independence("a cosigned alone", func(v wire.Independence) bool {
		c := v.Witnesses[1].Cosignature
		return c != nil && !c.Newest
	})
	if r := view.Witnesses[1].Refusal; r == nil || r.Reason != string(transparency.Unreachable) ||
		r.TreeSize != view.Checkpoint.TreeSize {
		t.Errorf("refusal: %+v", r)
	}
	if _, ok := b.key.CosignedAt(view.Witnesses[1].Cosignature.Note, time.Now()); !ok {
		t.Errorf("the earlier cosignature cannot be checked: %s", view.Witnesses[1].Cosignature.Note)
	}
	const one = "1 witness cosigned a log state that contains this record."
	s.vouches(second, one)
	if got := s.vouched(first); !strings.HasPrefix(got, "2 witnesses cosigned") {
		t.Errorf("the first record: %q", got)
	}
	page := string(s.page("/en/trust").body)
	for _, words := range []string{
		"Of the witnesses that count, 1 of 2 cosigned the newest checkpoint.",
		"It has NOT cosigned the newest checkpoint.", "the witness did not answer, or is out of order.",
		a.key.FingerprintSHA256(), stamp.CertificateSHA256[0], "In an agent outside the process.", "Disclosed.",
		view.SigningKeys[0].FingerprintSHA256,
	} {
		if !strings.Contains(page, html.EscapeString(words)) {
			t.Errorf("the page does not say %q", words)
		}
	}

	// A witness with this installation's own key does not count, even if the installation has no name as a witness.
	own.Store(new(a.key.FingerprintSHA256()))
	s.vouches(second, alone)
	if v := s.independence("own", func(wire.Independence) bool { return true }); !v.Witnesses[0].Own ||
		!(action.Parties{Witnesses: []*transparency.Witness{a.Witness}, OwnKey: parties.OwnKey}).Alone(trusted) {
		t.Errorf("own witness: %+v", v.Witnesses[0])
	}
	own.Store(new(string))

	// A witness that was removed from the settings does not count any more, although it is still pinned.
	parties.Witnesses[0] = newOtherWitness(t, "c.example/witness").Witness
	s.vouches(second, alone)
	if v := s.independence("removed", func(wire.Independence) bool { return true }); v.Witnesses[2].Configured ||
		v.Witnesses[2].Cosignature == nil {
		t.Errorf("a removed witness: %+v", v.Witnesses[2])
	}
	parties.Witnesses[0] = a.Witness

	// What does not verify is not shown: a forged cosignature, and a token of another checkpoint.
	s.owner(
		`UPDATE transparency_cosignatures SET signature = (SELECT signature FROM transparency_cosignatures WHERE witness = 'b.example/witness')`,
		`UPDATE log_timestamps SET token = set_byte(token, length(token) - 1, get_byte(token, length(token) - 1) # 1)`,
	)
	view = s.independence("nothing of a", func(v wire.Independence) bool { return v.Witnesses[0].Cosignature == nil })
	if view.TimestampAuthorities[0].Stamp != nil {
		t.Error("a token that does not verify is shown")
	}
	s.vouches(second, alone)
	s.vouches(first, one)
}

// A token over a tree that is not the beginning of this one vouches for nothing, whatever its size.
func TestIndependenceOfAnotherTree(t *testing.T) {
	alpha := stamptest.New(t, "alpha")
	other, s := open(t, options{}), open(t, options{})
	signer, err := transparency.NewSigner(evidence.LogName(s.Installation.Issuer), evidence.GenerateSigner())
	check(t, err)
	for _, s := range []*service{other, s} {
		keys := *s.keys.Load()
		keys.Trusted = s.trusting([]*transparency.Signer{signer}, alpha)
		s.keys.Store(&keys)
	}
	id := s.registered("a", 1, "two")
	s.publish(signer, nil)
	for i := range 3 {
		other.registered("a", 1+i, "one")
	}
	other.publish(signer, nil, alpha)
	var size, newest int64
	var at time.Time
	var note string
	var token []byte
	check(t, other.Pool.QueryRow(context.Background(),
		`SELECT tree_size, gen_time, checkpoint, token FROM log_timestamps ORDER BY tree_size DESC LIMIT 1`).
		Scan(&size, &at, &note, &token))
	_, err = s.Pool.Exec(context.Background(), `INSERT INTO log_timestamps
		(tree_size, authority, gen_time, checkpoint, token) VALUES ($1, 'alpha', $2, $3, $4)`, size, at, note, token)
	check(t, err)
	for _, larger := range []bool{true, false} {
		if !larger {
			for i := range 3 {
				s.registered("b", 1+i, "two")
			}
			s.publish(signer, nil)
		}
		check(t, s.Pool.QueryRow(context.Background(), `SELECT size FROM transparency_checkpoint`).Scan(&newest))
		if size > newest != larger {
			t.Fatalf("the token is of %d leaves, and this log has %d", size, newest)
		}
		s.vouches(id, alone)
		v := s.independence("published", func(v wire.Independence) bool {
			return v.State == wire.LogPublished && v.Checkpoint.TreeSize == newest
		})
		if v.TimestampAuthorities[0].Stamp != nil {
			t.Errorf("a token over another tree: %+v", v.TimestampAuthorities[0].Stamp)
		}
		if page := string(s.page("/en/trust").body); !strings.Contains(page, "Only this service vouches for its newest") {
			t.Error("the page counts a token over another tree")
		}
		if _, e := s.stamped(id, ""); e.Inclusion == nil || e.Timestamps != nil {
			t.Errorf("evidence with a token over another tree: %+v", e)
		}
	}
}

// If the tree cannot be read, the page of a record is as fast as before and says nothing, and the page of trust says so.
func TestIndependenceWithoutTree(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) {
		c.ProofTimeout = 300 * time.Millisecond
	}})
	id := s.registered("a", 1, "one")
	s.trust(s.integrate())
	s.vouches(id, alone)
	conn, err := pgx.Connect(context.Background(), s.URL)
	check(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), "BEGIN")
	check(t, err)
	_, err = conn.Exec(context.Background(),
		"LOCK TABLE public.transparency_runs, public.transparency_checkpoint IN ACCESS EXCLUSIVE MODE")
	check(t, err)
	s.eventually("the page says nothing", func() bool { return s.vouched(id) == "" })
	began := time.Now()
	for range 20 {
		if got := s.vouched(id); got != "" {
			t.Errorf("while the tree is locked: %q", got)
		}
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("20 pages took %s", took)
	}
	var view wire.Independence
	s.eventually("the document says so", func() bool {
		a := s.public(independence)
		check(t, json.Unmarshal(a.body, &view))
		return a.header.Get("Cache-Control") == "no-store"
	})
	if view.State != wire.LogUnavailable || view.Checkpoint != nil || len(view.SigningKeys) == 0 {
		t.Errorf("while the tree is locked: %+v", view)
	}
	page := s.page("/en/trust")
	if page.status != http.StatusOK || page.header.Get("Cache-Control") != "no-store" ||
		!strings.Contains(string(page.body), "cannot be read at the moment") ||
		strings.Contains(string(page.body), "No witness is configured") {
		t.Errorf("the page: %d %v", page.status, page.header)
	}
	_, err = conn.Exec(context.Background(), "ROLLBACK")
	check(t, err)
	s.skew.Add(int64(time.Minute))
	s.vouches(id, alone)
	// Each answer has its own time, so no tag would ever be found again.
	if a := s.public(independence); a.header.Get("Cache-Control") != "public, max-age=10" || a.header.Get("ETag") != "" {
		t.Errorf("headers: %v", a.header)
	}
}

// trust adds log keys to the trusted keys of the service.
func (s *service) trust(signers ...*transparency.Signer) {
	s.t.Helper()
	keys := *s.keys.Load()
	keys.Trusted = s.trusting(signers)
	s.keys.Store(&keys)
}

// A service without a log says so.
func TestIndependenceWithoutLog(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.Transparency = nil }})
	if got := s.vouched(s.registered("a", 1, "one")); got != alone {
		t.Errorf("the page of a record: %q", got)
	}
	if v := s.independence("off", func(wire.Independence) bool { return true }); v.State != wire.LogOff ||
		v.Checkpoint != nil || len(v.SigningKeys) == 0 {
		t.Errorf("%+v", v)
	}
	if page := string(s.page("/en/trust").body); !strings.Contains(page, "keeps no transparency log") {
		t.Error(page)
	}
}
