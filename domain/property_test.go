package domain

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"integrityledger/domain/evidence"
)

// The naive model implements the specification of versions in the simplest way, without derived state.

type naiveVersion struct {
	content string
	revoked bool
}

type naiveModel struct {
	documents   map[string]map[int32]*naiveVersion
	reserved    map[string]time.Time // expiry of the reservation of an unregistered version
	released    map[string]bool      // of these, released since it was last reserved
	used        int
	limit       int
	backfill    int // versions that are charged first
	unfinalized int // maximum number of versions in reserved
	closed      bool
	feed        []string
}

func (m *naiveModel) reserve(
	ref string, registered bool, now time.Time,
) (code Code, status ReservationStatus, replayed bool) {
	expires, known := m.reserved[ref]
	switch {
	case registered:
		return "", ReservationFinalized, true
	case m.closed && m.released[ref]:
		return "", ReservationReleased, true
	case m.closed && known && expires.After(now):
		return "", ReservationPending, true
	case m.closed && known:
		return "", ReservationExpired, true
	case m.closed:
		return CompanyClosed, "", false
	case !known && len(m.reserved) == m.unfinalized:
		return UnfinalizedIdentityLimit, "", false
	}
	m.reserved[ref] = now.Add(7 * 24 * time.Hour)
	delete(m.released, ref)
	return "", ReservationPending, known
}

func (m *naiveModel) release(
	ref string, registered bool, now time.Time,
) (code Code, status ReservationStatus, replayed bool) {
	expires, known := m.reserved[ref]
	switch {
	case registered:
		return InvalidState, "", false
	case !known:
		return NotFound, "", false
	case m.released[ref]:
		return "", ReservationReleased, true
	case !expires.After(now):
		return "", ReservationExpired, true
	}
	m.reserved[ref], m.released[ref] = now, true
	return "", ReservationReleased, false
}

func (m *naiveModel) highest(document string) int32 {
	highest := int32(0)
	for v := range m.documents[document] {
		highest = max(highest, v)
	}
	return highest
}

func (m *naiveModel) status(document string, version int32) Status {
	switch {
	case m.documents[document][version].revoked:
		return StatusRevoked
	case version == m.highest(document):
		return StatusCurrent
	default:
		return StatusSuperseded
	}
}

func (m *naiveModel) register(document string, version int32, content, named string) (code Code, replayed bool) {
	ref := fmt.Sprintf("%s %d", document, version)
	if known := m.documents[document][version]; known != nil {
		if known.content != content {
			return VersionConflict, false
		}
		return "", true
	}
	if _, reserved := m.reserved[ref]; m.closed && !reserved {
		return CompanyClosed, false
	}
	if named != "" && named != ref {
		return ReservationMismatch, false
	}
	if m.backfill == 0 && m.used == m.limit {
		return RegistrationQuotaExhausted, false
	}
	former := m.highest(document)
	if m.documents[document] == nil {
		m.documents[document] = map[int32]*naiveVersion{}
	}
	m.documents[document][version] = &naiveVersion{content: content}
	if m.backfill > 0 {
		m.backfill--
	} else {
		m.used++
	}
	delete(m.reserved, ref)
	m.feed = append(m.feed, fmt.Sprintf("registered %s %d", document, version))
	if former > 0 && former < version && !m.documents[document][former].revoked {
		m.feed = append(m.feed, fmt.Sprintf("superseded %s %d", document, former))
	}
	return "", false
}

func (m *naiveModel) revoke(document string, version int32) (code Code, replayed bool) {
	known := m.documents[document][version]
	if known == nil {
		return RecordNotFound, false
	}
	if known.revoked {
		return "", true
	}
	known.revoked = true
	m.feed = append(m.feed, fmt.Sprintf("revoked %s %d", document, version))
	return "", false
}

// world is a real State with the events it has seen.
type world struct {
	t         failer
	state     *State
	registrar Registrar
	origin    Origin
	key       KeyID
	limits    KeyLimits
	now       time.Time
	events    []Event
}

// failer is a test, of rapid or not.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func (w *world) execute(c Command) Code {
	drafts, err := w.state.Decide(c, 0, w.now)
	var refusal *Error
	if errors.As(err, &refusal) {
		if drafts != nil {
			w.t.Fatalf("a refusal (%s) came with %d events", refusal.Code, len(drafts))
		}
		return refusal.Code
	}
	if err != nil {
		w.t.Fatal(err)
	}
	events, err := w.state.Append(c.CommandOrigin(), w.now, drafts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.events = append(w.events, events...)
	return ""
}

