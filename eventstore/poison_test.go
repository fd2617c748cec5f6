package eventstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// poisonedLedger is a ledger on which registering document "load" makes the first round trip fail, and registering
// document "write" the second, with an error caused by a tenant's text.
type poisonedLedger struct {
	*ledgertest.Ledger
	mu      sync.Mutex
	reports []eventstore.GroupReport
	log     bytes.Buffer

	hold    atomic.Bool // the next group waits within its transaction
	arrived chan struct{}
	goOn    chan struct{}
	time    atomic.Int64 // nanoseconds
}

func openPoisoned(t *testing.T) *poisonedLedger {
	t.Helper()
	p := &poisonedLedger{arrived: make(chan struct{}), goOn: make(chan struct{})}
	p.time.Store(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano())
	now := func() time.Time { return time.Unix(0, p.time.Load()).UTC() }
	p.Ledger = ledgertest.New(t, func(c *eventstore.Config) {
		c.Clock = ledgertest.Simulated(now)
		c.Log = slog.New(slog.NewTextHandler(&p.log, nil)) // its handler locks
		c.Observe = func(r eventstore.GroupReport) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.reports = append(p.reports, r)
		}
		c.Load = func(
			b *pgx.Batch, shard domain.Shard, o []domain.OrganizationID, needs domain.Needs, now time.Time, s *domain.State,
		) {
			for _, d := range needs.Declarations {
				if d.DocumentReference == "load" {
					b.Queue("SELECT $1::text", "words of a tenant\x00")
				}
			}
			projections.Load(b, shard, o, needs, now, s)
		}
		c.Apply = func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
			if p.hold.CompareAndSwap(true, false) {
				p.arrived <- struct{}{}
				<-p.goOn
			}
			for _, e := range events {
				if r, ok := e.Body.(*domain.RecordRegisteredBody); ok && r.DocumentReference == "write" {
					b.Queue("SELECT $1::text::int", "words of a tenant")
				}
			}
			return projections.Apply(b, shard, events)
		}
	})
	p.Now = now
	return p
}

// together executes commands during another group, so that they wait in the queue together, and returns their answers
// and the reports of their groups.
func (p *poisonedLedger) together(
	t *testing.T, first domain.Command, commands ...domain.Command,
) ([]eventstore.Answer, []eventstore.GroupReport) {
	t.Helper()
	p.hold.Store(true)
	var group sync.WaitGroup
	group.Go(func() { p.Must(t, first) })
	<-p.arrived
	answers := make([]eventstore.Answer, len(commands))
	group.Go(func() { copy(answers, p.Execute(context.Background(), commands...)) })
	pgtest.Eventually(t, "the commands wait", func() (bool, error) { return p.Queues()[0].Waiting == len(commands), nil })
	p.mu.Lock()
	p.reports = nil
	p.mu.Unlock()
	p.goOn <- struct{}{}
	group.Wait()
	var reports []eventstore.GroupReport
	pgtest.Eventually(t, "all commands are reported", func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		reports = slices.Clone(p.reports)
		ended := 0
		for _, r := range reports {
			if r.Outcome != eventstore.GroupSplit {
				ended += r.Commands
			}
		}
		return ended == len(commands)+1, nil
	})
	return answers, reports[1:]
}

func outcomes(reports []eventstore.GroupReport) map[eventstore.GroupOutcome]int {
	count := map[eventstore.GroupOutcome]int{}
	for _, r := range reports {
		count[r.Outcome]++
	}
	return count
}

// TestPoisonFailsItsCommandAlone: poison in either round trip is answered 500. Its neighbours and the sender's other
// commands are committed. The sender is then committed alone for a minute.
func TestPoisonFailsItsCommandAlone(t *testing.T) {
	for _, trip := range []string{"load", "write"} {
		t.Run(trip, func(t *testing.T) {
			p := openPoisoned(t)
			const organizations, each = 8, 6
			var list []ledgertest.Organization
			for range organizations {
				list = append(list, p.Organization(t, 0, domain.InternalPlan))
			}
			sender, n := list[3], 0
			register := func(o ledgertest.Organization, document string) domain.Command {
				n++
				return p.Register(t, o, o.Declaration(document, int32(n), "x"))
			}
			round := func() []eventstore.GroupReport {
				t.Helper()
				var commands []domain.Command
				var bad []bool
				for i := range each {
					for _, o := range list {
						poison := o.ID == sender.ID && i%2 == 1
						document := "good"
						if poison {
							document = trip
						}
						commands, bad = append(commands, register(o, document)), append(bad, poison)
					}
				}
				answers, reports := p.together(t, register(list[0], "first"), commands...)
				for i, answer := range answers {
					var refusal *domain.Error
					if bad[i] && (!errors.As(answer.Err, &refusal) || refusal.Code != domain.Internal) {
						t.Errorf("poison %d: %v, want INTERNAL", i, answer.Err)
					}
					if !bad[i] && answer.Err != nil {
						t.Errorf("command %d: %v", i, answer.Err)
					}
				}
				for _, r := range reports {
					alone := true
					for _, e := range r.Events {
						alone = alone && e.Organization != sender.ID
					}
					if len(r.Events) > 0 && !alone && r.Commands != 1 {
						t.Errorf("a group of %d has a command of the sender", r.Commands)
					}
				}
				return reports
			}

			first := outcomes(round())
			if split := first[eventstore.GroupSplit]; split == 0 || split > 4 ||
				first[eventstore.GroupPoisoned] != each/2 || first[eventstore.GroupFailed] != 0 {
				t.Errorf("of 8 organizations, one with poison: %v", first)
			}
			p.time.Add(int64(59 * time.Second))
			second := round()
			if got := outcomes(second); got[eventstore.GroupSplit] != 0 || got[eventstore.GroupPoisoned] != each/2 {
				t.Errorf("within the minute: %v", got)
			}
			for i, r := range second { // the neighbours' 42 commands are one group, the first or the second
				if r.Commands > 1 && i > 1 {
					t.Errorf("the group of the others is number %d: %+v", i, second)
				}
			}

			p.time.Add(int64(time.Minute))
			third := outcomes(round())
			if third[eventstore.GroupSplit] == 0 {
				t.Errorf("a minute after its last poison the sender is committed alone still: %v", third)
			}
			p.Audit(t)
			if got, want := registrations(p.Events(t, 0)), 3*(organizations*each-each/2+1); got != want {
				t.Errorf("%d registrations in the log, want %d", got, want)
			}
			if err := p.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			code := map[string]string{"load": "22021", "write": "22P02"}[trip]
			if text := p.log.String(); strings.Contains(text, "words of a tenant") || !strings.Contains(text, code) ||
				!strings.Contains(text, fmt.Sprintf("organization=%s", sender.ID)) {
				t.Errorf("the log must name the error's code and the organization, and quote nothing:\n%s", text)
			}
		})
	}
}
