package ops

import (
	"io"
	"sync"
	"time"
)

// Lines writes the lines of a log that are many and alike, those of requests, several at a time. A line that comes
// alone is written at once; what follows it within linesPause waits for the rest of that time, or until linesRoom bytes
// are there. The order of all lines stays that of their Write. While the destination is slow, Write waits: nothing is
// dropped. A process that ends without Flush loses the lines of the last linesPause at most, and only those of
// requests: what is written Through is there, with all before it, when Write returns. Lines is safe for concurrent use.
type Lines struct {
	to io.Writer

	mu    sync.Mutex
	lines []byte
	wrote time.Time // last
	later *time.Timer
	err   error // of a write that Write could not answer for
}

const (
	linesPause = 5 * time.Millisecond
	linesRoom  = 64 << 10
)

// NewLines writes to a log.
func NewLines(to io.Writer) *Lines { return &Lines{to: to} }

// Write takes a line. It answers for an earlier one that could not be written.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := len(l.lines) > 0
	if l.lines = append(l.lines, line...); len(l.lines) >= linesRoom {
		l.flush()
	} else if !waiting {
		if pause := linesPause - time.Since(l.wrote); pause <= 0 {
			l.flush()
		} else if l.later == nil {
			l.later = time.AfterFunc(pause, l.Flush)
		} else {
			l.later.Reset(pause)
		}
	}
	err := l.err
	l.err = nil
	return len(line), err
}

// Flush writes what waits.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

func (l *Lines) flush() {
	if len(l.lines) == 0 {
		return
	}
	if _, err := l.to.Write(l.lines); err != nil {
		l.err = err
	}
	l.lines, l.wrote = l.lines[:0], time.Now()
}

// Through writes each line at once, after those that wait.
func (l *Lines) Through() io.Writer { return through{l} }

type through struct{ *Lines }

func (t through) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush()
	return t.to.Write(line)
}
