package handlers_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/handlers"
)

// integrate runs the service's transparency log until everything is published and stamped by the authorities. It
// returns the log key, which is new each time.
func (s *service) integrate(authorities ...*stamptest.Authority) *transparency.Signer {
	s.t.Helper()
	signer, err := transparency.NewSigner(evidence.LogName(s.Installation.Issuer), evidence.GenerateSigner())
	check(s.t, err)
	s.publish(signer, nil, authorities...)
	return signer
}

// publish runs the service's transparency log under a key until everything is published, stamped by the authorities
// and cosigned by the witnesses that cosign.
func (s *service) publish(
	signer *transparency.Signer, witnesses map[*transparency.Witness]bool, authorities ...*stamptest.Authority,
) {
	s.t.Helper()
	pool, err := cluster.At(s.URL).ConsumerPool(context.Background(), 4)
	check(s.t, err)
	defer pool.Close()
	config := transparency.Config{
		Pool: pool, Signer: func() *transparency.Signer { return signer }, Now: s.Now, Log: slog.New(slog.DiscardHandler),
		Interval: time.Millisecond,
		Stamp:    10 * time.Millisecond, Pinned: func(name string) (evidence.Authority, bool) {
			i := slices.IndexFunc(authorities, func(a *stamptest.Authority) bool { return a.Name == name })
			return authorities[i].Pinned(), true
		},
	}
	config.Witnesses = slices.Collect(maps.Keys(witnesses))
	for _, a := range authorities {
		one, err := transparency.NewTimestampAuthority(a.Name, a.URL)
		check(s.t, err)
		config.Authorities = append(config.Authorities, one)
	}
	log, err := transparency.New(config)
	check(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		log.Run(ctx)
	}()
	s.eventually("everything is published", func() bool {
		status, err := transparency.ReadStatus(context.Background(), s.Pool)
		check(s.t, err)
		stamps, err := transparency.ReadStamps(context.Background(), s.Pool, nil)
		check(s.t, err)
		log, err := (&transparency.Reader{Pool: s.Pool}).Vouched(context.Background())
		check(s.t, err)
		for w, cosigns := range witnesses {
			if _, refused := log.Refused[w.Key().VerifierKey]; cosigns && status.Cosigned[w.Name()] != status.Published ||
				!cosigns && !refused {
				return false
			}
		}
		return status.Published == status.Events && !slices.ContainsFunc(authorities, func(a *stamptest.Authority) bool {
			return !slices.ContainsFunc(stamps, func(of transparency.StampState) bool {
				return of.Authority == a.Name && of.TreeSize == status.Published
			})
		})
	})
	cancel()
	<-ended
}

// proven returns evidence with its proof of inclusion, which may be missing if the read takes too long.
func (s *service) proven(id string) (export evidence.Envelope) {
	s.t.Helper()
	s.eventually("evidence has its proof", func() bool {
		export = evidence.Envelope{}
		check(s.t, json.Unmarshal(s.get("/api/v1/integrity/records/"+id+"/evidence").is200().body, &export))
		if export.Inclusion == nil {
			s.skew.Add(int64(time.Minute)) // the proof is not requested again at once
		}
		return export.Inclusion != nil
	})
	return export
}

