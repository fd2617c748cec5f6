package worm

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
)

// flooded is a bucket to which somebody has added exports: the server lists these objects, each with the same content. A
// name that stands more than once has as many versions, the newest first.
func flooded(t *testing.T, names []string, serve ...http.HandlerFunc) *blobs.Locked {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "KEY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
	var list strings.Builder
	for i, name := range names {
		fmt.Fprintf(
			&list, "<Version><Key>%s</Key><VersionId>%d</VersionId><LastModified>%s</LastModified></Version>", name, len(names)-i,
			evidence.FormatTime(time.Date(2026, 11, 29, 10, 30, len(names)-i, 0, time.UTC)),
		)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", "Sun, 29 Nov 2026 10:30:00 GMT")
		if _, versions := r.URL.Query()["versions"]; versions {
			_, _ = fmt.Fprintf(w, "<ListVersionsResult><IsTruncated>false</IsTruncated>%s</ListVersionsResult>", &list)
			return
		}
		for _, h := range serve {
			h(w, r)
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

// folder is the name of an export.
func folder(day int) string { return nameOf(time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC), 1) }

func name(day int, file string) string { return folder(day) + "/" + file }

// question is asked after the exports of November 1 to 28.
var question = Question{
	Issuer: "https://ledger.example", Trusted: must(evidence.NewTrustedKeys(nil, nil, nil)),
	Now: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC), Ledger: Keys{Missing: say.Sentencef("none")},
}

// TestFloodedBucket: a writer of the bucket cannot end an audit with many objects. What lies before the limit is checked,
// and a finding names the object from which on nothing was read.
func TestFloodedBucket(t *testing.T) {
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
			[]string{name(1, manifestFile), name(2, manifestFile), name(3, manifestFile)}, limits{exports: 3, versions: 3}, 3,
			"", "",
		},
		"one export more": {
			[]string{name(1, manifestFile), name(2, manifestFile), name(3, manifestFile)}, limits{exports: 2, versions: 9}, 2,
			folder(3), "",
		},
		"objects of the last export": {
			[]string{name(1, manifestFile), name(2, manifestFile), name(2, "trusted-keys.json")}, limits{exports: 9, versions: 2}, 1,
			folder(2), "",
		},
		"objects of no export": {
			[]string{"0", "1", "2", name(1, manifestFile)}, limits{exports: 9, versions: 2}, 0, "2", "no export with a past date was read",
		},
		"exports without manifests": {
			broken, limits{exports: 25, versions: 99}, 0, folder(26), "and 5 more exports",
		},
		"a server that lists markers first": {
			[]string{name(9, manifestFile), name(1, "checkpoint"), name(2, manifestFile)}, limits{exports: 9, versions: 2}, 0,
			folder(2), "the export " + folder(1) + " has no manifest among the objects that were listed",
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
			!strings.Contains(fmt.Sprint(r.NotChecked, r.Notes), c.says) ||
			c.from != "" && strings.Contains(fmt.Sprint(r.Notes), "broken off") {
			t.Errorf("%s: %d exports, %s, not checked %v, notes %v", what, r.Exports, said, r.NotChecked, r.Notes)
		}
	}
}

// TestRefusedVersions: a writer of the bucket can store versions that the auditor may not read. They do not end the audit.
// If nothing can be read at all, that is an error.
func TestRefusedVersions(t *testing.T) {
	names := []string{name(1, manifestFile), name(1, manifestFile), name(2, manifestFile)} // versions 3, 2 and 1
	for code, status := range map[string]int{"InvalidObjectState": 403, "InvalidRequest": 400, "AccessDenied": 403} {
		audited := func(versions string) (*Report, error) {
			return Check(t.Context(), flooded(t, names, func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(versions, r.URL.Query().Get("versionId")) {
					w.WriteHeader(status)
					_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>m</Message></Error>", code)
					return
				}
				_, _ = io.WriteString(w, "x")
			}), question)
		}
		for versions, c := range map[string]struct {
			at     int // second of the version
			unread string
		}{"3": {3, ""}, "2": {2, "objects that cannot be read: 1. The first: s3://bucket/" + names[0]}} {
			r, err := audited(versions)
			want := fmt.Sprintf(
				"%s: expected an object that can be read, found a version written at 2026-11-29T10:30:0%dZ that cannot be read: %s",
				names[0], c.at, code,
			)
			if err != nil || r.Exports != 2 || !strings.Contains(fmt.Sprint(r.Findings), want) ||
				!strings.Contains(fmt.Sprint(r.NotChecked), c.unread) {
				t.Errorf("%s of version %s: %v, %+v", code, versions, err, r)
			}
		}
		if r, err := audited("123"); err == nil || !strings.Contains(err.Error(), "refuses every object") {
			t.Errorf("%s of everything: %v, %+v", code, err, r)
		}
	}
	// A refused file is not a missing one, and a refused manifest is not another.
	m := manifest()
	text := must(m.text())
	manifest, note := example+"/"+manifestFile, example+"/"+bundle.CheckpointFile
	r, err := Check(t.Context(), flooded(t, []string{earlier + "/" + manifestFile, note, manifest}, func(
		w http.ResponseWriter, r *http.Request,
	) {
		if !strings.HasSuffix(r.URL.Path, manifest) {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write(text)
	}), question)
	if err != nil || r.Exports != 2 || !strings.Contains(fmt.Sprint(r.NotChecked), "cannot be read: 2. The first: s3://bucket/"+earlier) {
		t.Errorf("%v, %+v", err, r)
	}
	if said := fmt.Sprint(r.Findings); strings.Contains(said, note+": expected the file") || strings.Contains(said, "of SHA-256") {
		t.Errorf("refused objects are also missing or others: %s", said)
	}
	for want, list := range map[bool][]minio.ErrorResponse{
		true: {{StatusCode: 404, Code: "NoSuchKey"}, {StatusCode: 400, Code: "KMS.DisabledException"}},
		false: {
			{StatusCode: 403, Code: "SignatureDoesNotMatch"}, {StatusCode: 400, Code: "ExpiredToken"},
			{StatusCode: 429, Code: "x"}, {StatusCode: 503, Code: "SlowDown"}, {},
		},
	} {
		for _, response := range list {
			if _, refused := refusal(fmt.Errorf("read: %w", response)); refused != want {
				t.Errorf("%+v: %t", response, refused)
			}
		}
	}
}

