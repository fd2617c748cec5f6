package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// initialize makes pgdata. It appears by a rename once it is complete, so a crash leaves either all of it or a pgdata.init
// that the next call throws away. The caller holds the lock.
func initialize(ctx context.Context, l layout, a account, p programs, disposable bool) error {
	if err := os.RemoveAll(l.unfinished); err != nil {
		return fmt.Errorf("remove an unfinished initdb: %w", err)
	}
	if err := os.Mkdir(l.unfinished, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := a.give(l.unfinished); err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + l.unfinished, "--username=" + superuser, "--auth-local=trust", "--auth-host=reject",
		"--data-checksums", "--locale=C", "--encoding=UTF8", "--no-instructions",
	}
	if disposable {
		args = append(args, "--no-sync")
	}
	var output strings.Builder
	c, err := spawn(spawnConfig{
		program: filepath.Join(p.dir, "initdb"), args: args, account: a, dir: "/",
		output: &output, whenWeDie: syscall.SIGKILL,
	})
	if err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.signal(syscall.SIGKILL)
		<-c.exited
		return fmt.Errorf("initdb: %w", ctx.Err())
	}
	if c.err != nil {
		return fmt.Errorf("initdb: %w: %s", c.err, lastLines(output.String(), 5))
	}
	if err := os.Rename(l.unfinished, l.data); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return syncDir(l.dir)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
