package blobs

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestOwnAuthority: a server certificate is trusted if an authority in AWS_CA_BUNDLE has signed it.
func TestOwnAuthority(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
	}))
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
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
