package analyzer

import (
	"context"
	"errors"
	"os"
	"testing"

	"integrityledger/domain"
)

func organization(n byte) domain.OrganizationID { return domain.OrganizationID{15: n} }

// enterAll enters n analyses of an organization, all of which must be accepted.
func enterAll(t *testing.T, q *queue, o domain.OrganizationID, n int) (places []*place) {
	t.Helper()
	for range n {
		p, err := q.enter(o)
		check(t, err)
		places = append(places, p)
	}
	return places
}

func (p *place) runs() bool {
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

// TestTurns: another organization's analysis starts right after one of twenty from the first, and from then on they
// alternate.
func TestTurns(t *testing.T) {
	for workers := 1; workers <= 3; workers++ {
		q := newQueue(workers, 64)
		flood := enterAll(t, q, organization(1), 20)
		other := enterAll(t, q, organization(2), 3)
		for i, p := range flood {
			if p.runs() != (i < workers) {
				t.Errorf("%d workers: the flood's %d runs: %v", workers, i, p.runs())
			}
		}
		q.leave(flood[0])
		if !other[0].runs() || flood[workers].runs() {
			t.Errorf("%d workers: the next is not the other organization's", workers)
		}
		q.leave(other[0])
		if workers == 1 && (!flood[1].runs() || other[1].runs()) {
			t.Error("they do not take turns")
		}
	}
}

// TestShares: only an organization that floods the queue is refused. However many organizations flood it, another one
// still gets in. Places become free again.
func TestShares(t *testing.T) {
	q := newQueue(1, 16)
	var all []*place
	for o := byte(1); o <= 3; o++ {
		taken := 0
		for ; taken <= 16; taken++ {
			p, err := q.enter(organization(o))
			if err != nil {
				if !unavailable(err) {
					t.Errorf("organization %d: %v", o, err)
				}
				break
			}
			all = append(all, p)
		}
		if want := map[byte]int{1: 8 + 1, 2: 4, 3: 2}[o]; taken != want { // including the one that runs
			t.Errorf("organization %d has %d, not %d", o, taken, want)
		}
	}
	if _, err := q.enter(organization(1)); !unavailable(err) {
		t.Errorf("who floods: %v", err)
	}
	all = append(all, enterAll(t, q, organization(4), 1)...)
	for i := range all { // remove the last first, waiting or running
		q.leave(all[len(all)-1-i])
	}
	if q.free != 1 || q.waiting != 0 || len(q.lines) != 0 {
		t.Errorf("free %d, waiting %d, organizations %d", q.free, q.waiting, len(q.lines))
	}
}

// TestFlood: with real children, the analysis that waits behind a flood runs when the first child is killed because its
// caller went away.
func TestFlood(t *testing.T) {
	h := hold(t)
	a := start(t, Config{Program: h.program(t), Workers: 1, Wall: patient})
	f := open(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 21)
	analyze := func(ctx context.Context, o byte, f *os.File) {
		before := a.queue.entered()
		go func() {
			_, err := a.Analyze(ctx, organization(o), f, 0, "", "")
			ended <- err
		}()
		until(t, func() bool { return a.queue.entered() == before+1 })
	}
	analyze(ctx, 1, f)
	h.started(t)
	for range 19 {
		analyze(t.Context(), 1, f)
	}
	analyze(t.Context(), 2, f)
	stop() // the first caller goes away
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	h.started(t)
	a.queue.mu.Lock()
	defer a.queue.mu.Unlock()
	if l := a.queue.lines[organization(2)]; l == nil || l.running != 1 || a.queue.lines[organization(1)].running != 0 {
		t.Errorf("what runs is not the other organization's: %+v", l)
	}
}

// TestFewestFirst: an idle worker goes to the organization with the fewest analyses in progress, even if another has
// waited longer.
func TestFewestFirst(t *testing.T) {
	q := newQueue(4, 16)
	enterAll(t, q, organization(1), 2)
	enterAll(t, q, organization(2), 1)
	ends := enterAll(t, q, organization(3), 1)
	many, few := enterAll(t, q, organization(1), 1), enterAll(t, q, organization(2), 1)
	q.leave(ends[0])
	if many[0].runs() || !few[0].runs() {
		t.Error("the organization with two under way has its third")
	}
}

// entered returns how many analyses wait or run.
func (q *queue) entered() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		n += l.running + len(l.waiting)
	}
	return n
}
