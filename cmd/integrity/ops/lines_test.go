package ops

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// writes records each Write.
type writes struct {
	mu   sync.Mutex
	each []string
	err  error
	wait chan struct{} // nil: Write does not block
}

func (w *writes) Write(p []byte) (int, error) {
	if w.wait != nil {
		<-w.wait
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.each = append(w.each, string(p))
	return len(p), w.err
}

func (w *writes) want(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.each, "|"); got != strings.Join(want, "|") {
		t.Fatalf("written: %q, must be %q", got, want)
	}
}

// TestLinesWait: a single line is written at once, lines that follow soon are written together, and a line written
// through comes after them.
func TestLinesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &writes{}
		lines := NewLines(to)
		write := func(text string) {
			if n, err := lines.Write([]byte(text)); n != len(text) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		time.Sleep(time.Hour)
		write("a")
		to.want(t, "a")
		write("b")
		write("c")
		to.want(t, "a")
		time.Sleep(linesPause)
		synctest.Wait()
		to.want(t, "a", "bc")
		write("d")
		if _, err := lines.Through().Write([]byte("E")); err != nil {
			t.Error(err)
		}
		to.want(t, "a", "bc", "d", "E")
		write("f")
		lines.Flush()
		to.want(t, "a", "bc", "d", "E", "f")
		time.Sleep(linesPause)
		synctest.Wait()
		write("g")
		to.want(t, "a", "bc", "d", "E", "f", "g")
		long := strings.Repeat("h", linesRoom)
		write(long)
		to.want(t, "a", "bc", "d", "E", "f", "g", long)
		to.err = errors.New("full")
		write("i")
		lines.Flush()
		if _, err := lines.Write([]byte("j")); err == nil {
			t.Error("nobody learns that a line could not be written")
		}
	})
}

// TestLinesKeepTheOrder: each goroutine's lines stay in order, whole and without repetition, while others are written
// through.
func TestLinesKeepTheOrder(t *testing.T) {
	var to bytes.Buffer
	lines := NewLines(&to)
	requests, log := slog.New(slog.NewTextHandler(lines, nil)), slog.New(slog.NewTextHandler(lines.Through(), nil))
	const writers, each = 8, 2000
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if i%100 == 99 {
					log.Info("through", "writer", w, "line", i)
				} else {
					requests.Info("request", "writer", w, "line", i)
				}
			}
		})
	}
	group.Wait()
	lines.Flush()
	var next [writers]int
	for line := range strings.Lines(to.String()) {
		var w, i int
		if _, err := fmt.Sscanf(line[strings.Index(line, "writer="):], "writer=%d line=%d\n", &w, &i); err != nil ||
			i != next[w] {
			t.Fatalf("%s: %v, line %d must follow", line, err, next[w])
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			t.Errorf("writer %d: %d lines of %d", w, n, each)
		}
	}
}

// TestSlowLogBlocksWrites: the waiting lines are bounded, because Write blocks while the destination is slow.
func TestSlowLogBlocksWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &writes{wait: make(chan struct{})}
		lines := NewLines(to)
		line, written := bytes.Repeat([]byte("x"), 1<<10), 0
		go func() {
			for range 1000 {
				_, _ = lines.Write(line)
				written++
			}
		}()
		synctest.Wait()
		if written > linesRoom/len(line) {
			t.Errorf("%d lines were taken and none is written", written)
		}
		close(to.wait)
		synctest.Wait()
		lines.Flush()
		if got := len(strings.Join(to.each, "")); written != 1000 || got != 1000*len(line) {
			t.Errorf("%d lines, %d bytes", written, got)
		}
	})
}
