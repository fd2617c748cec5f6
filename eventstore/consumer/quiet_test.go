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