func newWorld(t failer, signer *evidence.Signer, limit int64) *world {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	w := &world{t: t, state: NewState(Plans{"gratis": {PerMinute: 1, VersionsPerMonth: &limit}}), now: now}
	w.state.Follow(BackfillAllowances)
	w.registrar = Registrar{Issuer: "https://ledger.example", Secret: LedgerSecret("secret"), Signer: signer}
	organization := NewOrganizationID(now, 3)
	w.origin = Origin{Organization: organization, Actor: OperatorActor, RequestID: "r"}
	w.execute(&CreateOrganization{Origin: w.origin, Name: "Example", Plan: "gratis"})
	w.execute(&AddMember{Origin: w.origin, Email: "owner@example.com", Role: Owner})
	key, _ := NewCreateKey(
		CreateKey{Origin: w.origin, Email: "owner@example.com", Scopes: Scopes(), Lifetime: DefaultKeyLifetime}, now,
	)
	w.execute(key)
	company := &CreateCompany{Origin: w.origin, Reference: "company-1"}
	w.execute(company)
	w.execute(&SetAccess{Origin: w.origin, Company: company.Outcome.ID, Key: key.Outcome.ID, Enabled: true})
	w.key = key.Outcome.ID
	return w
}

func (w *world) reserve(document string, version int32) (*Reserve, Code) {
	c := &Reserve{
		Origin: w.origin, Key: w.key, Limits: w.limits, Version: VersionReference{"company-1", "billing", document, version},
		PublicID: NewPublicID(w.registrar.Secret, w.origin.Organization.Shard()),
	}
	return c, w.execute(c)
}

func (w *world) register(document string, version int32, content string, reservation *PublicID) (*Register, Code) {
	d := Declaration{
		VersionReference: VersionReference{"company-1", "billing", document, version},
		SHA256:           sha256.Sum256([]byte(content)), MimeType: "application/pdf", GeneratedAt: "2026-11-20T09:00:00Z",
		ReservationID: reservation,
	}
	c := w.registrar.PrepareUnsigned(w.origin, w.key, w.limits, d, w.now) // Decide signs
	if version%2 == 1 {
		c = must(w.registrar.Prepare(w.origin, w.key, w.limits, d, w.now))
	}
	return c, w.execute(c)
}

func testSigner(t testing.TB) *evidence.Signer {
	t.Helper()
	signer := evidence.GenerateSigner()
	return signer
}

