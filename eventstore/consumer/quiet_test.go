package consumer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// quietly runs a consumer of several sources and counts its calls of News, which return the result of tell.
func quietly(
	t *testing.T, sources int,
) (c *Consumer, looks func() []time.Duration, tell func(news []int, failed error)) {
	var mu sync.Mutex
	var began []time.Time
	var found []int
	var failure error
	c = &Consumer{Config: Config{Poll: time.Second, Gather: apart, Log: slog.New(slog.DiscardHandler)}}
	c.News = func(context.Context) ([]int, error) {
		mu.Lock()
		defer mu.Unlock()
		began = append(began, time.Now())
		return found, failure
	}
	for range sources {
		c.topics = append(
			c.topics,
			&topic{consumer: c, woken: make(chan struct{}, 1), news: make(chan struct{}, 1), stopped: t.Context().Done()},
		)
	}
	last := time.Now()
	go c.look(t.Context())
	return c, func() (pauses []time.Duration) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for _, at := range began {
				pauses, last = append(pauses, at.Sub(last)), at
			}
			began = nil
			return pauses
		}, func(news []int, failed error) {
			mu.Lock()
			defer mu.Unlock()
			found, failure = news, failed
		}
}

// TestQuietLooksComeLessOften: News is called less and less often while no source is woken. A wake-up ends that.
func TestQuietLooksComeLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, looks, _ := quietly(t, 2)
		time.Sleep(16 * time.Second)
		if got, want := looks(), []time.Duration{
			time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second,
		}; !slices.Equal(got, want) {
			t.Errorf("looks after %v, want %v", got, want)
		}
		c.Wake(1)
		c.topics[1].HandleError(nil, true, nil)
		time.Sleep(8 * time.Second)
		if got, want := looks(), []time.Duration{4 * time.Second, time.Second, 2 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("looks after %v, want %v", got, want)
		}
	})
}

// TestNewsLeadToClaims: a source is claimed only if it is woken or returned by News. If News fails, all are claimed.
func TestNewsLeadToClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, tell := quietly(t, 3)
		claims := make([]atomic.Int64, len(c.topics))
		for i, topic := range c.topics {
			go func() {
				for t.Context().Err() == nil {
					topic.HandleError(nil, true, nil)
					claims[i].Add(1)
				}
			}()
		}
		for _, step := range []struct {
			news   []int
			failed error
			want   []int
		}{
			{nil, nil, []int{0, 0, 0}},
			{[]int{1}, nil, []int{0, 1, 0}},
			{[]int{1}, errors.New("a node is away"), []int{1, 1, 1}},
			{nil, nil, []int{0, 0, 0}},
		} {
			tell(step.news, step.failed)
			time.Sleep(5 * time.Second) // at least one call
			tell(nil, nil)
			synctest.Wait()
			for i, n := range step.want {
				if got := claims[i].Swap(0); (got > 0) != (n > 0) {
					t.Errorf("news %v, %v: source %d is claimed %d times", step.news, step.failed, i, got)
				}
			}
		}
		c.Wake(2)
		time.Sleep(time.Second)
		synctest.Wait()
		for i, n := range []int64{0, 0, 1} {
			if got := claims[i].Swap(0); got != n {
				t.Errorf("a wake-up: source %d is claimed %d times", i, got)
			}
		}
	})
}

// TestWorkOfOthersEndsTheQuiet: if News leads to a page, another process leaves its work to this one, so News is called
// at the highest rate for a while.
func TestWorkOfOthersEndsTheQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, looks, _ := quietly(t, 1)
		topic := c.topics[0]
		page := func() {
			topic.handled, topic.progress.Position = true, topic.position+1
			topic.HandleError(nil, true, nil)
		}
		longest := func(d time.Duration) time.Duration {
			looks()
			time.Sleep(d)
			return slices.Max(looks())
		}
		c.Wake(0)
		topic.HandleError(nil, true, nil)
		page() // was asked for
		if longest(20*time.Second) != 4*time.Second {
			t.Error("a page that was asked for keeps the looks frequent")
		}
		put(topic.news)
		topic.HandleError(nil, true, nil)
		page()
		longest(5 * time.Second)
		if d := longest(unwoken - 6*time.Second); d != time.Second {
			t.Errorf("a look came after %s", d)
		}
		if longest(20*time.Second) != 4*time.Second {
			t.Error("the looks stay frequent for ever")
		}
	})
}
