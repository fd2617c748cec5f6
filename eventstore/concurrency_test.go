package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
)

// accepted holds the answers to writers, by version.
type accepted struct {
	mu      sync.Mutex
	records map[string]map[int32]domain.PublicID // document, version
	content map[string]string                    // document and version → accepted content
	revoked map[domain.PublicID]bool
	links   map[string]domain.PublicID // document and version → the first public id returned, reserved or registered
	fresh   int
}

// sameLink records the public id of a version and fails if it has changed.
func (told *accepted) sameLink(t *testing.T, ref string, id domain.PublicID) {
	if known, ok := told.links[ref]; ok && known != id {
		t.Errorf("%s has two public ids", ref)
	}
	told.links[ref] = id
}

// TestWriters lets 64 writers of two processes mix reservations, new versions, replays, conflicts, late lower versions
// and revocations while a reader follows the feed.
func TestWriters(t *testing.T) {
	for _, organizations := range []int{1, 16} {
		t.Run(fmt.Sprintf("%d organizations", organizations), func(t *testing.T) {
			l := ledgertest.New(t)
			processes := []*eventstore.Ledger{l.Ledger, l.Process(t, l.URL)}
			var orgs []ledgertest.Organization
			for i := range organizations {
				orgs = append(orgs, l.Organization(t, domain.Shard(i%4), domain.InternalPlan))
			}
			told := make([]*accepted, organizations)
			for i := range told {
				told[i] = &accepted{
					records: map[string]map[int32]domain.PublicID{}, content: map[string]string{},
					revoked: map[domain.PublicID]bool{}, links: map[string]domain.PublicID{},
				}
			}
			done := make(chan struct{})
			followers := make([][]int64, organizations)
			var reading, writing sync.WaitGroup
			for i, o := range orgs {
				reading.Go(func() { followers[i] = follow(t, l, o, done) })
			}
			for w := range 64 {
				writing.Go(func() {
					random := rand.New(rand.NewPCG(uint64(w), 7))
					for range 25 {
						i := random.IntN(organizations)
						write(t, l, processes[random.IntN(2)], orgs[i], told[i], random)
					}
				})
			}
			writing.Wait()
			close(done)
			reading.Wait()

			logs := l.Audit(t)
			for i, o := range orgs {
				checkModel(t, l, o, told[i], logs[o.ID.Shard()])
				var feed []int64
				for _, e := range logs[o.ID.Shard()] {
					if e.Organization == o.ID && isFeed(e.Type) {
						feed = append(feed, e.Sequence)
					}
				}
				if fmt.Sprint(feed) != fmt.Sprint(followers[i]) {
					t.Errorf("the reader saw %d events, the log has %d", len(followers[i]), len(feed))
				}
			}
		})
	}
}

func isFeed(t domain.EventType) bool {
	return t == domain.RecordRegistered || t == domain.RecordSuperseded || t == domain.RecordRevoked
}

