package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Bar shows on a terminal how far a long run has come, how fast, and how long it will take yet. It may be used
// concurrently.
type Bar struct {
	to         io.Writer // nil: nothing is shown
	what, unit string
	size       int64 // of a unit

	mu          sync.Mutex
	done, total int64
	begun, next time.Time
}

// NewBar makes the bar of a run that counts to total. What is shown are units, each size long. Without a terminal
// nothing is shown.
func NewBar(to io.Writer, what, unit string, size, total int64) *Bar {
	b := &Bar{what: what, unit: unit, size: size, total: total, begun: time.Now()}
	if IsTerminal(to) {
		b.to = to
	}
	return b
}

// Add counts n more.
func (b *Bar) Add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(b.done+n, b.total)
}

// Set says how far the run has come, and how far it goes.
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
		line += ", " + time.Duration(float64(took)*(1-part)/part).Round(time.Second).String() + " left"
	}
	_, _ = io.WriteString(b.to, "\r\x1b[K"+line)
}

// Write counts bytes.
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
