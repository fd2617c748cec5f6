package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Bar shows the progress, speed and remaining time of a long run on a terminal. It is safe for concurrent use.
type Bar struct {
	to         io.Writer // nil: show nothing
	what, unit string
	left       string // the rest of the sentence after the remaining time
	size       int64  // of one unit

	mu          sync.Mutex
	done, total int64
	begun, next time.Time
}

// NewBar creates the bar of a run that counts to total. The bar shows units of the given size. Without a terminal it
// shows nothing.
func (a *App) NewBar(what, unit string, size, total int64) *Bar {
	b := &Bar{what: what, unit: unit, left: a.Sayf("left"), size: size, total: total, begun: time.Now()}
	if IsTerminal(a.Errs) {
		b.to = a.Errs
	}
	return b
}

// Add adds n to the count.
func (b *Bar) Add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(b.done+n, b.total)
}

// Set sets the count and the total.
func (b *Bar) Set(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(done, total)
}

func (b *Bar) set(done, total int64) {
	b.done, b.total = done, total
	now := time.Now()
	if b.to == nil || now.Before(b.next) {
		return
	}
	b.next = now.Add(100 * time.Millisecond)
	took, part := now.Sub(b.begun), min(1, float64(done)/float64(max(total, 1)))
	line := fmt.Sprintf("%s %3.0f%% |%-30s| %d/%d %s, %.0f %[6]s/s", b.what, 100*part, strings.Repeat("█", int(30*part)),
		done/b.size, total/b.size,
		b.unit, float64(done)/float64(b.size)/max(took.Seconds(), 0.001))
	if part > 0 {
		line += ", " + time.Duration(float64(took)*(1-part)/part).Round(time.Second).String() + " " + b.left
	}
	_, _ = io.WriteString(b.to, "\r\x1b[K"+line)
}

// Write adds the number of bytes, and discards them.
func (b *Bar) Write(p []byte) (int, error) {
	b.Add(int64(len(p)))
	return len(p), nil
}

// Close removes the bar from the terminal.
func (b *Bar) Close() {
	if b.to != nil {
		_, _ = io.WriteString(b.to, "\r\x1b[K")
	}
}
