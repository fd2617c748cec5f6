// Command release builds everything that a release consists of: static programs, Debian packages, a container image,
// the list of their components, and SHA256SUMS. It registers each file in the release ledger, which it starts for that,
// and compares each with its record.
//
// The files depend only on the commit and the version of Go in go.mod: another machine, user or directory gives the
// same bytes, so a stranger's build can be compared with the ledger. Records and evidence carry times and are different
// each time.
//
// The release ledger outlives releases and stays outside the sources. Its signing key is created with it, and the
// trusted-keys file that pins the key is read before anything is built. Each file is a document, and the release is its
// version: a release cannot be registered twice with different bytes, and after the next release its files compare as
// historical.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root := flag.String("source", "../..", "root of the sources: a clean checkout")
	out := flag.String("out", "", "directory of the release (default: bin/release in the sources)")
	ledger := flag.String("ledger", "", "directory of the release ledger (default: "+shownLedger()+")")
	base := flag.String("base-url", "", "address at which the release ledger is published (default: this machine)")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	var err error
	for _, path := range []*string{root, out, ledger} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	if *out == "" {
		*out = filepath.Join(*root, "bin/release")
	}
	if *ledger == "" {
		if *ledger, err = defaultLedger(); err != nil {
			return err
		}
	}
	l := releaseLedger{dir: *ledger, base: *base}
	if err := l.outside(*root, *out); err != nil {
		return err
	}
	if err := l.pin(); err != nil {
		return err
	}
	s, err := readSource(ctx, *root)
	if err != nil {
		return err
	}
	fmt.Printf("Release %s of commit %s, with %s.\n", s.version, s.commit, s.toolchain)
	files, err := build(ctx, s, *out, platforms())
	if err != nil {
		return err
	}
	return errors.Join(l.register(ctx, s, files), ctx.Err())
}

// shownLedger is the default for people.
func shownLedger() string {
	dir, err := defaultLedger()
	if err != nil {
		return err.Error()
	}
	return dir
}

// defaultLedger is a directory of this user. The database of root's ledger belongs to another user, who must reach it.
func defaultLedger() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/integrity-releases", nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "integrity-releases"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("choose the directory of the release ledger: %w", err)
	}
	return filepath.Join(home, ".local/share/integrity-releases"), nil
}
