package consumer

import (
	"testing"
	"testing/synctest"
	"time"
)

// Looks that nobody asks for and that find nothing come less and less often; a wake-up ends that.
func TestQuietLooksComeLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := &topic{consumer: &Consumer{Config: Config{Poll: time.Second}}, woken: make(chan struct{}, 1), stopped: t.Context().Done()}
		looks := func(want ...time.Duration) {
			t.Helper()
			for _, poll := range want {
				began := time.Now()
				topic.HandleError(nil, true, nil)
				if d := time.Since(began); d != apart+poll {
					t.Errorf("the next look comes after %s, want %s", d, apart+poll)
				}
			}
		}
		looks(time.Second, 2*time.Second, 4*time.Second, 4*time.Second)
		topic.woken <- struct{}{}
		looks(0, time.Second, 2*time.Second)
	})
}

// Where a look that nobody has asked for has found a page, another process leaves its work to this one, without a wake-up:
// the looks come as often as they can for a while.
func TestWorkOfOthersEndsTheQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := &topic{consumer: &Consumer{Config: Config{Poll: time.Second, Gather: apart}}, woken: make(chan struct{}, 1), stopped: t.Context().Done()}
		look := func() time.Duration {
			began := time.Now()
			topic.HandleError(nil, true, nil)
			return time.Since(began) - apart
		}
		page := func() {
			topic.handled, topic.progress.Position = true, topic.position+1
			look()
		}
		for range 2 {
			for look() < 4*time.Second {
			}
			topic.woken <- struct{}{}
			look()
			page() // was asked for
			if look(); look() != 2*time.Second {
				t.Error("a page that was asked for keeps the looks frequent")
			}
			page()
			for ended := time.Now().Add(unwoken - time.Second); time.Now().Before(ended); {
				if d := look(); d != time.Second {
					t.Fatalf("the next look comes after %s", d)
				}
			}
		}
	})
}
