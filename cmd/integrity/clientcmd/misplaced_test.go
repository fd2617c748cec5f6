package clientcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMisplaced: files of another place of verify are named as such, and an unknown file is not.
func TestMisplaced(t *testing.T) {
	for text, says := range map[string]string{
		"%PDF-1.7\n": "is a PDF", "c2sp.org/tlog-proof@v1\n": "is a transparency log proof",
		`{"payload":"p","signature":"s"}`: "is a receipt", "{}": "", "x": "",
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := misplaced(path)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	if r := serviceRefusal([]byte(`{"error":{"code":"NOT_FOUND","detail":"d"}}`)); r == nil || r.Code != "NOT_FOUND" {
		t.Errorf("a refusal: %+v", r)
	}
	if r := serviceRefusal([]byte("c2sp.org/tlog-proof@v1")); r != nil {
		t.Errorf("a proof: %+v", r)
	}
}