// write performs one random action and records the answer.
func write(
	t *testing.T, l *ledgertest.Ledger, process *eventstore.Ledger, o ledgertest.Organization, told *accepted,
	random *rand.Rand,
) {
	document, version := fmt.Sprintf("doc-%d", random.IntN(8)), int32(1+random.IntN(12))
	if random.IntN(6) == 0 {
		told.mu.Lock()
		id, ok := told.records[document][version]
		told.mu.Unlock()
		if !ok {
			return
		}
		c := l.Revoke(t, o, id)
		if err := process.Do(context.Background(), c); err != nil {
			t.Errorf("revoke: %v", err)
			return
		}
		told.mu.Lock()
		told.revoked[id] = true
		told.mu.Unlock()
		return
	}
	ref := fmt.Sprintf("%s/%d", document, version)
	if random.IntN(3) == 0 {
		c := l.Reserve(t, o, document, version)
		if err := process.Do(context.Background(), c); err != nil {
			t.Errorf("reserve: %v", err)
			return
		}
		told.mu.Lock()
		told.sameLink(t, ref, c.Outcome.PublicID)
		told.mu.Unlock()
		return
	}
	content := fmt.Sprintf("%s v%d variant %d", document, version, random.IntN(2))
	c := l.Register(t, o, o.Declaration(document, version, content))
	err := process.Do(context.Background(), c)
	told.mu.Lock()
	defer told.mu.Unlock()
	var refusal *domain.Error
	switch {
	case errors.As(err, &refusal) && refusal.Code == domain.VersionConflict:
		if known, ok := told.content[ref]; ok && known == content {
			t.Errorf("%s: a replay was refused as a conflict", ref)
		}
	case err != nil:
		t.Errorf("register: %v", err)
	default:
		if known, ok := told.content[ref]; ok && known != content {
			t.Errorf("%s: two contents were accepted", ref)
		}
		if told.records[document] == nil {
			told.records[document] = map[int32]domain.PublicID{}
		}
		told.sameLink(t, ref, c.Outcome.PublicID)
		told.records[document][version], told.content[ref] = c.Outcome.PublicID, content
		if !c.Replayed {
			told.fresh++
		}
	}
}

// checkModel compares the database with a naive model of the answers.
func checkModel(t *testing.T, l *ledgertest.Ledger, o ledgertest.Organization, told *accepted, log []domain.Event) {
	t.Helper()
	records, registered := 0, 0
	for _, e := range log {
		if e.Organization == o.ID && e.Type == domain.RecordRegistered {
			registered++
		}
	}
	for document, versions := range told.records {
		highest := int32(0)
		for v := range versions {
			highest = max(highest, v)
		}
		for v, id := range versions {
			records++
			want := domain.StatusSuperseded
			if told.revoked[id] {
				want = domain.StatusRevoked
			} else if v == highest {
				want = domain.StatusCurrent
			}
			replay := l.Register(t, o, o.Declaration(document, v, told.content[fmt.Sprintf("%s/%d", document, v)]))
			if err := l.Do(context.Background(), replay); err != nil {
				t.Errorf("replay of %s/%d: %v", document, v, err)
				continue
			}
			if got := replay.Outcome; !replay.Replayed || got.PublicID != id || got.Status != want {
				t.Errorf("%s/%d: status %s, want %s", document, v, got.Status, want)
			}
		}
	}
	var used int64
	if err := l.Pool.QueryRow(context.Background(),
		`SELECT coalesce(sum(used), 0) FROM usage WHERE shard = $1 AND organization_id = $2
		AND company_id = '00000000-0000-0000-0000-000000000000'`, o.ID.Shard(), [16]byte(o.ID)).Scan(&used); err != nil {
		t.Fatal(err)
	}
	if records != registered || int(used) != records || told.fresh != records {
		t.Errorf(
			"%d versions told, %d told as new, %d registered, usage %d: all must be equal", records, told.fresh, registered,
			used,
		)
	}
}

// follow pages through a company's feed until writing is done and a page is empty.
func follow(t *testing.T, l *ledgertest.Ledger, o ledgertest.Organization, done <-chan struct{}) []int64 {
	var seen []int64
	after := int64(0)
	for {
		last := false
		select {
		case <-done:
			last = true
		default:
		}
		rows, err := l.Pool.Query(context.Background(), `SELECT sequence FROM feed
			WHERE shard = $1 AND company_id = $2 AND sequence > $3 ORDER BY sequence LIMIT 50`, o.ID.Shard(),
			[16]byte(o.Company.ID), after)
		if err != nil {
			t.Errorf("follow: %v", err)
			return seen
		}
		found := 0
		for rows.Next() {
			if err := rows.Scan(&after); err != nil {
				t.Errorf("follow: %v", err)
			}
			seen = append(seen, after)
			found++
		}
		rows.Close()
		if last && found == 0 {
			return seen
		}
	}
}
