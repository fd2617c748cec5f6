package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	args := []string{"--username=" + superuser, "--auth-local=peer", "--auth-host=reject", "--data-checksums", "--locale=C", "--encoding=UTF8", "--no-instructions"}
	if disposable {
		args = append(args, "--no-sync")
	}
	program := filepath.Join(p.dir, "initdb")
	var err error
	if _, nameless := systemName(a.uid); nameless != nil && a.other {
		err = a.initializeNameless(ctx, l.unfinished, program, args)
	} else {
		err = a.run(ctx, program, append(args, "--pgdata="+l.unfinished)...)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(l.unfinished, l.data); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return syncDir(l.dir)
}

// initializeNameless is for an account without a name, as which initdb does not run: another one makes the files. The
// account gets copies of them, because a link to something else of the machine's could be among the other one's own.
func (a account) initializeNameless(ctx context.Context, data, program string, args []string) error {
	other, err := borrowed()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "integrity-initdb-*")
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := other.give(temp); err != nil {
		return err
	}
	if err := other.run(ctx, program, append(args, "--pgdata="+temp)...); err != nil {
		return err
	}
	if err := os.Remove(data); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := a.copyTree(temp, data); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return a.run(ctx, program, "--sync-only", "--pgdata="+data)
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
