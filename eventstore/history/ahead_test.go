package history_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"integrityledger/eventstore/history"
)

// TestAhead: pages are taken in order, the next page is read before one is taken, and an error on either side ends
// both.
func TestAhead(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name            string
		unread, untaken int // the page that fails to be read, or to be taken
		taken           []int
		err             error
	}{
		{"all", 0, 0, []int{1, 2, 3}, nil},
		{"not read", 3, 0, nil, broken}, // the number of pages taken before is not fixed
		{"not taken", 0, 2, []int{1}, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			page, read, taken := 0, make(chan int, 4), []int(nil)
			err := history.Ahead(context.Background(), func(context.Context) ([]int, error) {
				if page++; page == c.unread {
					return nil, broken
				}
				read <- page
				return []int{page}[:min(1, 4-page)], nil
			}, func(events []int) error {
				if events[0] == c.untaken {
					return broken
				}
				for c.err == nil && <-read <= events[0] { // until the next page is read
				}
				taken = append(taken, events...)
				return nil
			})
			if !errors.Is(err, c.err) || c.taken != nil && !slices.Equal(taken, c.taken) {
				t.Errorf("taken %v, %v", taken, err)
			}
		})
	}
}

// TestAheadIsStopped: if ctx ends before all pages are taken, Ahead returns an error.
func TestAheadIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	err := history.Ahead(ctx, func(context.Context) ([]int, error) { return []int{1}, nil }, func([]int) error {
		stop()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestAheadEndsWithItsReader: when Ahead returns, reading has stopped, because the reader may share a transaction.
func TestAheadEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, page, ended := errors.New("broken"), 0, false
		err := history.Ahead(t.Context(), func(ctx context.Context) ([]int, error) {
			if page++; page > 1 {
				<-ctx.Done()
				time.Sleep(time.Second) // a connection that notices slowly
				ended = true
				return nil, ctx.Err()
			}
			return []int{page}, nil
		}, func([]int) error {
			synctest.Wait() // until the next page is being read
			return broken
		})
		if !errors.Is(err, broken) || !ended {
			t.Errorf("%v, the reader has ended: %t", err, ended)
		}
	})
}
