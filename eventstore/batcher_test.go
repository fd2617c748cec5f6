package eventstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"integrityledger/domain"
)

// TestGateNeverJoinsABatchUnderWay: a question that arrives while a batch is in progress is answered by a later batch.
func TestGateNeverJoinsABatchUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Batcher[domain.Shard, *int]
		sent := make(chan []*int)
		answer := make(chan struct{})
		send := func(_ domain.Shard, batch []*int) {
			sent <- batch
			<-answer
			for _, n := range batch {
				*n = -*n
			}
		}
		asked := 0
		ask := func() {
			asked++
			n := asked
			go func() {
				mine := n
				if err := g.Ask(context.Background(), 1, &mine, send); err != nil || mine != -n {
					t.Errorf("question %d is answered %d, %v", n, mine, err)
				}
			}()
			synctest.Wait()
		}
		ask() // a lone question is sent at once, without a timer
		if batch := <-sent; len(batch) != 1 || *batch[0] != 1 {
			t.Fatalf("batch of %d", len(batch))
		}
		for range maxBatch + 1 {
			ask()
		}
		answer <- struct{}{}
		batch := <-sent
		if len(batch) != maxBatch || *batch[0] != 2 {
			t.Errorf("the next batch has %d questions, the first is %d", len(batch), *batch[0])
		}
		answer <- struct{}{}
		if batch := <-sent; len(batch) != 1 || *batch[0] != maxBatch+2 {
			t.Errorf("the last batch has %d questions", len(batch))
		}
		answer <- struct{}{}
		synctest.Wait()
		ask() // the first sender has ended, and another begins
		<-sent
		answer <- struct{}{}
	})
}

// TestGateOutlivesAQuestion: a caller that gives up does not cancel the other callers' questions.
func TestGateOutlivesAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Batcher[domain.Shard, *int]
		answer := make(chan struct{})
		send := func(domain.Shard, []*int) { <-answer }
		gone, leave := context.WithCancel(context.Background())
		answered := make(chan error, 1)
		go func() { answered <- g.Ask(gone, 1, new(int), send) }()
		synctest.Wait()
		stays := make(chan error, 1)
		go func() { stays <- g.Ask(context.Background(), 1, new(int), send) }()
		synctest.Wait()
		leave()
		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that goes away: %v", err)
		}
		answer <- struct{}{}
		answer <- struct{}{}
		if err := <-stays; err != nil {
			t.Errorf("the one that stays: %v", err)
		}
	})
}