// Public data proves that a record is in the tree, and reveals nothing else.
func TestTransparency(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	const checkpoint, tiles = "/api/public/log/checkpoint", "/api/public/log/tile/"
	inclusion := "/api/v1/integrity/records/" + id + "/inclusion"
	if e := s.get(inclusion).is(http.StatusConflict); e["code"] != string(domain.InvalidState) {
		t.Errorf("before the tree was begun: %v", e)
	}
	if e := s.public(checkpoint).is(http.StatusServiceUnavailable); e["code"] != string(domain.TemporarilyUnavailable) {
		t.Errorf("before the tree was begun: %v", e)
	}
	before := s.get("/api/v1/integrity/records/" + id + "/evidence")
	var without evidence.Envelope
	check(t, json.Unmarshal(before.body, &without))
	if before.status != http.StatusOK || without.Inclusion != nil {
		t.Errorf("evidence before the tree was begun: %d %s", before.status, before.body)
	}
	signer := s.integrate()

	a := s.public(checkpoint)
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		a.header.Get("Cache-Control") != "no-store" ||
		a.header.Get("Access-Control-Allow-Origin") != "*" || a.header.Get("RateLimit") == "" {
		t.Errorf("checkpoint: %d %v", a.status, a.header)
	}
	key, err := note.NewVerifier(signer.VerifierKey)
	check(t, err)
	opened, err := note.Open(a.body, note.VerifierList(key))
	check(t, err)
	lines := strings.Split(opened.Text, "\n")
	root, err := tlog.ParseHash(lines[2])
	check(t, err)
	if lines[0] != "ledger.example/log" {
		t.Errorf("origin %s", lines[0])
	}

	var answered struct{ Data evidence.Inclusion }
	check(t, json.Unmarshal(s.get(inclusion).body, &answered))
	equal(t, "inclusion in the evidence", s.proven(id).Inclusion, answered.Data)
	var proof tlog.RecordProof
	for _, text := range answered.Data.Hashes {
		hash, err := tlog.ParseHash(text)
		check(t, err)
		proof = append(proof, hash)
	}
	check(
		t,
		tlog.CheckRecord(
			proof, answered.Data.TreeSize, root, answered.Data.LeafIndex, domain.LeafHash([]byte(answered.Data.Leaf)),
		),
	)
	if answered.Data.Checkpoint != string(a.body) {
		t.Error("the proof is of another checkpoint")
	}
	for _, secret := range []string{s.org.ID.String(), s.org.Company.Reference, s.org.Company.ID.String(), id} {
		if strings.Contains(answered.Data.Leaf, secret) {
			t.Errorf("the leaf shows %s", secret)
		}
	}

	size := lines[1]
	tile := s.public(tiles + "0/000.p/" + size)
	leafAt := int(answered.Data.LeafIndex) * tlog.HashSize
	if tile.status != http.StatusOK || tile.header.Get("Content-Type") != "application/octet-stream" ||
		tile.header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
		len(tile.body) != int(answered.Data.TreeSize)*tlog.HashSize ||
		tlog.Hash(tile.body[leafAt:leafAt+tlog.HashSize]) != domain.LeafHash([]byte(answered.Data.Leaf)) {
		t.Errorf("tile: %d %v, %d bytes", tile.status, tile.header, len(tile.body))
	}
	for _, path := range []string{checkpoint, tiles + "0/000.p/1"} {
		if head := s.send(http.MethodHead, path, "", nil); head.status != http.StatusOK || len(head.body) != 0 ||
			head.header.Get("Content-Type") == "" {
			t.Errorf("HEAD %s: %d %v", path, head.status, head.header)
		}
	}
	// Entries are never served, in any spelling, and neither are tiles that no checkpoint covers.
	for _, path := range []string{
		"entries/000", "entries/000.p/1", "entries/x001/000", "data/000", "0/000", "0/001", "1/000", "0/0", "8/0/000",
		"0//000", "0/000.p/0",
	} {
		r := s.request(http.MethodGet, tiles+path, "", nil)
		if a := s.plainly(r); a.status != http.StatusNotFound || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
	if e := s.get(
		"/api/v1/integrity/records/" + strings.Repeat("a", 26) + "/inclusion",
	).is(http.StatusNotFound); e["code"] != string(domain.RecordNotFound) {
		t.Errorf("an unknown record: %v", e)
	}
	_, stranger := s.Key(t, s.org, domain.IntegrityRead)
	if e := s.send(http.MethodGet, inclusion, stranger, nil).is(http.StatusNotFound); e["code"] !=
		string(domain.RecordNotFound) {
		t.Errorf("a key without a grant: %v", e)
	}

	// Fill a tile with further events.
	for i := range 26 {
		s.batch(i)
	}
	s.integrate()
	if full := s.public(tiles + "0/000"); full.status != http.StatusOK || len(full.body) != 256*tlog.HashSize {
		t.Errorf("a full tile: %d, %d bytes", full.status, len(full.body))
	}
	if part := s.public(tiles + "0/000.p/" + size); string(part.body) != string(tile.body) {
		t.Error("a partial tile has changed")
	}
}

// batch registers ten versions.
func (s *service) batch(n int) {
	s.t.Helper()
	var commands []domain.Command
	for i := range 10 {
		commands = append(commands, s.Register(s.t, s.org, s.org.Declaration("batch", int32(10*n+i+1), "x")))
	}
	for _, answer := range s.Execute(context.Background(), commands...) {
		check(s.t, answer.Err)
	}
}

func TestTransparencyOff(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.Transparency = nil }})
	id := s.registered("a", 1, "one")
	for _, path := range []string{
		"/api/public/log/checkpoint", "/api/public/log/timestamps", "/api/public/log/tile/0/000",
		"/api/public/log/tile/0/000.p/1", "/api/v1/integrity/records/" + id + "/inclusion",
	} {
		if e := s.get(path).is(http.StatusNotFound); e["code"] != string(domain.NotFound) {
			t.Errorf("%s: %v", path, e)
		}
	}
	if a := s.page("/en/integrity/" + id); contains(a.body, "tlog-proof") {
		t.Error("the page of a record offers a proof that cannot exist")
	}
}

