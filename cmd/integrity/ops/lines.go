package ops

import (
	"io"
	"sync"
	"time"
)

// Lines batches the lines of a log that are many and alike, such as request lines. It writes a line at once if none was
// written within linesPause. Otherwise the line waits for the rest of that time, or until linesRoom bytes are waiting.
// Lines keep the order of their Write calls. While the destination is slow, Write blocks; no line is dropped. If the
// process ends without Flush, request lines of the last linesPause are lost, but no line written with Through: when its
// Write returns, that line and all lines before it are written. Lines is safe for concurrent use.
type Lines struct {
	to io.Writer

	mu    sync.Mutex
	lines []byte
	wrote time.Time // time of the last write
	later *time.Timer
	err   error // an error that the next Write returns
}

const (
	linesPause = 5 * time.Millisecond
	linesRoom  = 64 << 10
)

// NewLines returns a Lines that writes to a log.
func NewLines(to io.Writer) *Lines { return &Lines{to: to} }

// Write adds a line. It may return the error of an earlier line.
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

// Flush writes the waiting lines.
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

// Through returns a writer that writes each line at once, after the waiting lines.
func (l *Lines) Through() io.Writer { return through{l} }

type through struct{ *Lines }

func (t through) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush()
	return t.to.Write(line)
}