// Of too many different trusted-keys files, an audit compares those of the first exports by name, whichever the storage
// sends first.
func TestKeysInOrder(t *testing.T) {
	served := make(chan struct{})
	first := sync.OnceFunc(func() { close(served) })
	b := flooded(t, []string{name(1, bundle.TrustedKeysFile), name(2, bundle.TrustedKeysFile)}, func(
		w http.ResponseWriter, r *http.Request,
	) {
		key := evidence.TrustedKey{PublicKey: evidence.GenerateSigner().Key()}
		text := must(must(evidence.NewTrustedKeys([]evidence.TrustedKey{key}, nil, nil)).Marshal())
		switch {
		case strings.Contains(r.URL.Path, folder(1)):
			<-served
		case r.Method == http.MethodHead: // after the file was read
			first()
		}
		_, _ = w.Write(text)
	})
	known := &sets{known: map[string]*keySet{}}
	for i := range maxSets - 1 {
		known.known[fmt.Sprint(i)] = newKeySet(question.Trusted)
	}
	l := must(limits{exports: 9, versions: 9}.list(t.Context(), b, ""))
	read, _, err := l.read(t.Context(), b, question, time.Minute, known)
	if err != nil || len(read) != 2 || read[0].keys == nil || read[0].surplus || read[1].keys != nil || !read[1].surplus {
		t.Errorf("%+v %v", read, err)
	}
}

// TestLateExports: if the time is up, the exports that were read before are compared. The time grows with the number of
// versions.
func TestLateExports(t *testing.T) {
	var names []string
	for day := range 28 {
		names = append(names, name(day+1, manifestFile))
	}
	r, err := check(t.Context(), flooded(t, names, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, folder(20)) {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, "x")
	}), question, limits{exports: 99, versions: 99, time: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	from := folder(r.Exports + 1)
	if r.Exports > 19 || !strings.Contains(fmt.Sprint(r.Findings), fmt.Sprintf("fewer: from %q on, nothing was compared", from)) ||
		!strings.Contains(fmt.Sprint(r.NotChecked), fmt.Sprintf("the exports from %q on: reading took too long", from)) {
		t.Errorf("%d exports, %v, %v", r.Exports, r.Findings, r.NotChecked)
	}
	several := &versions{first: &blobs.Version{}, later: 99, newest: make([]blobs.Version, maxReplacements)}
	l := Listing{Exports: []*Export{
		{files: map[string]*versions{"a": several, "b": several, "deleted": {deleted: true}}}, {files: map[string]*versions{"c": {first: &blobs.Version{}}}},
	}}
	if got := l.ReadingTime(); got != readingTime+19*versionTime {
		t.Errorf("reading 19 versions may take %s", got)
	}
}

// TestNoise: a writer of the bucket can cause any number of findings and names. The first ones are listed.
func TestNoise(t *testing.T) {
	var list []*reading
	for i := range 40 {
		e := &reading{Export: &Export{}, bucket: &blobs.Locked{}}
		for j := range 97 {
			e.uncounted = append(e.uncounted, fmt.Sprintf("witness/%d/%d", i, j))
			e.unpinned = append(e.unpinned, fmt.Sprintf("authority-%d-%d", i, j))
			e.found(audit.CheckExport, "f", say.Sentencef("a"), say.Sentencef("b"))
		}
		if len(e.findings) != maxListed || e.more != 97-maxListed {
			t.Errorf("of an export: %d findings and %d more", len(e.findings), e.more)
		}
		list = append(list, e)
	}
	r := &Report{}
	for _, e := range list {
		r.found(e.findings...)
	}
	if len(r.Findings) != maxFindings || r.More != 40*maxListed-maxFindings {
		t.Errorf("of the bucket: %d findings and %d more", len(r.Findings), r.More)
	}
	r.begin(1)
	r.found(list[0].findings...)
	if len(r.Findings) != maxFindings+1 || r.More != 41*maxListed-maxFindings-1 {
		t.Errorf("of another kind: %d findings and %d more", len(r.Findings), r.More)
	}
	r.vouching(list, question.Trusted)
	if notes := fmt.Sprint(r.Notes); !strings.Contains(notes, "witness/0/19, 3860 more") || strings.Contains(notes, "witness/0/20") {
		t.Errorf("witnesses: %s", notes)
	}
	if open := fmt.Sprint(r.NotChecked); !strings.Contains(open, "authority-0-19, 3860 more") || strings.Contains(open, "authority-0-20") {
		t.Errorf("authorities: %s", open)
	}
}
