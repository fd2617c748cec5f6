package worm

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// flooded is a bucket to which somebody has added exports: the server lists these objects, each with the same content.
func flooded(t *testing.T, names []string) *blobs.Locked {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "KEY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
	var list strings.Builder
	for _, name := range names {
		fmt.Fprintf(
			&list, "<Version><Key>%s</Key><VersionId>1</VersionId><LastModified>2026-11-29T10:30:00Z</LastModified></Version>", name,
		)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", "Sun, 29 Nov 2026 10:30:00 GMT")
		if _, versions := r.URL.Query()["versions"]; versions {
			_, _ = fmt.Fprintf(w, "<ListVersionsResult><IsTruncated>false</IsTruncated>%s</ListVersionsResult>", &list)
			return
		}
		_, _ = io.WriteString(w, "x")
	}))
	t.Cleanup(s.Close)
	b, err := blobs.OpenLocked("s3://bucket?region=eu-west-1&use_path_style=true&endpoint="+s.URL, false)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFloodedBucket: a writer of the bucket cannot end an audit with many objects. What lies before the limit is checked,
// and a finding names the object from which on nothing was read.
func TestFloodedBucket(t *testing.T) {
	name := func(day int, file string) string {
		return nameOf(time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC), 1) + "/" + file
	}
	question := Question{
		Issuer: "https://ledger.example", Trusted: must(evidence.NewTrustedKeys(nil, nil, nil)),
		Now: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC), Ledger: Keys{Missing: say.Sentencef("none")},
	}
	var broken []string
	for day := range 28 {
		broken = append(broken, name(day+1, "checkpoint"))
	}
	for what, c := range map[string]struct {
		names   []string
		most    limits
		exports int
		from    string // where the list is cut
		says    string
	}{
		"as many as allowed": {
			[]string{name(1, manifestFile), name(2, manifestFile), name(3, manifestFile)}, limits{3, 3}, 3, "", "",
		},
		"one export more": {
			[]string{name(1, manifestFile), name(2, manifestFile), name(3, manifestFile)}, limits{2, 9}, 2, name(3, manifestFile), "",
		},
		"objects of the last export": {
			[]string{name(1, manifestFile), name(2, manifestFile), name(2, "trusted-keys.json")}, limits{9, 2}, 1,
			name(2, "trusted-keys.json"), "",
		},
		"objects of no export": {
			[]string{"0", "1", "2", name(1, manifestFile)}, limits{9, 2}, 0, "2", "no export of the past was read",
		},
		"exports without manifests": {
			broken, limits{25, 99}, 0, broken[25], "exports of which the same is true: 5 more",
		},
	} {
		r, err := check(t.Context(), flooded(t, c.names), question, c.most)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		cut := fmt.Sprintf("from %q on, nothing was read", c.from)
		said := fmt.Sprint(r.Findings)
		if r.Exports != c.exports || strings.Contains(said, "nothing was read") != (c.from != "") ||
			c.from != "" && (!strings.Contains(said, cut) || !strings.Contains(fmt.Sprint(r.NotChecked), c.from)) ||
			!strings.Contains(fmt.Sprint(r.NotChecked, r.Notes), c.says) {
			t.Errorf("%s: %d exports, %s, not checked %v, notes %v", what, r.Exports, said, r.NotChecked, r.Notes)
		}
	}
}
