package blobs

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestLockedURLs: the path is the prefix, and errors name the mistake.
func TestLockedURLs(t *testing.T) {
	serveBucket(t)
	now := time.Date(2028, 2, 29, 10, 0, 0, 5, time.UTC)
	for text, want := range map[string]struct{ name, prefix, until string }{
		"s3://b?object-lock=compliance&days=30":              {"s3://b", "", "2028-03-30T10:00:00Z"},
		"s3://b/?object-lock=governance&years=1":             {"s3://b", "", "2029-03-01T10:00:00Z"},
		"s3://b/a/c/?object-lock=compliance&days=1&region=x": {"s3://b/a/c", "a/c/", "2028-03-01T10:00:00Z"},
	} {
		b, err := OpenLocked(text, true)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if until := b.Until(now).Format(time.RFC3339); b.Name != want.name || b.prefix != want.prefix ||
			until != want.until || b.Governance() != strings.Contains(text, "governance") {
			t.Errorf("%s: %s %q until %s", text, b.Name, b.prefix, until)
		}
	}
	for text, want := range map[string]string{
		"s3://b":                                            "are missing",
		"s3://b?days=1":                                     "are missing",
		"s3://b?years=1":                                    "are missing",
		"s3://b?object-lock=compliance":                     "either days or years",
		"s3://b?object-lock=on&days=1":                      "compliance or governance",
		"s3://b?object-lock=compliance&days":                "either days or years",
		"s3://b?object-lock=compliance&days=36501":          "from 1 to 36500",
		"s3://b?object-lock=compliance&years=101":           "from 1 to 100",
		"s3://b?object-lock=compliance&days=1&years=1":      "either days or years",
		"s3://b?object-lock=compliance&days=1&prefix=x":     `"prefix"`,
		"file:///b?object-lock=compliance&days=1":           "s3://bucket/prefix",
		"s3://user@b?object-lock=compliance&days=1":         "s3://bucket/prefix",
		"s3://b?object-lock=compliance&days=1#x":            "s3://bucket/prefix",
		"s3://b?object-lock=compliance&days=1&endpoint=b:1": "endpoint",
	} {
		if b, err := OpenLocked(text, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v", text, b, err)
		}
	}
	if b, err := OpenLocked("s3://b/a?region=x", false); err != nil || b.mode != "" {
		t.Errorf("for reading: %+v %v", b, err)
	}
}

// TestLockedWrite: the server is asked to lock the object and not to replace one. A server that ignores this is found.
func TestLockedWrite(t *testing.T) {
	s := serveBucket(t)
	b, err := OpenLocked(strings.Replace(s.url("&object-lock=compliance&days=1"), "bucket?", "bucket/of/ledger?", 1), true)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := b.Write(t.Context(), "name", []byte("bytes"), until); err == nil ||
		!strings.Contains(err.Error(), "has not locked it until 2030-01-02T03:04:05Z") {
		t.Errorf("a server without object lock: %v", err)
	}
	put := s.asked[0]
	for name, want := range map[string]string{
		"If-None-Match": "*", "X-Amz-Object-Lock-Mode": "COMPLIANCE",
		"X-Amz-Object-Lock-Retain-Until-Date": "2030-01-02T03:04:05Z",
	} {
		if got := put.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if put.Method != http.MethodPut || put.URL.Path != "/bucket/of/ledger/name" ||
		put.Header.Get("X-Amz-Checksum-Sha256") == "" {
		t.Errorf("%s %s: %v", put.Method, put.URL, put.Header)
	}
	s.refuse = func(w http.ResponseWriter, _ int) bool {
		s3Error(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return true
	}
	if err := b.Write(t.Context(), "name", []byte("bytes"), until); err == nil ||
		!strings.Contains(err.Error(), ErrWritten.Error()) {
		t.Errorf("an object that is there: %v", err)
	}
}
