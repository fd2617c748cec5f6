package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/eventstore/postgres"
)

// TestRefusesAServerThatIsNotItsOwn tries an ordinary server, and one that only has a matching name.
func TestRefusesAServerThatIsNotItsOwn(t *testing.T) {
	for name, foreign := range map[string]struct{ cluster, token string }{
		"ordinary":             {cluster: "integrity"},
		"name without a token": {cluster: Prefix},
		"empty token":          {cluster: Prefix, token: "\n"},
		"no marker":            {cluster: Prefix + "ABC"},
		"another's marker":     {cluster: Prefix + "ABC", token: "DEF"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			dir, err := os.MkdirTemp("", "foreign-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			if foreign.token != "" {
				if err := os.WriteFile(filepath.Join(dir, marker), []byte(strings.TrimSpace(foreign.token)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			server, err := postgres.Start(
				ctx, postgres.Config{DataDir: dir, Disposable: true, Settings: map[string]string{"cluster_name": foreign.cluster}},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := server.Stop(ctx); err != nil {
					t.Error(err)
				}
			}()
			if _, err := create(ctx, server.URL("postgres")); err == nil ||
				!strings.Contains(err.Error(), "refusing to touch it") {
				t.Errorf("create: %v", err)
			}
			if err := drop(ctx, server.URL("postgres"), postgres.Database); err == nil ||
				!strings.Contains(err.Error(), "refusing to touch it") {
				t.Errorf("drop: %v", err)
			}
		})
	}
}

func TestSweepTakesOnlyWhatWasAbandoned(t *testing.T) {
	ctx := context.Background()
	temp, err := os.MkdirTemp("", "sweep") // short for the socket, and not swept by other runs
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	running, err := Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := running.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	made := map[string]bool{running.dir: true} // what must stay
	for name, stays := range map[string]bool{"abandoned": false, "young": true, "unmarked": true} {
		dir, err := os.MkdirTemp(temp, Prefix)
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		made[dir] = stays
		if name != "unmarked" {
			if err := os.WriteFile(filepath.Join(dir, marker), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if name == "abandoned" {
			age(t, dir)
		}
	}
	age(t, running.dir)
	sweep(ctx, temp)
	for dir, stays := range made {
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s: should stay %v: %v", dir, stays, err)
		}
	}
}

func age(t *testing.T, dir string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, marker), then, then); err != nil {
		t.Fatal(err)
	}
}