// TestDecideAgainstNaiveModel runs random interleavings of reservations, releases, versions, replays, conflicts,
// revocations and late lower versions, days apart or seconds; answers, statuses, usage and feed must be the model's,
// every version keeps one public id through its life, and a replay of the events must give the same state.
func TestDecideAgainstNaiveModel(t *testing.T) {
	signer := testSigner(t)
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 12).Draw(t, "limit")
		unfinalized := rapid.Int32Range(1, 5).Draw(t, "unfinalized")
		model := &naiveModel{
			documents: map[string]map[int32]*naiveVersion{}, reserved: map[string]time.Time{}, released: map[string]bool{},
			limit: limit, unfinalized: int(unfinalized),
		}
		w := newWorld(t, signer, int64(limit))
		w.execute(&ChangeLimits{Origin: w.origin, Unfinalized: &unfinalized})
		publicIDs := map[string]PublicID{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			document := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "document")
			version := rapid.Int32Range(1, 6).Draw(t, "version")
			ref := fmt.Sprintf("%s %d", document, version)
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Second, 17 * time.Hour}).Draw(t, "wait"))
			kind := rapid.IntRange(0, 8).Draw(t, "kind")
			if kind == 8 {
				model.backfill = rapid.IntRange(0, 3).Draw(t, "backfill")
				if code := w.execute(&ChangeBackfill{Origin: w.origin, Versions: int64(model.backfill)}); code != "" {
					t.Fatalf("backfill: %q", code)
				}
				continue
			}
			if kind == 6 {
				stepStatus(t, w, model, rapid.SampledFrom(CompanyStatuses()).Draw(t, "status"))
				continue
			}
			if kind == 7 {
				c := &ReleaseReservation{Origin: w.origin, Key: w.key, PublicID: publicIDs[ref]}
				code := w.execute(c)
				want, status, replayed := model.release(ref, model.documents[document][version] != nil, w.now)
				if code != want || c.Replayed != replayed || c.Outcome.Status != status ||
					code == "" && !c.Outcome.ExpiresAt.Equal(model.reserved[ref]) {
					t.Fatalf("release %s: %q %+v replayed %t, want %q %s %t", ref, code, c.Outcome, c.Replayed, want, status, replayed)
				}
				continue
			}
			if kind <= 1 {
				stepReserve(t, w, model, publicIDs, document, version)
				continue
			}
			if kind == 2 {
				c := &Revoke{Origin: w.origin, Key: w.key, PublicID: publicIDs[ref], Reason: "reason"}
				code := w.execute(c)
				want, replayed := model.revoke(document, version)
				if code != want || c.Replayed != replayed || code == "" && c.Outcome.Status != StatusRevoked {
					t.Fatalf("revoke %s: %q replayed %t, want %q %t", ref, code, c.Replayed, want, replayed)
				}
				continue
			}
			content := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "content")
			named, reservation := "", (*PublicID)(nil)
			if len(publicIDs) > 0 && rapid.Bool().Draw(t, "names a reservation") {
				named = rapid.SampledFrom(slices.Sorted(maps.Keys(publicIDs))).Draw(t, "named")
				id := publicIDs[named]
				reservation = &id
			}
			c, code := w.register(document, version, content, reservation)
			want, replayed := model.register(document, version, content, named)
			if want == RegistrationQuotaExhausted && limit == 0 {
				want = PlanRequired
			}
			if code != want || code == "" && c.Replayed != replayed {
				t.Fatalf("register %s %s: %q replayed %t, want %q %t", ref, content, code, c.Replayed, want, replayed)
			}
			if code == "" {
				if status := model.status(document, version); c.Outcome.Status != status || c.Usage.Used != int64(model.used) ||
					c.BackfillLeft != int64(model.backfill) {
					t.Fatalf("register %s: status %s used %d and %d left, want %s %d %d", ref, c.Outcome.Status, c.Usage.Used,
						c.BackfillLeft, status, model.used, model.backfill)
				}
				samePublicID(t, w, publicIDs, ref, c.Outcome.PublicID)
			}
		}
		checkWorld(t, w, model, publicIDs)
	})
}

func stepStatus(t *rapid.T, w *world, model *naiveModel, status CompanyStatus) {
	before, changes := len(w.events), model.closed != (status == CompanyClosedStatus)
	c := &SetCompanyStatus{
		Origin: w.origin, Company: w.state.CompanyByReference(w.origin.Organization, "company-1").ID, Status: status,
	}
	if code := w.execute(c); code != "" || c.Outcome.Status() != status || (len(w.events) > before) != changes {
		t.Fatalf("%s: %q, %+v, %d events, want some: %t", status, code, c.Outcome, len(w.events)-before, changes)
	}
	model.closed = status == CompanyClosedStatus
}

func stepReserve(
	t *rapid.T, w *world, model *naiveModel, publicIDs map[string]PublicID, document string, version int32,
) {
	ref := fmt.Sprintf("%s %d", document, version)
	c, code := w.reserve(document, version)
	want, status, replayed := model.reserve(ref, model.documents[document][version] != nil, w.now)
	if code != want {
		t.Fatalf("reserve %s: %q, want %q", ref, code, want)
	}
	if code != "" {
		return
	}
	got := c.Outcome
	if got.Status != status || c.Replayed != replayed ||
		status == ReservationPending && !got.ExpiresAt.Equal(model.reserved[ref]) {
		t.Fatalf("reserve %s: %+v, want %s, replayed %t", ref, c.Outcome, status, replayed)
	}
	samePublicID(t, w, publicIDs, ref, got.PublicID)
}

func samePublicID(t *rapid.T, w *world, publicIDs map[string]PublicID, ref string, got PublicID) {
	if known, ok := publicIDs[ref]; ok && known != got {
		t.Fatalf("%s: the public id was %s and is %s", ref, known, got)
	}
	if got.Shard(w.registrar.Secret) != w.origin.Organization.Shard() {
		t.Fatalf("%s: the public id leads to shard %d", ref, got.Shard(w.registrar.Secret))
	}
	publicIDs[ref] = got
}

