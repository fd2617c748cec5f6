package transparency

import (
	"context"
	"sync"
	"time"

	"integrityledger/eventstore/wait"
)

// watchEvery is how often a process looks for a new tree while callers wait for one.
const watchEvery = 250 * time.Millisecond

const readSize = `SELECT size FROM transparency_checkpoint WHERE id = 1`

// watchers are the callers of a process that wait for a new published tree. While any caller waits, the process reads
// the size of the tree every watchEvery, however many callers there are.
type watchers struct {
	mu   sync.Mutex
	all  map[chan struct{}]bool
	stop context.CancelFunc
}

// Watch registers a caller that waits for a new published tree. changed receives once at the beginning, and then after
// each change of the published tree. It is only a hint: the caller looks for its leaves itself. The caller must call
// leave.
func (r *Reader) Watch() (changed <-chan struct{}, leave func()) {
	w := &r.watching
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.all = map[chan struct{}]bool{}
		go r.watch(ctx)
	}
	woken := make(chan struct{}, 1)
	woken <- struct{}{}
	w.all[woken] = true
	return woken, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.all, woken); len(w.all) == 0 {
			w.stop()
		}
	}
}

// watch wakes the callers when the size of the published tree has changed, until ctx ends. A size that cannot be read
// is read again.
func (r *Reader) watch(ctx context.Context) {
	last := int64(-1)
	for wait.For(ctx, watchEvery) == nil {
		limited, cancel := context.WithTimeout(ctx, lookTimeout)
		size := last
		err := r.Pool.QueryRow(limited, readSize).Scan(&size)
		cancel()
		if err == nil && size != last {
			last = size
			r.watching.wake()
		}
	}
}

func (w *watchers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for woken := range w.all {
		select {
		case woken <- struct{}{}:
		default: // the caller has not looked since the last change
		}
	}
}
