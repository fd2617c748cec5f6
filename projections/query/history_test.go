package query_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

// history is a ledger with an organization whose log spans two ends of months. It has several companies, some of which
// a second key may use, reservations, replays, late lower versions, revocations, and events of other kinds in between.
type history struct {
	*ledgertest.Ledger
	store   *query.Store
	owner   domain.Access // its key may use every company
	partial domain.Access // its key may use some companies
	events  []domain.Event
}

func newHistory(t *testing.T) history {
	t.Helper()
	ctx := context.Background()
	random := rand.New(rand.NewPCG(11, 5))
	var clock atomic.Pointer[time.Time]
	start := time.Date(2100, 1, 30, 22, 0, 0, 0, time.UTC) // later than the ledger, whose time never goes back
	clock.Store(&start)
	now := func() time.Time { return *clock.Load() }
	l := ledgertest.New(t, func(c *eventstore.Config) { c.Clock = ledgertest.Simulated(now) })
	l.Now = now
	o := l.Organization(t, 1, domain.InternalPlan)
	l.Organization(t, 1, domain.InternalPlan) // another organization in the shard's log
	key, _ := l.Key(t, o, domain.IntegrityRead)
	companies := []string{o.Company.Reference}
	for _, reference := range []string{"company-b", "company-c", "company-d"} {
		company := l.Company(t, o, reference)
		l.Grant(t, o, o.Key.ID, company.ID, true)
		l.Grant(t, o, key.ID, company.ID, reference != "company-c")
		companies = append(companies, reference)
	}
	var records []domain.PublicID
	for round := range 30 {
		later := now().Add(time.Duration(random.IntN(60)) * time.Hour)
		if month := domain.PeriodOf(later).Start(); now().Before(month) {
			later = month // its first moment
		}
		clock.Store(&later)
		var group []domain.Command
		if round == 3 || round == 9 || round == 20 {
			group = append(group, &domain.ChangeBackfill{Origin: o.Operator(), Versions: 5})
		}
		for range 1 + random.IntN(6) {
			d := o.Declaration([]string{"a", "b", "c"}[random.IntN(3)], int32(1+random.IntN(25)), "x")
			d.CompanyReference = companies[random.IntN(len(companies))]
			switch {
			case random.IntN(6) == 0 && len(records) > 0:
				group = append(group, l.Revoke(t, o, records[random.IntN(len(records))]))
			case random.IntN(6) == 0:
				group = append(group, l.Reserve(t, o, d.DocumentReference, d.Version))
			default:
				group = append(group, l.Register(t, o, d))
			}
		}
		for i, answer := range l.Execute(ctx, group...) {
			if answer.Err != nil {
				t.Fatal(answer.Err)
			}
			if c, ok := group[i].(*domain.Register); ok {
				records = append(records, c.Outcome.PublicID)
			}
		}
	}
	h := history{Ledger: l, store: l.Store(t)}
	h.owner = domain.Access{Organization: o.ID, Key: o.Key.ID}
	h.partial = domain.Access{Organization: o.ID, Key: key.ID}
	for _, e := range l.Events(t, 1) {
		if e.Organization == o.ID {
			h.events = append(h.events, e)
		}
	}
	return h
}

// TestFilteredHistoryAgreesWithTheLog compares pages, followed to their end, with the log.
func TestFilteredHistoryAgreesWithTheLog(t *testing.T) {
	h := newHistory(t)
	questions := []query.AuditQuestion{{}}
	seen := map[string]bool{}
	for _, e := range h.events {
		if !seen[string(e.Type)] {
			seen[string(e.Type)] = true
			questions = append(
				questions, query.AuditQuestion{Action: e.Type}, query.AuditQuestion{Action: e.Type, Target: e.Subject},
			)
		}
		if !seen[e.Subject] && (e.Type != domain.RecordRegistered || len(seen)%8 == 0) {
			seen[e.Subject] = true
			questions = append(questions, query.AuditQuestion{Target: e.Subject})
		}
	}
	questions = append(
		questions, query.AuditQuestion{Action: domain.CertificateIssued},
		query.AuditQuestion{Target: "org_00000000000000000000000000"},
	)
	n := int64(len(h.events))
	for _, q := range questions {
		for _, bounds := range [][2]int64{{0, 0}, {n / 3, n - 4}, {n, 0}, {0, 1}} {
			for _, forward := range []bool{false, true} {
				q.After, q.Before, q.Forward = bounds[0], bounds[1], forward
				h.followed(t, q, 9)
			}
		}
		q.After, q.Before, q.Limit = 0, 0, 5
		for _, q.Forward = range []bool{false, true} {
			for _, q.Offset = range []int{2, 9} {
				page, err := h.store.AuditEvents(context.Background(), h.owner, q)
				want := h.matching(q)
				want = want[min(q.Offset, len(want)):]
				if got := sequences(page.Events); err != nil || !slices.Equal(got, want[:min(5, len(want))]) || page.Total != n {
					t.Errorf("%+v: %v of %d, %v, want %v", q, got, page.Total, err, want)
				}
			}
		}
	}
	h.Audit(t)
}

