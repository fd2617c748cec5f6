package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"integrityledger/eventstore/postgres"
)

// smallDisk returns a directory on its own file system.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	dir := filepath.Dir(dataDir(t))
	if out, err := exec.CommandContext(
		t.Context(), "mount", "-t", "tmpfs", "-o", "mode=0755,size="+size, "tmpfs", dir,
	).CombinedOutput(); err != nil {
		t.Skipf("this machine does not let root mount a small disk: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "--lazy", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return dir
}

// TestNoRoomAtFirstStart: initdb fails and the error gives the reason. With space, the same directory starts.
func TestNoRoomAtFirstStart(t *testing.T) {
	disk := smallDisk(t, "30m")
	dir := filepath.Join(disk, "data")
	_, err := postgres.Start(t.Context(), config(dir))
	if !errors.Is(err, postgres.ErrNoRoom) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
	if out, err := exec.CommandContext(
		t.Context(), "mount", "-o", "remount,size=300m", disk,
	).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	query(t, start(t, config(dir)), "SELECT 'x'")
}

// TestNoRoomAtALaterStart: PostgreSQL cannot recover without space, but nothing is lost.
func TestNoRoomAtALaterStart(t *testing.T) {
	disk := smallDisk(t, "300m")
	dir := filepath.Join(disk, "data")
	s := start(t, config(dir))
	query(t, s, "CREATE TABLE kept AS SELECT 7 AS n")
	stop(t, s)
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	if _, err := postgres.Start(t.Context(), config(dir)); !errors.Is(err, postgres.ErrNoRoom) {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if got := query(t, start(t, config(dir)), "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("read %q", got)
	}
}

// fill fills the disk completely.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := bytes.Repeat([]byte{1}, 1<<20); len(block) > 0; block = block[:len(block)/2] {
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
	}
}

// lines is a log whose lines a test can wait for.
type lines struct {
	mu      sync.Mutex
	written bytes.Buffer
	more    chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.written.Write(p)
}

// TestSaysForWhomItWaits: it is logged at once, and once for each holder.
func TestSaysForWhomItWaits(t *testing.T) {
	dir := dataDir(t)
	s := runService(t, dir)
	log := &lines{more: make(chan struct{}, 1)}
	cfg := config(dir)
	cfg.Log, cfg.Wait = slog.New(slog.NewTextHandler(log, nil)), patience
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := postgres.Start(ctx, cfg)
		ended <- err
	}()
	<-log.more
	cancel()
	var held *postgres.HeldError
	if err := <-ended; !errors.As(err, &held) || held.PID != s.cmd.Process.Pid {
		t.Errorf("got %v", err)
	}
	said := log.written.String()
	for _, part := range []string{"waiting for the data directory", "level=WARN", `command="test service"`} {
		if strings.Count(said, part) != 1 {
			t.Errorf("it says %q", said)
		}
	}
}
