package blobs

import (
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/outbound/peertest"
)

// TestHostileServer: an S3 server that switches protocols stores nothing and blocks no caller.
func TestHostileServer(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	endpoint := peertest.Serve(t, peertest.Switching)
	c := &Store{URL: "s3://bucket?region=eu-west-1&use_path_style=true&disable_https=true&endpoint=" + endpoint}
	o, v := domain.OrganizationID{1}, domain.ArtifactVersionID{2}
	if err := c.store(t.Context(), contentName(o, v), strings.NewReader("bytes"), 5); err == nil {
		t.Error("the bytes are kept")
	}
	if err := c.Remove(t.Context(), o, v); err == nil {
		t.Error("the bytes are gone")
	}
}
