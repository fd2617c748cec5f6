package handlers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// A manifest is reviewed with the manifest in any JSON spelling. Another manifest, or other bytes of a file, are not
// the registered content.
func TestManifestReviews(t *testing.T) {
	s := open(t, options{})
	one := `{"path":"a/é.txt","size":1,"sha256":"` + hash("a") + `"}`
	two := `{"path":"b","size":2,"sha256":"` + hash("b") + `"}`
	text := func(files ...string) string {
		return `{"kind":"service-file-manifest","version":1,"algorithm":"SHA-256","files":[` + strings.Join(files, ",") + `]}`
	}
	register := func(b body) workVersion {
		t.Helper()
		return work(s.post(certificationAction+"/artifacts", b), "")
	}
	manifest := register(body{"title": "a", "kind": "manifest", "manifest": json.RawMessage(text(one, two))})
	review := func(v workVersion, content string) answer {
		t.Helper()
		v.content = content
		return s.reviewed(v, "accepted")
	}
	m, _, err := domain.ReadManifest(meter(), []byte(text(one, two)))
	check(t, err)
	for name, content := range map[string]string{
		"as it was sent": text(one, two), "canonical": string(m.Canonical()),
		"with white space": "\n " + strings.ReplaceAll(text(one, two), ",", " ,\r\n\t"),
		"in another order of members": `{"files":[` + one + `,{"sha256":"` + hash("b") +
			`","size":2,"path":"b"}],"version":1,"algorithm":"SHA-256","kind":"service-file-manifest"}`,
		"with escapes":      strings.Replace(text(one, two), "é", `\u00e9`, 1),
		"as long as may be": text(one, two) + strings.Repeat(" ", domain.MaxManifestBytes-len(text(one, two))),
	} {
		if a := review(manifest, content); a.status != http.StatusCreated {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	for name, content := range map[string]string{
		"another order of files": text(two, one), "a file less": text(one),
		"another size":      text(strings.Replace(one, `"size":1`, `"size":2`, 1), two),
		"another path":      text(strings.Replace(one, "é", "e", 1), two),
		"an unknown member": strings.Replace(text(one, two), `"version":1`, `"version":1,"x":1`, 1),
		"another version":   strings.Replace(text(one, two), `"version":1`, `"version":1.0`, 1), "no JSON": "manifest",
		"nothing":            "",
		"a member twice":     strings.Replace(text(one, two), `"version":1`, `"version":1,"version":1`, 1),
		"longer than may be": text(one, two) + strings.Repeat(" ", domain.MaxManifestBytes),
	} {
		a := review(manifest, content)
		t.Log(name)
		a.refuses(http.StatusUnprocessableEntity, domain.FileDoesNotMatchVersion)
	}
	// The same bytes registered as a file are matched byte for byte.
	file := register(body{"title": "a", "kind": "text", "text": text(one, two)})
	if a := review(file, text(one, two)); a.status != http.StatusCreated {
		t.Errorf("a text: %d %s", a.status, a.body)
	}
	review(file, text(one, two)+"\n").refuses(http.StatusUnprocessableEntity, domain.FileDoesNotMatchVersion)
	canonical := register(body{"title": "a", "kind": "text", "text": string(m.Canonical())})
	review(canonical, text(one, two)).refuses(http.StatusUnprocessableEntity, domain.FileDoesNotMatchVersion)
}

// The text of a manifest has the same limit at every endpoint.
func TestManifestsHaveOneLimit(t *testing.T) {
	s := open(t, options{})
	good := `{"kind":"service-file-manifest","version":1,"algorithm":"SHA-256","files":[{"path":"a","size":1,"sha256":"` + hash("a") + `"}]}`
	padded := func(size int) string { return strings.Replace(good, ":", ":"+strings.Repeat(" ", size-len(good)), 1) }
	send := func(manifest string) answer {
		return s.post(certificationAction+"/artifacts", `{"title":"a","kind":"manifest","manifest":`+manifest+`}`)
	}
	send(padded(domain.MaxManifestBytes)).is(http.StatusCreated)
	s.post(certificationAction+"/manifests/validate", padded(domain.MaxManifestBytes)).is(http.StatusOK)
	before := s.sequence()
	if got := pointers(send(padded(domain.MaxManifestBytes+1)).refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)); got != "/manifest LENGTH" {
		t.Errorf("errors %s", got)
	}
	s.post(
		certificationAction+"/manifests/validate", padded(domain.MaxManifestBytes+1),
	).refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
	for files, want := range map[string]string{
		strings.Repeat("{},", 16_000) + "{}": "/files LENGTH", strings.Repeat("0,", 100) + "0": "/files LENGTH",
		"": "/files LENGTH",
	} {
		text := strings.Replace(good, good[strings.Index(good, "[")+1:strings.Index(good, "]")], files, 1)
		if got := pointers(s.post(certificationAction+"/manifests/validate", text).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); got != want {
			t.Errorf("errors %s", got)
		}
		if got := pointers(send(text).refuses(http.StatusUnprocessableEntity, domain.InvalidData)); got != "/manifest"+want {
			t.Errorf("errors %s", got)
		}
	}
	if got := pointers(send(`[]`).refuses(http.StatusUnprocessableEntity, domain.InvalidData)); got != "/manifest TYPE" {
		t.Errorf("errors %s", got)
	}
	many := s.post(
		integrity+"/records", `{"m0":0`+strings.Repeat(`,"m":0`, 3)+manyNames(500)+`}`,
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if list := strings.Split(pointers(many), ", "); len(list) != 100 || list[99] != " MORE" {
		t.Errorf("%d errors, the last %s", len(list), list[len(list)-1])
	}
	file := func(path string) string { return `{"path":"` + path + `","size":1,"sha256":"` + hash("a") + `"}` }
	twice := strings.Replace(good, file("a"), file("a")+","+file("a"), 1)
	if got := pointers(s.post(certificationAction+"/manifests/validate", twice).refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)); got != "/files/1/path DUPLICATE_PATH" {
		t.Errorf("errors %s", got)
	}
	similar := s.post(certificationAction+"/manifests/validate",
		strings.Replace(good, file("a"), file("a")+","+file("A"), 1))
	equal(t, "warnings", read[wire.Manifest](similar, http.StatusOK).Warnings[0].Code, "SIMILAR_PATH")
	if s.sequence() != before {
		t.Error("a refused manifest changed something")
	}
}
