package blobs

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestOwnAuthority: a store whose certificate is from an authority that AWS_CA_BUNDLE names is asked.
func TestOwnAuthority(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", authority)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	c := &Store{URL: "s3://bucket?region=eu-west-1&use_path_style=true&endpoint=" + server.URL}
	bucket, err := c.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if there, err := bucket.Exists(t.Context(), "a"); there || err != nil {
		t.Errorf("%t: %v", there, err)
	}
}
