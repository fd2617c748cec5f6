package handlers_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
)

// blobs is a blob store in memory.
type blobs struct {
	mu     sync.Mutex
	bodies map[string]string
	failed error
	stored func() // called after bytes are stored and before their registration
}

func (b *blobs) has(v string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.bodies[v]
	return ok
}

// retaining is a service whose organization keeps bytes for 30 days.
func retaining(t *testing.T) (*service, *blobs, *queue.Loop) {
	t.Helper()
	store := &blobs{bodies: map[string]string{}}
	s := open(t, options{config: func(c *handlers.Config) {
		c.Keep = func(
			ctx context.Context, o domain.OrganizationID, a domain.ArtifactID, v domain.ArtifactVersionID, content io.ReaderAt,
			size int64,
		) error {
			if err := c.Store.AnnounceContent(ctx, o, a, v, c.Now()); err != nil {
				return err
			}
			text, err := io.ReadAll(io.NewSectionReader(content, 0, size))
			store.mu.Lock()
			store.bodies[v.String()] = string(text)
			store.mu.Unlock()
			if store.stored != nil {
				store.stored()
			}
			return errors.Join(err, store.failed)
		}
	}})
	s.retention(30)
	return s, store, s.eraser(store, s.Ledger.Ledger)
}

func (s *service) eraser(store *blobs, ledger *eventstore.Ledger) *queue.Loop {
	return queue.NewEraser(queue.Eraser{
		Pool: s.Pool, Ledger: ledger, Shards: s.Installation.Shards, Log: slog.New(slog.DiscardHandler),
		Delete: func(_ context.Context, _ domain.OrganizationID, v domain.ArtifactVersionID) error {
			store.mu.Lock()
			defer store.mu.Unlock()
			if store.failed != nil {
				return store.failed
			}
			delete(store.bodies, v.String())
			return nil
		},
	})
}

// If the store hangs, a request waits no longer than its caller would.
func TestKeepingHasAnEnd(t *testing.T) {
	var left time.Duration
	s := open(t, options{config: func(c *handlers.Config) {
		c.Keep = func(
			ctx context.Context, _ domain.OrganizationID, _ domain.ArtifactID, _ domain.ArtifactVersionID, _ io.ReaderAt,
			_ int64,
		) error {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			return domain.Unavailable("The store hangs.")
		}
	}})
	s.retention(30)
	s.upload(
		certificationAction+"/artifacts", s.org.Secret, body{"title": "x"}, "a", "", "a",
	).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	if left <= 0 || left > 25*time.Second {
		t.Errorf("the store has %s", left)
	}
}

func (s *service) retention(days int32) {
	s.t.Helper()
	must(s, &domain.ChangeRetention{Origin: s.org.Operator(), Days: days})
}

// content returns the state of the bytes of an artifact's first version.
func (s *service) content(v workVersion) wire.KeptContent {
	s.t.Helper()
	return read[wire.ArtifactHistory](
		s.get(certificationAction+"/artifacts/"+v.artifact), http.StatusOK).Versions[0].Content
}

// A process whose clock is ahead erases nothing too early.
func TestRetentionByAWrongClock(t *testing.T) {
	s, store, _ := retaining(t)
	kept := s.registeredText("kept", "the bytes")
	eraser := s.eraser(store, s.Process(t, s.URL, func(c *eventstore.Config) {
		c.Clock = eventstore.NewClock(eventstore.ClockConfig{Now: func() time.Time {
			return time.Now().Add(400 * 24 * time.Hour)
		}})
	}))
	if err := eraser.Look(context.Background()); err == nil {
		t.Error("the wrong clock was not told")
	}
	if !store.has(kept.version) {
		t.Error("erased by a clock that is ahead")
	}
}

func TestRetention(t *testing.T) {
	s, store, eraser := retaining(t)
	ctx := context.Background()
	kept := s.registeredText("kept", "the bytes")
	s.retention(0)
	discarded := s.registeredText("discarded", "gone at once")
	s.retention(30)
	check(t, eraser.Look(ctx))
	if store.bodies[kept.version] != "the bytes" || store.has(discarded.version) ||
		s.content(kept).KeptUntil == nil || s.content(discarded).KeptUntil != nil {
		t.Fatalf("kept %v", store.bodies)
	}

	// The retention at the commit applies, not the retention at the upload.
	store.stored = func() { s.retention(0) }
	changed := s.registeredText("changed", "on its way")
	store.stored = nil
	check(t, eraser.Look(ctx))
	if store.has(changed.version) || s.content(changed).KeptUntil != nil {
		t.Errorf("kept against the retention: %v %v", store.bodies, s.content(changed))
	}
	s.retention(30)

	// Bytes without a registration are erased after an hour. A failing store keeps no partial content.
	store.failed = errors.New("the disk is full")
	before := s.sequence()
	s.post(
		certificationAction+"/artifacts", body{"title": "x", "kind": "text", "text": "never"},
	).refuses(http.StatusInternalServerError, domain.Internal)
	if s.sequence() != before || len(store.bodies) != 2 {
		t.Errorf("%d events, kept %v", s.sequence()-before, store.bodies)
	}
	s.skew.Add(int64(2 * time.Hour))
	if err := eraser.Look(ctx); err == nil {
		t.Error("an erasure that failed was not told")
	}
	store.failed = nil
	s.skew.Add(int64(time.Hour))
	check(t, eraser.Look(ctx))
	if len(store.bodies) != 1 || s.sequence() != before {
		t.Errorf("after an hour: %v", store.bodies)
	}

	s.skew.Add(int64(29 * 24 * time.Hour))
	check(t, eraser.Look(ctx))
	if !store.has(kept.version) {
		t.Error("erased a day early")
	}
	s.skew.Add(int64(24 * time.Hour))
	for range 2 {
		check(t, eraser.Look(ctx))
	}
	if store.has(kept.version) || s.content(kept).ErasedAt == nil || s.sequence() != before+1 {
		t.Errorf("when the days are over: %v %v", store.bodies, s.content(kept))
	}
	newest := s.history("limit=1")[0]
	equal(t, "in the history", []any{newest.Action, newest.Actor, newest.Target},
		[]any{"content.erased", wire.AuditActor{Type: "system"}, wire.AuditTarget{Type: "version", ID: kept.version}})
	s.Audit(t)
}