func checkWorld(t *rapid.T, w *world, model *naiveModel, publicIDs map[string]PublicID) {
	var feed []string
	replayed := NewState(Plans{})
	for i := range w.events {
		e := &w.events[i]
		body, err := DecodeBody(e.Type, e.V, e.Data)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		stored := *e
		stored.Body, stored.Texts = body, nil
		if LeafHash(stored.Leaf()) != e.Hash {
			t.Fatalf("event %d: the hash is not that of the stored members", i)
		}
		if b, ok := body.(*RecordRegisteredBody); ok &&
			b.OpensDocument() != (replayed.Document(e.Company, b.Source, b.DocumentReference) == nil) {
			t.Fatalf("event %d opens a document: %t", i, b.OpensDocument())
		}
		if err := replayed.Apply(&stored); err != nil {
			t.Fatal(err)
		}
		switch b := body.(type) {
		case *RecordRegisteredBody:
			if _, finding := evidence.VerifyRecord(
				trusting(t, w.registrar.Signer), b.KeyID, b.Payload, b.Signature,
			); finding != evidence.Valid || e.Subject != b.Record.PublicID {
				t.Fatalf("event %d: signature %s, subject %s", i, finding, e.Subject)
			}
			feed = append(feed, fmt.Sprintf("registered %s %d", b.DocumentReference, b.Version))
		case *RecordSupersededBody:
			feed = append(feed, fmt.Sprintf("superseded %s %d", documentOf(replayed, b.DocumentID, b.Version), b.Version))
		case *RecordRevokedBody:
			feed = append(feed, fmt.Sprintf("revoked %s %d", documentOf(replayed, b.DocumentID, b.Version), b.Version))
		}
	}
	if fmt.Sprint(feed) != fmt.Sprint(model.feed) {
		t.Fatalf("feed %v, want %v", feed, model.feed)
	}
	for document, versions := range model.documents {
		for version := range versions {
			known := replayed.public[publicIDs[fmt.Sprintf("%s %d", document, version)]]
			if known == nil || known.Status() != model.status(document, version) {
				t.Fatalf("replayed state of %s %d: %+v, want %s", document, version, known, model.status(document, version))
			}
		}
	}
	if company := replayed.CompanyByReference(w.origin.Organization, "company-1"); (company.Status() ==
		CompanyClosedStatus) != model.closed {
		t.Fatalf("replayed company: %+v, want closed %t", company, model.closed)
	}
	o := replayed.Organization(w.origin.Organization)
	if o.Unfinalized != len(model.reserved) || len(replayed.pending[o.ID]) != len(model.reserved) {
		t.Fatalf("replayed state has %d unfinalized versions, want %d", o.Unfinalized, len(model.reserved))
	}
	for ref, expires := range model.reserved {
		known := replayed.public[publicIDs[ref]]
		want := ReservationPending
		switch {
		case model.released[ref]:
			want = ReservationReleased
		case !expires.After(w.now):
			want = ReservationExpired
		}
		if known == nil || known.Registered() || known.Reservation(w.now).Status != want {
			t.Fatalf("replayed reservation of %s: %+v, want %s", ref, known, want)
		}
	}
	if used := replayed.Used(UsageKey{w.origin.Organization, PeriodOf(w.now), CompanyID{}}); used != int64(model.used) ||
		replayed.Backfill(o.ID).Left() != int64(model.backfill) {
		t.Fatalf("replayed usage %d, backfill %+v, want %d and %d left", used, replayed.Backfill(o.ID), model.used,
			model.backfill)
	}
}

