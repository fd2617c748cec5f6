package eventstore

import (
	"testing"
	"time"

	"integrityledger/domain"
)

type nothing struct{ domain.Cause }

func (nothing) Need(*domain.Needs)                                      {}
func (nothing) Decide(*domain.State, time.Time) ([]domain.Draft, error) { return nil, nil }

func put(q *queue, organization byte, index int) error {
	var id domain.OrganizationID
	id[0] = organization
	return q.put(item{command: nothing{domain.Cause{Organization: id}}, submission: newSubmission(1), index: index})
}

func TestQueueServesOrganizationsInTurn(t *testing.T) {
	q := newQueue(4000)
	for i := range 600 {
		if err := put(q, 1, i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if err := put(q, 2, i); err != nil {
			t.Fatal(err)
		}
	}
	group := q.take(10)
	var order []byte
	next := map[byte]int{}
	for _, it := range group {
		o := it.command.By().Organization[0]
		order = append(order, o)
		if it.index != next[o] {
			t.Errorf("organization %d: command %d came before %d", o, it.index, next[o])
		}
		next[o]++
	}
	if want := string([]byte{1, 2, 1, 2, 1, 2, 1, 1, 1, 1}); string(order) != want {
		t.Errorf("served %v, want %v", order, []byte(want))
	}
	if rest := len(q.take(10_000)); rest != 593 {
		t.Errorf("%d commands were left, want 593", rest)
	}
}

func TestQueueIsBoundedAndShared(t *testing.T) {
	q := newQueue(40)
	for i := range 10 {
		if err := put(q, 1, i); err != nil {
			t.Fatal(err)
		}
	}
	if put(q, 1, 10) == nil {
		t.Error("one organization got more than a quarter of the queue")
	}
	for o := byte(2); o <= 4; o++ {
		for i := range 10 {
			if err := put(q, o, i); err != nil {
				t.Fatalf("organization %d: %v", o, err)
			}
		}
	}
	if put(q, 5, 0) == nil {
		t.Error("a full queue took a command")
	}
	q.take(1)
	if err := put(q, 5, 0); err != nil {
		t.Errorf("a queue with room refused: %v", err)
	}
	q.close()
	if put(q, 6, 0) == nil {
		t.Error("a closed queue took a command")
	}
	if q.refused != 2 {
		t.Errorf("%d commands were counted as turned away, not 2", q.refused)
	}
	if !q.wait() || len(q.take(100)) != 40 || q.wait() {
		t.Error("a closed queue must still give what it holds, and then end")
	}
}
