package handlers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"testing"

	"integrityledger/cmd/analyzer/detect"
	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
)

// analyze runs the detectors in this process; cmd/analyzer has tests of its own.
func analyze(
	_ context.Context, _ domain.OrganizationID, file *os.File, size int64, declaredType, fileName string,
) (analysis.Report, error) {
	var report analysis.Report
	detect.Analyze(detect.Input{Content: file, Size: size, DeclaredType: declaredType, FileName: fileName},
		func(r analysis.Result) {
			report.Results, report.Elapsed = append(report.Results, r), append(report.Elapsed, 0)
		})
	return report, nil
}

// form is a multipart body of metadata and a file, and its Content-Type.
func form(metadata any, fileName, mediaType, content string) (text, kind string) {
	encoded, err := json.Marshal(metadata)
	if err != nil {
		panic(err)
	}
	return parts(
		part{name: "metadata", kind: "application/json", content: string(encoded)},
		part{"file", fileName, mediaType, content},
	)
}

type part struct{ name, file, kind, content string }

func parts(list ...part) (text, kind string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range list {
		h := textproto.MIMEHeader{}
		disposition := fmt.Sprintf(`form-data; name="%s"`, p.name)
		if p.file != "" {
			disposition += fmt.Sprintf(`; filename="%s"`, p.file)
		}
		h.Set("Content-Disposition", disposition)
		if p.kind != "" {
			h.Set("Content-Type", p.kind)
		}
		one, err := w.CreatePart(h)
		if err == nil {
			_, err = one.Write([]byte(p.content))
		}
		if err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.String(), w.FormDataContentType()
}

func reviewOf(version, outcome string) body {
	return body{"versionId": version, "outcome": outcome, "statement": "Read in full.", "acceptResponsibility": true}
}

// upload posts metadata and a file.
func (s *service) upload(path, key string, metadata any, fileName, mediaType, content string, header ...string) answer {
	s.t.Helper()
	text, kind := form(metadata, fileName, mediaType, content)
	return s.send(http.MethodPost, path, key, text, append([]string{"Content-Type", kind}, header...)...)
}

const certificationAction = "/api/v1"

// workVersion is a version of an artifact on its way.
type workVersion struct{ artifact, version, content string }

// registeredText registers a text as a new artifact.
func (s *service) registeredText(title, text string) workVersion {
	s.t.Helper()
	return s.laterText("", title, text)
}

// laterText registers a text as a version of an artifact, or of a new one.
func (s *service) laterText(artifact, title, text string) workVersion {
	s.t.Helper()
	path := certificationAction + "/artifacts"
	if artifact != "" {
		path += "/" + artifact + "/versions"
	}
	data := s.post(path, body{"title": title, "kind": "text", "text": text}).is(http.StatusCreated)
	v := data["version"].(map[string]any)
	return workVersion{v["artifactId"].(string), v["id"].(string), text}
}

func (s *service) reviewed(v workVersion, outcome string) answer {
	s.t.Helper()
	return s.upload(
		certificationAction+"/artifacts/"+v.artifact+"/reviews", s.org.Secret, reviewOf(v.version, outcome), "a.txt",
		"text/plain", v.content,
	)
}

func (s *service) approved(v workVersion) answer {
	s.t.Helper()
	return s.post(
		certificationAction+"/versions/"+v.version+"/approve", body{"statement": "Approved.", "acceptResponsibility": true},
	)
}

func (s *service) certified(v workVersion, fields ...string) answer {
	s.t.Helper()
	return s.post(
		certificationAction+"/versions/"+v.version+"/certificates",
		body{"publicationAuthorized": true, "publicFields": append([]string{}, fields...)},
	)
}

// certificate takes a new text all the way.
func (s *service) certificate(title, text string, fields ...string) (workVersion, string) {
	s.t.Helper()
	v := s.registeredText(title, text)
	return v, s.certifies(v, fields...)
}

func (s *service) certifies(v workVersion, fields ...string) string {
	s.t.Helper()
	s.reviewed(v, "accepted").is(http.StatusCreated)
	s.approved(v).is(http.StatusCreated)
	return s.certified(v, fields...).is(http.StatusCreated)["certificate"].(map[string]any)["publicId"].(string)
}

func (s *service) verified(id, content string) map[string]any {
	s.t.Helper()
	return s.post(
		certificationAction+"/verify", body{"publicId": id, "sha256": strings.ToUpper(hash(content))},
	).is(http.StatusOK)
}

// The whole way of a file, from registration to a certificate that a second version replaces.
func TestCertification(t *testing.T) {
	s := open(t, options{})
	const content = "%PDF-1.7 not really"
	first := s.upload(
		certificationAction+"/artifacts", s.org.Secret, body{"title": "Cafe\u0301"}, "café.pdf", "application/pdf", content,
	).is(http.StatusCreated)
	artifact, version, report := first["artifact"].(map[string]any), first["version"].(map[string]any),
		first["analysis"].(map[string]any)
	equal(t, "version",
		[]any{
			artifact["title"], version["kind"], version["fileName"], version["mediaType"], version["sha256"],
			version["sizeBytes"], version["state"], version["version"],
		},
		[]any{"Café", "file", "café.pdf", "application/pdf", hash(content), len(content), "analyzed", 1})
	equal(
		t, "the analysis read again", s.get(certificationAction+"/analyses/"+report["id"].(string)).is(http.StatusOK),
		report,
	)
	v := workVersion{artifact["id"].(string), version["id"].(string), content}

	tampered := workVersion{v.artifact, v.version, content + " "}
	s.reviewed(tampered, "accepted").refuses(http.StatusUnprocessableEntity, domain.FileDoesNotMatchVersion)
	s.approved(v).refuses(http.StatusConflict, domain.InvalidState)
	s.reviewed(v, "changes_requested").is(http.StatusCreated)
	s.approved(v).refuses(http.StatusConflict, domain.InvalidState)
	review := s.reviewed(v, "accepted").is(http.StatusCreated)["review"].(map[string]any)
	approval := s.approved(v).is(http.StatusCreated)["approval"].(map[string]any)
	certificate := s.certified(v, "organizationName", "title").is(http.StatusCreated)["certificate"].(map[string]any)
	id := certificate["publicId"].(string)

	whole := s.get(certificationAction + "/artifacts/" + v.artifact).is(http.StatusOK)
	got := whole["versions"].([]any)[0].(map[string]any)
	reviews := got["reviews"].([]any)
	equal(
		t, "the history", []any{got["state"], len(reviews), reviews[1], got["approval"], got["certificate"]},
		[]any{"certified", 2, review, approval, certificate},
	)
	list := s.get(certificationAction + "/artifacts").is(http.StatusOK)
	equal(t, "the list", []any{list["total"], list["artifacts"].([]any)[0].(map[string]any)["title"]}, []any{1, "Café"})

	// The signed certificate verifies with the pinned keys alone, and says what was authorized.
	var signed evidence.Signed
	download := s.get(certificationAction + "/certificates/" + id + "/download")
	check(t, json.Unmarshal(download.body, &signed))
	payload, finding := evidence.VerifyCertificate(s.Trusted, signed.KeyID, []byte(signed.Payload), signed.Signature)
	if finding != evidence.Valid || payload.SHA256.String() != hash(content) || payload.PublicID != id ||
		*payload.Title != "Café" || *payload.OrganizationName != "Example" || payload.SizeBytes != int64(len(content)) {
		t.Errorf("%s %+v", finding, payload)
	}
	public := s.public(certificationAction + "/certificates/" + id + "/verify?sha256=" + hash(content)).is(http.StatusOK)
	shown := public["certificate"].(map[string]any)
	equal(t, "in public", []any{public["verified"], public["reason"], shown["title"]}, []any{true, "MATCH", "Café"})
	equal(
		t, "issued at, as signed", []any{certificate["issuedAt"], shown["issuedAt"]},
		[]any{evidence.FormatTime(payload.IssuedAt), evidence.FormatTime(payload.IssuedAt)},
	)
	opened := s.public(certificationAction + "/certificates/" + id + "/verify").is(http.StatusOK)
	equal(
		t, "without a hash",
		[]any{opened["verified"], opened["hashMatches"], opened["reason"], opened["certificateCurrent"]},
		[]any{false, nil, "FILE_NOT_COMPARED", true},
	)
	equal(t, "MATCH", s.verified(id, content)["verified"], true)
	mismatch := s.verified(id, content+" ")
	equal(
		t, "a tampered copy",
		[]any{mismatch["verified"], mismatch["hashMatches"], mismatch["reason"], mismatch["signatureValid"]},
		[]any{false, false, "HASH_MISMATCH", true},
	)

	// A certificate of a later version replaces it; then neither can be told from the other by hash.
	next := s.laterText(v.artifact, "Second", content)
	second := s.certifies(next)
	old, now := s.verified(id, content), s.verified(second, content)
	equal(
		t, "the former", []any{old["verified"], old["hashMatches"], old["certificateStatus"], old["reason"]},
		[]any{false, true, "replaced", "CERTIFICATE_REPLACED"},
	)
	equal(t, "the later", []any{now["verified"], now["reason"]}, []any{true, "MATCH"})
	if title := s.public(
		certificationAction + "/certificates/" + second + "/verify",
	).is(http.StatusOK)["certificate"].(map[string]any)["title"]; title != nil {
		t.Errorf("a title that was not authorized is published: %v", title)
	}
	revoked := s.post(
		certificationAction+"/certificates/"+second+"/revoke", body{"reason": "Wrong file."},
	).is(http.StatusOK)
	again := s.post(certificationAction+"/certificates/"+second+"/revoke", body{"reason": "Another."}).is(http.StatusOK)
	equal(
		t, "revoked", []any{revoked["status"], revoked["replayed"], again["replayed"], again["revokedAt"]},
		[]any{"revoked", false, true, revoked["revokedAt"]},
	)
	gone := s.verified(second, content)
	equal(
		t, "after revocation", []any{gone["verified"], gone["hashMatches"], gone["reason"], gone["certificateStatus"]},
		[]any{false, true, "CERTIFICATE_REVOKED", "revoked"},
	)
	equal(t, "the former stays replaced", s.verified(id, content)["certificateStatus"], "replaced")
	s.post(certificationAction+"/certificates/"+id+"/revoke", body{"reason": "Wrong file."}).is(http.StatusOK)
	equal(t, "until it is revoked", s.verified(id, content)["certificateStatus"], "revoked")

	history := s.get(certificationAction + "/audit-events?limit=200").is(http.StatusOK)["events"].([]any)
	newest := history[0].(map[string]any)
	equal(
		t, "the newest event", []any{newest["action"], newest["reason"], newest["target"]},
		[]any{"certificate.revoked", "Wrong file.", body{"type": "certificate", "id": id}},
	)
	for i, e := range history {
		if int(e.(map[string]any)["sequence"].(float64)) != len(history)-i {
			t.Fatalf("the history has a hole at %d", i)
		}
	}
	early := s.get(certificationAction + "/audit-events?limit=2&before=5&offset=1").is(http.StatusOK)
	equal(
		t, "a page of the history", []any{early["events"], early["limit"], early["offset"], early["total"]},
		[]any{history[len(history)-3 : len(history)-1], 2, 1, len(history)},
	)
	metrics := s.get(certificationAction + "/metrics/detectors").is(http.StatusOK)["detectors"].([]any)
	runs := map[string]any{}
	for _, m := range metrics {
		runs[m.(map[string]any)["id"].(string)] = m.(map[string]any)["outcomes"]
	}
	equal(
		t, "runs of the detector of duplicates", runs[domain.DuplicateDetector],
		body{"clear": 1, "finding": 1, "inconclusive": 0, "not_applicable": 0},
	)
	s.Audit(t)
}

// An artifact's history has the newest hundred reviews, and leads to the others.
func TestArtifactHistoryIsBounded(t *testing.T) {
	s := open(t, options{})
	first := s.registeredText("Report", "one")
	versions := []workVersion{first, s.laterText(first.artifact, "Report", "two")}
	const each = 70
	for _, v := range versions {
		artifact, _ := domain.ParseID[domain.ArtifactID](v.artifact)
		version, _ := domain.ParseID[domain.ArtifactVersionID](v.version)
		reviews := make([]domain.Command, each)
		for i := range reviews {
			reviews[i] = &domain.DeclareReview{
				Origin:   s.org.Origin(),
				Artifact: artifact, Version: version, Member: s.org.Key.Member, Outcome: domain.ReviewAccepted,
				Statement: fmt.Sprintf("%s %d", v.content, i), SHA256: sha256.Sum256([]byte(v.content)),
			}
		}
		for _, a := range s.Execute(t.Context(), reviews...) {
			check(t, a.Err)
		}
	}
	s.approved(versions[0]).is(http.StatusCreated)
	path, seen, approvals, pages := certificationAction+"/artifacts/"+first.artifact, map[string]bool{}, 0, 0
	for after := ""; ; {
		data := s.get(path + after).is(http.StatusOK)
		shown := data["versions"].([]any)
		n := 0
		for _, v := range shown {
			for _, r := range v.(map[string]any)["reviews"].([]any) {
				seen[r.(map[string]any)["statement"].(string)] = true
				n++
			}
			if v.(map[string]any)["approval"] != nil {
				approvals++
			}
		}
		pages++
		if want := map[int][2]int{1: {2, 100}, 2: {1, 2*each - 100}}[pages]; want != [2]int{len(shown), n} {
			t.Fatalf("page %d: %d versions, %d reviews", pages, len(shown), n)
		}
		if more := data["hasMore"].(bool); more != (data["nextCursor"] != nil) || more != (pages == 1) {
			t.Fatalf("page %d: %v %v", pages, data["hasMore"], data["nextCursor"])
		} else if !more {
			break
		}
		after = "?after=" + data["nextCursor"].(string)
	}
	if len(seen) != 2*each || approvals != 1 {
		t.Errorf("%d reviews and %d approvals", len(seen), approvals)
	}
	for _, wrong := range []string{"?after=", "?after=x", "?after=Yy03ZjNhOTE", "?limit=1"} {
		if a := s.get(path + wrong); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", wrong, a.status, a.body)
		}
	}
}