// If the tree's tables are locked, evidence lacks its proof, and nothing else changes.
func TestEvidenceNeverWaitsForTheTree(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.ProofTimeout = 2 * time.Second }})
	id := s.registered("a", 1, "one")
	s.integrate()
	owner, err := pgx.Connect(context.Background(), s.URL)
	check(t, err)
	defer owner.Close(context.Background())
	tx, err := owner.Begin(context.Background())
	check(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(
		context.Background(), "LOCK TABLE public.transparency_runs, public.transparency_checkpoint IN ACCESS EXCLUSIVE MODE",
	)
	check(t, err)
	s.hold()
	for range 3 { // the first request finds out, the others do not ask
		var export evidence.Envelope
		a := s.get("/api/v1/integrity/records/" + id + "/evidence")
		check(t, json.Unmarshal(a.body, &export))
		if a.status != http.StatusOK || export.Inclusion != nil || export.StatusObservation == nil {
			t.Errorf("evidence: %d %s", a.status, a.body)
		}
	}
	if n := strings.Count(s.log.String(), "evidence made without proof"); n != 1 {
		t.Errorf("the tree was asked %d times", n)
	}
	s.registered("b", 1, "two")
	check(t, tx.Rollback(context.Background()))
	s.skew.Add(int64(time.Minute))
	s.proven(id)
}

// An event that was changed has no proof, which no wait brings, and takes the proof of no other record.
func TestChangedEventHasNoProof(t *testing.T) {
	s := open(t, options{})
	changed, other := s.registered("a", 1, "one"), s.registered("b", 1, "two")
	s.trust(s.integrate())
	s.owner(unguard, `UPDATE events SET subject = upper(subject) WHERE subject = '`+changed+`'`)
	s.hold()
	s.public("/api/public/integrity/"+changed+"/tlog-proof").refuses(http.StatusInternalServerError, domain.Internal)
	s.get(integrity+"/records/"+changed+"/tlog-proof?wait=25").refuses(http.StatusInternalServerError, domain.Internal)
	s.get(integrity+"/records/"+changed+"/inclusion").refuses(http.StatusInternalServerError, domain.Internal)
	if a := s.get(integrity + "/records/" + changed + "/evidence"); a.status != http.StatusOK || contains(a.body, "inclusion") {
		t.Errorf("evidence of a changed event: %d %s", a.status, a.body)
	}
	if said := s.vouched(changed); said != "" || s.vouched(other) == "" {
		t.Errorf("of the parties that bind the changed event its page says %q, the other's %q", said, s.vouched(other))
	}
	_, outcomes := s.exported([]string{changed, other}, body{"wait": 25})
	equal(t, "evidence of both", outcomes, []string{string(domain.Internal), "200"})
}