func trusting(t *rapid.T, signer *evidence.Signer) *evidence.TrustedKeys {
	trusted, err := evidence.NewTrustedKeys(
		[]evidence.TrustedKey{{PublicKey: signer.Key(), Status: evidence.KeyActive, Since: "2026-01-01T00:00:00Z"}}, nil,
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	return trusted
}

func documentOf(s *State, id DocumentID, version int32) string {
	return s.Version(id, version).Document.Reference
}

// naiveKey and naiveMember are the model's key and member.
type naiveKey struct {
	id      KeyID
	member  int
	scopes  []Scope
	expires time.Time
	revoked bool
}

type naiveMember struct {
	id     MemberID
	role   Role
	status MemberStatus
}

// mayAct implements the specification for an act that needs a scope.
func mayAct(k naiveKey, m naiveMember, scope Scope, now time.Time) Code {
	switch {
	case k.revoked || !now.Before(k.expires) || m.status != MemberActive:
		return InvalidKey
	case scope != "" && !slices.Contains(k.scopes, scope):
		return MissingScope
	case scope != "" && !slices.Contains(RolesFor(scope), m.role):
		return RoleRequired
	}
	return ""
}

// TestActorsAgainstNaiveModel ends, shortens and demotes keys and members between their acts, at any distance in time:
// each act has the model's answer, and the log contains no event by a key after its revocation or expiry, or by a
// member who is not active.
func TestActorsAgainstNaiveModel(t *testing.T) {
	signer := testSigner(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, signer, 1000)
		operator := w.origin
		members, keys := []naiveMember{}, []naiveKey{}
		for i := range 2 {
			add := &AddMember{Origin: operator, Email: fmt.Sprintf("%d@example.com", i), Role: Admin}
			w.execute(add)
			members = append(members, naiveMember{add.Outcome.ID, Admin, MemberActive})
			for range 2 {
				scopes := rapid.SampledFrom([][]Scope{{IntegrityRead}, {IntegrityAdmin, IntegrityRead}}).Draw(t, "scopes")
				lifetime := rapid.SampledFrom([]time.Duration{MinKeyLifetime, DefaultKeyLifetime}).Draw(t, "lifetime")
				create, _ := NewCreateKey(
					CreateKey{Origin: operator, Member: add.Outcome.ID, Scopes: scopes, Lifetime: lifetime}, w.now,
				)
				w.execute(create)
				keys = append(keys, naiveKey{create.Outcome.ID, i, scopes, create.Outcome.ExpiresAt, false})
			}
		}
		changed := func(id MemberID, role *Role, status *MemberStatus) {
			c := &ChangeMember{Origin: operator, Role: role, Status: status}
			c.Member = id
			w.execute(c)
		}
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, 50 * time.Minute}).Draw(t, "wait"))
			k := &keys[rapid.IntRange(0, len(keys)-1).Draw(t, "key")]
			m := &members[k.member]
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				w.execute(&RevokeKey{Origin: operator, Key: k.id})
				k.revoked = true
			case 1:
				overlap := rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "overlap")
				c, _ := NewRotateKey(RotateKey{Origin: operator, Key: k.id, Lifetime: DefaultKeyLifetime, Overlap: overlap}, w.now)
				if w.execute(c) == "" {
					k.revoked = k.revoked || overlap == 0
					if end := w.now.Add(overlap); end.Before(k.expires) && overlap > 0 {
						k.expires = end
					}
				}
			case 2:
				if m.status == MemberEnded {
					continue
				}
				m.status = rapid.SampledFrom([]MemberStatus{MemberActive, MemberDisabled, MemberEnded}).Draw(t, "status")
				changed(m.id, nil, &m.status)
			case 3:
				if m.status == MemberEnded {
					continue
				}
				m.role = rapid.SampledFrom(Roles()).Draw(t, "role")
				changed(m.id, &m.role, nil)
			default:
				scope := rapid.SampledFrom([]Scope{"", IntegrityAdmin, IntegrityRead}).Draw(t, "scope")
				origin := Origin{Organization: operator.Organization, Actor: KeyActor(k.id), RequestID: "r", Scope: scope}
				before := len(w.events)
				c := &CreateCompany{Origin: origin, Reference: fmt.Sprintf("company-%d", step+2)}
				want := mayAct(*k, *m, scope, w.now)
				if code := w.execute(c); code != want || (len(w.events) > before) != (want == "") {
					t.Fatalf("%+v of %+v with scope %q: %q and %d events, want %q", *k, *m, scope, code, len(w.events)-before, want)
				}
			}
		}
		checkActors(t, w.events)
	})
}

// checkActors checks the log in the simplest way.
func checkActors(t *rapid.T, events []Event) {
	member, expires := map[KeyID]MemberID{}, map[KeyID]time.Time{}
	revoked, inactive := map[KeyID]bool{}, map[MemberID]bool{}
	for i, e := range events {
		if key := e.Actor.Key(); e.Actor != OperatorActor && (revoked[key] || !e.OccurredAt.Before(expires[key]) ||
			inactive[member[key]]) {
			t.Fatalf("event %d, %s, is by %s, which has ended", i, e.Type, e.Actor)
		}
		switch b := e.Body.(type) {
		case *KeyCreatedBody:
			member[b.KeyID], expires[b.KeyID] = b.MemberID, b.ExpiresAt
		case *KeyExpiryChangedBody:
			expires[b.KeyID] = b.ExpiresAt
		case *KeyRevokedBody:
			revoked[b.KeyID] = true
		case *MemberChangedBody:
			inactive[b.MemberID] = b.Status != MemberActive
		}
	}
}
