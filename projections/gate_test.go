package projections

import (
	"testing"

	"integrityledger/domain"
)

// A request that comes while a batch is under way is answered by a later one.
func TestGateNeverJoinsABatchUnderWay(t *testing.T) {
	var g gate
	sent := make(chan []*credential)
	answer := make(chan struct{})
	send := func(_ domain.Shard, batch []*credential) {
		sent <- batch
		<-answer
		for _, c := range batch {
			close(c.done)
		}
	}
	ask := func() *credential {
		c := &credential{done: make(chan struct{})}
		g.ask(1, c, send)
		return c
	}
	for range gateInFlight { // lone requests are sent at once, without a timer
		c := ask()
		if batch := <-sent; len(batch) != 1 || batch[0] != c {
			t.Fatalf("batch %v", batch)
		}
	}
	var late []*credential
	for range gateWeight + 1 {
		late = append(late, ask())
	}
	answer <- struct{}{}
	batch := <-sent
	if len(batch) != gateWeight || batch[0] != late[0] {
		t.Errorf("the next batch has %d requests", len(batch))
	}
	answer <- struct{}{}
	if batch := <-sent; len(batch) != 1 || batch[0] != late[gateWeight] {
		t.Errorf("the last batch has %d requests", len(batch))
	}
	answer <- struct{}{}
	answer <- struct{}{}
	for _, c := range late {
		<-c.done
	}
}