// erase erases a subject like the operator's command, and returns the number of texts.
func (s *service) erase(subject string) int {
	s.t.Helper()
	store := query.New(query.Config{Pool: s.Pool, Public: s.Pool, Installation: s.Installation})
	texts, err := store.TextsOf(context.Background(), s.org.ID, subject)
	check(s.t, err)
	if len(texts) > 0 {
		must(s, &domain.EraseTexts{Origin: s.org.Operator(), Subject: subject, Texts: texts})
	}
	return len(texts)
}

// Erasing an artifact erases the bytes of its versions, except for a version whose registration is still in progress:
// bytes that an answer promises until a day remain until then.
func TestErasedWhileRegistering(t *testing.T) {
	s, store, eraser := retaining(t)
	v := s.registeredText("first", "first bytes")
	store.stored = func() {
		equal(t, "texts erased", s.erase(v.artifact), 1)
		check(t, eraser.Look(context.Background()))
	}
	later := s.laterText(v.artifact, "second", "second bytes")
	if store.has(v.version) || !store.has(later.version) {
		t.Errorf("kept: %v", store.bodies)
	}
	s.skew.Add(int64(31 * 24 * time.Hour))
	check(t, eraser.Look(context.Background()))
	if store.has(later.version) {
		t.Error("the later version's bytes are kept for ever")
	}
}

// Erased texts are gone from every answer, including stored ones, and the history can still be proved.
func TestErasedTexts(t *testing.T) {
	s, store, eraser := retaining(t)
	const secret = "Very personal words"
	v := s.registeredText(secret, "bytes")
	s.reviewed(v, "accepted").is(http.StatusCreated)
	s.send(
		http.MethodPost, certificationAction+"/versions/"+v.version+"/approve", s.org.Secret,
		body{"statement": secret, "acceptResponsibility": true}, idempotencyKey, "k",
	).is(http.StatusCreated)
	id := s.issued(v, "title").PublicID
	s.post(certificationAction+"/certificates/"+id+"/revoke", body{"reason": secret}).is(http.StatusOK)
	plain, plainID := s.certificate("Other", "other")
	once := body{"title": "Once", "kind": "text", "text": "once"}
	s.send(
		http.MethodPost, certificationAction+"/artifacts", s.org.Secret, once, idempotencyKey, "once",
	).is(http.StatusCreated)

	equal(
		t, "texts erased", []int{s.erase(v.artifact), s.erase(v.artifact), s.erase("art_none"), s.erase(plain.artifact)},
		[]int{5, 0, 0, 3},
	)
	check(t, eraser.Look(context.Background()))
	if store.has(v.version) {
		t.Error("kept bytes of an erased artifact stay")
	}
	for _, path := range []string{"/artifacts", "/artifacts/" + v.artifact, "/audit-events?limit=200"} {
		if a := s.get(certificationAction + path); a.status != http.StatusOK || contains(a.body, secret) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	// The stored answers are erased too, and still no request runs twice.
	again := s.send(
		http.MethodPost, certificationAction+"/versions/"+v.version+"/approve", s.org.Secret,
		body{"statement": secret, "acceptResponsibility": true}, idempotencyKey, "k",
	)
	again.refuses(http.StatusConflict, domain.InvalidState)
	before := s.sequence()
	s.send(
		http.MethodPost, certificationAction+"/artifacts", s.org.Secret, once, idempotencyKey, "once",
	).refuses(http.StatusConflict, domain.InvalidState)
	if s.sequence() != before ||
		s.number(
			"SELECT count(*) FROM idempotency_keys WHERE shard = $1 AND organization_id = $2 AND (answer IS NOT NULL OR "+
				"fingerprint <> '')",
		) != 0 {
		t.Error("an erased answer is there, or its request ran again")
	}
	s.skew.Add(int64(25 * time.Hour))
	s.send(
		http.MethodPost, certificationAction+"/artifacts", s.org.Secret, once, idempotencyKey, "once",
	).is(http.StatusCreated)
	equal(t, "a certificate that published the title", s.verified(id, "bytes").Reason, "SIGNATURE_INVALID")
	equal(t, "one that published nothing", s.verified(plainID, "other").Reason, "MATCH")
	var left int64
	check(
		t,
		s.Pool.QueryRow(context.Background(), "SELECT count(*) FROM texts WHERE body LIKE '%personal words%'").Scan(&left),
	)
	if left != 0 {
		t.Errorf("%d texts still hold it", left)
	}
	next := s.laterText(v.artifact, "New", "new")
	s.owner("UPDATE texts SET body = NULL WHERE body = 'New'")
	s.reviewed(next, "accepted").is(http.StatusCreated)
	s.approved(next).is(http.StatusCreated)
	s.certified(next, "title").refuses(http.StatusConflict, domain.InvalidState)
	equal(t, "the organization's name", s.erase(s.org.ID.String()), 1)
	s.certified(next, "organizationName").refuses(http.StatusConflict, domain.InvalidState)
	s.certified(next).is(http.StatusCreated)
	s.Audit(t)
}