// matching returns the sequences that a question selects, in its order.
func (h history) matching(q query.AuditQuestion) []int64 {
	var found []int64
	for _, e := range h.events {
		if (q.Action == "" || q.Action == e.Type) && (q.Target == "" ||
			q.Target == e.Subject) && e.Sequence > q.After && (q.Before == 0 || e.Sequence < q.Before) {
			found = append(found, e.Sequence)
		}
	}
	if !q.Forward {
		slices.Reverse(found)
	}
	return found
}

func sequences(events []query.AuditEvent) []int64 {
	var list []int64
	for _, e := range events {
		list = append(list, e.Sequence)
	}
	return list
}

// followed reads all pages of a question.
func (h history) followed(t *testing.T, q query.AuditQuestion, limit int) {
	t.Helper()
	want := h.matching(q)
	q.Limit = limit
	var got []int64
	for more := true; more; {
		page, err := h.store.AuditEvents(context.Background(), h.owner, q)
		if err != nil {
			t.Fatal(err)
		}
		got, more = append(got, sequences(page.Events)...), page.More
		if q.Forward {
			q.After = page.Cursor
		} else {
			q.Before = page.Cursor
		}
		if len(got) > len(want) {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v: %v, want %v", q, got, want)
	}
}

// TestHistorySearchIsBounded: a page that searches registrations among other events searches a bounded number, and
// returns a cursor to continue.
func TestHistorySearchIsBounded(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	access := domain.Access{Organization: o.ID, Key: o.Key.ID}
	if err := l.Do(ctx, l.Register(t, o, o.Declaration("d", 1, "x"))); err != nil {
		t.Fatal(err)
	}
	first, err := store.AuditEvents(ctx, access, query.AuditQuestion{Action: domain.RecordRegistered, Limit: 1})
	if err != nil || len(first.Events) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	registered := first.Events[0].Sequence
	const others = query.AuditDepth + 5
	for _, statement := range []string{
		`INSERT INTO events (shard, position, organization_id, sequence, id, v, type, subject, occurred_at, actor, request_id, data, nonce, hash)
			SELECT shard, position + n, organization_id, sequence + n, gen_random_uuid(), v, 'member.changed', 'usr_' || n, occurred_at, actor, request_id, data, nonce, hash
			FROM events, generate_series(1, $2::int) AS n WHERE organization_id = $1 AND type = 'integrity.registered' AND shard = 1`,
		`UPDATE organization_state SET sequence = sequence + $2 WHERE shard = 1 AND organization_id = $1`,
	} {
		if _, err := l.Pool.Exec(ctx, statement, o.ID, others); err != nil {
			t.Fatal(err)
		}
	}
	page, err := store.AuditEvents(ctx, access, query.AuditQuestion{Action: domain.RecordRegistered, Limit: 10})
	if err != nil || len(page.Events) != 0 || !page.More || page.Cursor != registered+others-query.AuditDepth+1 {
		t.Errorf("%+v, %v", page, err)
	}
	page, err = store.AuditEvents(
		ctx, access, query.AuditQuestion{Action: domain.RecordRegistered, Limit: 10, Before: page.Cursor},
	)
	if err != nil || len(page.Events) != 1 || page.More || page.Events[0].Sequence != registered {
		t.Errorf("%+v, %v", page, err)
	}
	page, err = store.AuditEvents(
		ctx, access, query.AuditQuestion{Action: domain.RecordRegistered, Limit: 10, After: registered, Forward: true},
	)
	if err != nil || len(page.Events) != 0 || !page.More || page.Cursor != registered+query.AuditDepth {
		t.Errorf("%+v, %v", page, err)
	}
	// Events in an index are found at once, however far away.
	page, err = store.AuditEvents(ctx, access, query.AuditQuestion{Action: domain.OrganizationCreated, Limit: 10})
	if err != nil || len(page.Events) != 1 || page.More {
		t.Errorf("%+v, %v", page, err)
	}
}

// state returns the state that a replay of the log up to a sequence gives.
func (h history) state(id domain.PublicID, until int64) (status domain.Status, exists bool) {
	var own *domain.RecordRegisteredBody
	highest, revoked := int32(0), false
	for _, pass := range []int{0, 1} {
		for _, e := range h.events[:until] {
			switch body := e.Body.(type) {
			case *domain.RecordRegisteredBody:
				if e.Subject == id.String() {
					own = body
				}
				if pass == 1 && own != nil && body.DocumentID == own.DocumentID {
					highest = max(highest, body.Version)
				}
			case *domain.RecordRevokedBody:
				revoked = revoked || e.Subject == id.String()
			}
		}
	}
	switch {
	case own == nil:
		return "", false
	case revoked:
		return domain.StatusRevoked, true
	case highest > own.Version:
		return domain.StatusSuperseded, true
	}
	return domain.StatusCurrent, true
}

// TestEvidenceAsOfAgreesWithAReplay reads every record at every sequence and at times around them.
func TestEvidenceAsOfAgreesWithAReplay(t *testing.T) {
	ctx := context.Background()
	h := newHistory(t)
	random := rand.New(rand.NewPCG(3, 8))
	states := map[domain.Status]int{}
	head := int64(len(h.events))
	for _, e := range h.events {
		if !slices.Contains(
			[]domain.EventType{domain.RecordRegistered, domain.RecordSuperseded, domain.RecordRevoked}, e.Type,
		) {
			continue
		}
		id, _ := domain.ParsePublicID(e.Subject)
		for _, s := range []int64{e.Sequence - 1, e.Sequence, head, 1 + random.Int64N(head), 1 + random.Int64N(head)} {
			want, exists := h.state(id, s)
			at := h.events[s-1].OccurredAt
			last := s
			for last < head && h.events[last].OccurredAt.Equal(at) {
				last++ // of the same group, at the same time
			}
			wantAt, existsAt := h.state(id, last)
			stored, then, err := h.store.EvidenceAsOf(ctx, h.owner, id, query.Moment{Sequence: s})
			checkAsOf(t, then, err, s, at, want, exists)
			if stored.Sequence != head {
				t.Fatalf("head %d", stored.Sequence)
			}
			_, then, err = h.store.EvidenceAsOf(ctx, h.owner, id, query.Moment{Time: at})
			checkAsOf(t, then, err, last, at, wantAt, existsAt)
			states[want]++
		}
	}
	if states[domain.StatusCurrent] == 0 || states[domain.StatusSuperseded] == 0 || states[domain.StatusRevoked] == 0 ||
		states[""] == 0 {
		t.Errorf("what was asked came only to %v", states)
	}
	id, _ := domain.ParsePublicID(h.events[slices.IndexFunc(h.events, func(e domain.Event) bool {
		return e.Type == domain.RecordRegistered
	})].Subject)
	for _, c := range []struct {
		at   query.Moment
		want error
	}{
		{query.Moment{Time: h.events[0].OccurredAt.Add(-time.Microsecond)}, query.ErrBeforeRecord},
		{query.Moment{Sequence: head + 1}, query.ErrBeyondHead},
	} {
		if _, _, err := h.store.EvidenceAsOf(ctx, h.owner, id, c.at); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.at, err)
		}
	}
	stranger := h.owner
	stranger.Key = domain.KeyID{1}
	_, _, err := h.store.EvidenceAsOf(ctx, stranger, id, query.Moment{Sequence: 1})
	refuses(t, err, domain.RecordNotFound)
}

