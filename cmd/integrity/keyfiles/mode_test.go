package keyfiles_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"integrityledger/cmd/integrity/keyfiles"
)

// TestExposed: a group of the process may read a secret, as with Kubernetes' fsGroup. No other user may.
func TestExposed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own := os.Getegid()
	for _, c := range []struct {
		mode    fs.FileMode
		group   int
		exposed bool
	}{
		{0o400, own, false}, {0o600, own, false}, {0o440, own, false}, {0o640, own, false},
		{0o444, own, true}, {0o644, own, true}, {0o604, own, true}, {0o660, own, true}, {0o450, own, true},
		{0o400, own + 12345, false}, {0o440, own + 12345, true}, {0o640, own + 12345, true},
	} {
		if err := os.Chown(path, -1, c.group); err != nil {
			if c.group == own {
				t.Fatal(err)
			}
			t.Logf("only root can give a file to a foreign group: %v", err)
			continue
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := keyfiles.Exposed(info); got != c.exposed {
			t.Errorf("mode %04o, group %d: exposed %t", c.mode, c.group, got)
		}
	}
}
