package postgres

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestWithoutRefusals: however many connections a stopping server refuses, the reason stays among the last lines.
func TestWithoutRefusals(t *testing.T) {
	const reason = "2026-11-21 19:37:30.700 UTC [1] FATAL:  recovery ended before configured recovery target was reached\n"
	said := "2026-11-21 19:37:30.699 UTC [2] FATAL:  the database system is starting up\n" + reason +
		"2026-11-21 19:37:30.705 UTC [3] FATAL:  the database system is not accepting connections\n" +
		"2026-11-21 19:37:30.706 UTC [4] FATAL:  the database system is shutting down\n" +
		"2026-11-21 19:37:30.707 UTC [5] LOG:  invalid length of startup packet\n"
	if got := withoutRefusals(said); got != reason {
		t.Errorf("%q", got)
	}
}

// TestDisownBesideLeavingPredecessor: it is no error if a postmaster removes its postmaster.pid meanwhile, and the file
// is not created again. PostgreSQL could not read it as its user.
func TestDisownBesideLeavingPredecessor(t *testing.T) {
	dir := t.TempDir()
	l := layout{data: dir, socket: t.TempDir()}
	path, written := filepath.Join(dir, "postmaster.pid"), filepath.Join(dir, "written")
	for range 2000 {
		if err := os.WriteFile(written, []byte(strconv.Itoa(1<<22)+"\n"+dir+"\n"), 0o600); err != nil {
			// no process has this number
			t.Fatal(err)
		}
		if err := os.Rename(written, path); err != nil {
			t.Fatal(err)
		}
		removed := make(chan error, 1)
		go func() { removed <- os.Remove(path) }()
		if err := disownRecycledPID(l); err != nil {
			t.Fatal(err)
		}
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Fatalf("postmaster.pid after its removal: %v", err)
		}
	}
}