func checkAsOf(
	t *testing.T, then query.AsOf, err error, sequence int64, at time.Time, status domain.Status, exists bool,
) {
	t.Helper()
	if !exists {
		if !errors.Is(err, query.ErrBeforeRecord) {
			t.Fatalf("before the record: %+v, %v", then, err)
		}
		return
	}
	if err != nil || then.Status != status || then.Sequence != sequence || !then.Time.Equal(at) {
		t.Fatalf("%+v, %v, want %s at %d, %s", then, err, status, sequence, evidence.FormatTime(at))
	}
}

// TestUsageEntriesAgreeWithTheMonth compares each month's entries with the log, and their number with the month's
// figures, for keys with access to all and to some companies, and for a member, who has no key and sees all.
func TestUsageEntriesAgreeWithTheMonth(t *testing.T) {
	ctx := context.Background()
	h := newHistory(t)
	months := map[domain.Period]bool{}
	for _, e := range h.events {
		months[domain.PeriodOf(e.OccurredAt)] = true
	}
	if len(months) < 3 {
		t.Fatalf("the history lies in %v", months)
	}
	months[domain.PeriodOf(h.events[0].OccurredAt).Previous()] = true
	for month := range months {
		usage, err := h.store.Usage(ctx, h.owner, month)
		if err != nil {
			t.Fatal(err)
		}
		member := domain.Access{Organization: h.owner.Organization, Console: true}
		for _, access := range []domain.Access{h.owner, h.partial, member} {
			grants := access
			if access.Console {
				grants = h.owner
			}
			mine, err := h.store.Usage(ctx, grants, month)
			if err != nil {
				t.Fatal(err)
			}
			visible, companies := int64(0), map[string]int64{}
			for _, c := range mine.Companies {
				visible += c.Used
				companies[c.CompanyReference] = c.Used
			}
			want := map[int64]string{}
			for _, e := range h.events {
				if body, ok := e.Body.(*domain.RecordRegisteredBody); ok && body.Charged() == month {
					if _, granted := companies[body.CompanyReference]; granted {
						want[e.Sequence] = e.Subject + body.CompanyReference + body.DocumentReference + e.ID.String()
					}
				}
			}
			for _, limit := range []int{1, 3, 1000} {
				first, err := h.store.UsageEntries(ctx, access, month, nil, limit)
				if err != nil || first.Cursor.Used != usage.Total.Used || first.Cursor.Visible != visible ||
					first.Cursor.Through != int64(len(h.events)) {
					t.Fatalf("%s: %+v, %v, want %d, %d", month, first.Cursor, err, usage.Total.Used, visible)
				}
				got := map[int64]string{}
				read := 0
				for page := first; ; {
					for _, e := range page.Entries {
						got[e.Sequence] = e.PublicID.String() + e.CompanyReference + e.DocumentReference + e.ID.String()
						companies[e.CompanyReference]--
					}
					if read += len(page.Entries); !page.More || read > len(want) {
						break
					}
					if page, err = h.store.UsageEntries(ctx, access, month, &page.Cursor, limit); err != nil {
						t.Fatal(err)
					}
				}
				if int64(read) != visible || len(got) != read || len(want) != read {
					t.Errorf("%s by pages of %d: %d entries, want %d", month, limit, read, visible)
				}
				for sequence, entry := range want {
					if got[sequence] != entry {
						t.Errorf("%s: entry %d is %s, want %s", month, sequence, got[sequence], entry)
					}
				}
			}
			for reference, left := range companies {
				if of := slices.IndexFunc(mine.Companies, func(c query.CompanyUsage) bool {
					return c.CompanyReference == reference
				}); left != -2*mine.Companies[of].Used {
					t.Errorf("%s: the entries of %s are not its contribution", month, reference)
				}
			}
		}
	}
	// Entries that arrive while a month is read are left out.
	o := h.owner.Organization
	month := domain.PeriodOf(h.events[len(h.events)-1].OccurredAt)
	page, err := h.store.UsageEntries(ctx, h.owner, month, nil, 1)
	if err != nil || !page.More {
		t.Fatalf("%+v, %v", page, err)
	}
	d := ledgertest.Organization{
		ID: o, Key: domain.APIKey{ID: h.owner.Key}, Company: domain.Company{Reference: "company-d"},
	}
	late := h.Register(t, d, d.Declaration("new", 1, "x"))
	if err := h.Do(ctx, late); err != nil {
		t.Fatal(err)
	}
	rest, err := h.store.UsageEntries(ctx, h.owner, month, &page.Cursor, 1000)
	if err != nil || rest.More || int64(len(rest.Entries))+1 != page.Cursor.Used || rest.Cursor.Used != page.Cursor.Used {
		t.Errorf("%d entries of %d, %v", len(rest.Entries)+1, page.Cursor.Used, err)
	}
	again, err := h.store.UsageEntries(ctx, h.owner, month, nil, 1000)
	if err != nil || int64(len(again.Entries)) != page.Cursor.Used+1 || again.Cursor.Used != page.Cursor.Used+1 {
		t.Errorf("%d entries, %v", len(again.Entries), err)
	}
	page.Cursor.Through += 2
	if _, err := h.store.UsageEntries(ctx, h.owner, month, &page.Cursor, 1); !errors.Is(err, query.ErrBeyondHead) {
		t.Errorf("a cursor of a longer history: %v", err)
	}
}
