package blobs

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

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

// TestHostileListsAndObjects: no server stalls a reader of a bucket with object lock. Errors name the object.
func TestHostileListsAndObjects(t *testing.T) {
	s := serveBucket(t)
	b, err := OpenLocked(strings.Replace(s.url(""), "bucket?", "bucket/of?", 1), false)
	if err != nil {
		t.Fatal(err)
	}
	const version = `<Version><Key>%s</Key><VersionId>%d</VersionId>` +
		`<LastModified>2026-11-29T10:30:00Z</LastModified></Version>`
	page := func(more bool, versions string) string {
		return fmt.Sprintf(`<ListVersionsResult><IsTruncated>%t</IsTruncated>%s</ListVersionsResult>`, more, versions)
	}
	slowly := func(w http.ResponseWriter, text string) {
		for range 2000 {
			if _, err := io.WriteString(w, text); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	n, listed := 0, 0
	for what, c := range map[string]struct {
		list func(w http.ResponseWriter)
		want string
	}{
		"pages without end": {func(w http.ResponseWriter) {
			n++
			time.Sleep(3 * versionTime)
			_, _ = io.WriteString(w, page(true, fmt.Sprintf(version, "of/x", n)))
		}, `after "x": the server does not end the list in time`},
		"empty pages": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, page(true, ""))
		}, "the server does not end the list in time"},
		"a slow page": {func(w http.ResponseWriter) { slowly(w, " ") }, "the server does not end the list in time"},
		"a huge page": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, page(false, strings.Repeat(" ", maxPage)))
		}, "the answer is longer than 8388608 bytes"},
		"another prefix": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, page(false, fmt.Sprintf(version, "of/x", 1)+fmt.Sprintf(version, "y", 1)))
		}, `after "x": the server lists "y", which does not have the prefix`},
		"a long name": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, page(false, fmt.Sprintf(version, "of/"+strings.Repeat("x", 1022), 1)))
		}, `after "": the name of "of/` + strings.Repeat("x", 97) + `"…, or the ID of its version, has more than 1024 bytes`},
		"a long version": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, page(false, strings.Replace(fmt.Sprintf(version, "of/x", 1), ">1<", ">"+strings.Repeat("1", 1025)+"<", 1)))
		}, `the name of "of/x"…, or the ID of its version`},
	} {
		b.patience = 200 * time.Millisecond
		if what == "a huge page" {
			b.patience = time.Minute
		}
		s.refuse = func(w http.ResponseWriter, _ int) bool { c.list(w); return true }
		begun := time.Now()
		err := b.Versions(t.Context(), "", func(Version) error { listed++; return nil })
		if err == nil || !strings.Contains(err.Error(), "list the objects of s3://bucket/of, after ") ||
			!strings.Contains(err.Error(), c.want) || time.Since(begun) > 20*time.Second {
			t.Errorf("%s: %v after %s and %d objects", what, err, time.Since(begun), listed)
		}
	}
	b.patience = 200 * time.Millisecond
	s.refuse = func(w http.ResponseWriter, _ int) bool { slowly(w, "x"); return true }
	if _, _, err := b.Read(t.Context(), Version{Name: "day/manifest.json", ID: "1"}, 1000); err == nil ||
		!strings.Contains(err.Error(), "read day/manifest.json: the server does not send it in time") {
		t.Errorf("slow bytes: %v", err)
	}
	b.patience = time.Minute
	s.refuse = func(w http.ResponseWriter, _ int) bool {
		w.Header().Set("Last-Modified", "Sun, 29 Nov 2026 10:30:00 GMT")
		w.Header().Set("X-Amz-Object-Lock-Mode", "COMPLIANCE")
		_, _ = io.WriteString(w, strings.Repeat("x", maxPage-1))
		return true
	}
	if text, _, err := b.Read(t.Context(), Version{Name: "huge", ID: "1"}, 1000); err != nil || len(text) != 1001 {
		t.Errorf("a huge object: %d bytes, %v", len(text), err)
	}
}
