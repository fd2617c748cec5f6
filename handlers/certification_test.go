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
	"integrityledger/handlers/wire"
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

// form is a multipart body with metadata and a file, and its Content-Type.
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

// workVersion is a version in the process of certification.
type workVersion struct{ artifact, version, content string }

// work returns the version that an answer registered.
func work(a answer, content string) workVersion {
	a.t.Helper()
	v := read[wire.ArtifactRegistration](a, http.StatusCreated).Version
	return workVersion{v.ArtifactID, v.ID, content}
}

// registeredText registers a text as a new artifact.
func (s *service) registeredText(title, text string) workVersion {
	s.t.Helper()
	return s.laterText("", title, text)
}

// laterText registers a text as a version of an artifact, or as a new artifact.
func (s *service) laterText(artifact, title, text string) workVersion {
	s.t.Helper()
	path := certificationAction + "/artifacts"
	if artifact != "" {
		path += "/" + artifact + "/versions"
	}
	return work(s.post(path, body{"title": title, "kind": "text", "text": text}), text)
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

// certificate takes a new text from registration to its certificate.
func (s *service) certificate(title, text string, fields ...string) (workVersion, string) {
	s.t.Helper()
	v := s.registeredText(title, text)
	return v, s.certifies(v, fields...)
}

func (s *service) certifies(v workVersion, fields ...string) string {
	s.t.Helper()
	s.reviewed(v, "accepted").is(http.StatusCreated)
	s.approved(v).is(http.StatusCreated)
	return s.issued(v, fields...).PublicID
}

// issued issues the certificate of an approved version.
func (s *service) issued(v workVersion, fields ...string) wire.Certificate {
	s.t.Helper()
	return read[wire.IssuedCertificate](s.certified(v, fields...), http.StatusCreated).Certificate
}

func (s *service) verified(id, content string) wire.Verification {
	s.t.Helper()
	return read[wire.Verification](
		s.post(certificationAction+"/verify", body{"publicId": id, "sha256": strings.ToUpper(hash(content))}), http.StatusOK)
}

// A file goes from registration to a certificate, which the certificate of a second version replaces.
func TestCertification(t *testing.T) {
	s := open(t, options{})
	const content = "%PDF-1.7 not really"
	first := read[wire.ArtifactRegistration](
		s.upload(certificationAction+"/artifacts", s.org.Secret, body{"title": "Cafe\u0301"}, "café.pdf", "application/pdf",
			content), http.StatusCreated)
	artifact, version := first.Artifact, first.Version
	equal(t, "version", []any{artifact.Title, version.Kind, version.FileName, version.MediaType, version.SHA256,
		version.SizeBytes, version.State, version.Version},
		[]any{"Café", "file", "café.pdf", "application/pdf", hash(content), len(content), "analyzed", 1})
	equal(t, "the analysis read again", read[wire.Analysis](s.get(certificationAction+"/analyses/"+first.Analysis.ID),
		http.StatusOK), first.Analysis)
	v := workVersion{artifact.ID, version.ID, content}

	tampered := workVersion{v.artifact, v.version, content + " "}
	s.reviewed(tampered, "accepted").refuses(http.StatusUnprocessableEntity, domain.FileDoesNotMatchVersion)
	s.approved(v).refuses(http.StatusConflict, domain.InvalidState)
	s.reviewed(v, "changes_requested").is(http.StatusCreated)
	s.approved(v).refuses(http.StatusConflict, domain.InvalidState)
	review := read[wire.DeclaredReview](s.reviewed(v, "accepted"), http.StatusCreated).Review
	approval := read[wire.ApprovedVersion](s.approved(v), http.StatusCreated).Approval
	certificate := s.issued(v, "organizationName", "title")
	id := certificate.PublicID

	got := read[wire.ArtifactHistory](s.get(certificationAction+"/artifacts/"+v.artifact), http.StatusOK).Versions[0]
	equal(t, "the history", []any{got.State, len(got.Reviews), got.Reviews[1], got.Approval, got.Certificate},
		[]any{"certified", 2, review, approval, certificate})
	list := read[wire.Artifacts](s.get(certificationAction+"/artifacts"), http.StatusOK)
	equal(t, "the list", []any{list.Total, list.Artifacts[0].Title}, []any{1, "Café"})

	// The signed certificate verifies with only the pinned keys, and contains the authorized texts.
	var signed evidence.Signed
	download := s.get(certificationAction + "/certificates/" + id + "/download")
	check(t, json.Unmarshal(download.body, &signed))
	payload, finding := evidence.VerifyCertificate(s.Trusted, signed.KeyID, []byte(signed.Payload), signed.Signature)
	if finding != evidence.Valid || payload.SHA256.String() != hash(content) || payload.PublicID != id ||
		*payload.Title != "Café" || *payload.OrganizationName != "Example" || payload.SizeBytes != int64(len(content)) {
		t.Errorf("%s %+v", finding, payload)
	}
	verify := func(id, query string) wire.PublicVerification {
		t.Helper()
		return read[wire.PublicVerification](s.public(certificationAction+"/certificates/"+id+"/verify"+query), http.StatusOK)
	}
	public := verify(id, "?sha256="+hash(content))
	equal(t, "in public", []any{public.Verified, public.Reason, public.Certificate.Title}, []any{true, "MATCH", "Café"})
	issued := evidence.FormatTime(payload.IssuedAt)
	equal(t, "issued at, as signed", []any{certificate.IssuedAt, public.Certificate.IssuedAt}, []any{issued, issued})
	opened := verify(id, "")
	equal(t, "without a hash", []any{opened.Verified, opened.HashMatches, opened.Reason, opened.CertificateCurrent},
		[]any{false, nil, "FILE_NOT_COMPARED", true})
	equal(t, "MATCH", s.verified(id, content).Verified, true)
	mismatch := s.verified(id, content+" ")
	equal(t, "a tampered copy", []any{mismatch.Verified, mismatch.HashMatches, mismatch.Reason, mismatch.SignatureValid},
		[]any{false, false, "HASH_MISMATCH", true})

	// A certificate of a later version replaces it. Both versions have the same hash.
	next := s.laterText(v.artifact, "Second", content)
	second := s.certifies(next)
	old, now := s.verified(id, content), s.verified(second, content)
	equal(t, "the former", []any{old.Verified, old.HashMatches, old.CertificateStatus, old.Reason},
		[]any{false, true, "replaced", "CERTIFICATE_REPLACED"})
	equal(t, "the later", []any{now.Verified, now.Reason}, []any{true, "MATCH"})
	if title := verify(second, "").Certificate.Title; title != nil {
		t.Errorf("a title that was not authorized is published: %s", *title)
	}
	revoke := func(reason string) wire.RevokedCertificate {
		t.Helper()
		return read[wire.RevokedCertificate](
			s.post(certificationAction+"/certificates/"+second+"/revoke", body{"reason": reason}), http.StatusOK)
	}
	revoked, again := revoke("Wrong file."), revoke("Another.")
	equal(t, "revoked", []any{revoked.Status, revoked.Replayed, again.Replayed, again.RevokedAt},
		[]any{"revoked", false, true, revoked.RevokedAt})
	gone := s.verified(second, content)
	equal(t, "after revocation", []any{gone.Verified, gone.HashMatches, gone.Reason, gone.CertificateStatus},
		[]any{false, true, "CERTIFICATE_REVOKED", "revoked"})
	equal(t, "the former stays replaced", s.verified(id, content).CertificateStatus, "replaced")
	s.post(certificationAction+"/certificates/"+id+"/revoke", body{"reason": "Wrong file."}).is(http.StatusOK)
	equal(t, "until it is revoked", s.verified(id, content).CertificateStatus, "revoked")

	history := s.history("limit=200")
	newest := history[0]
	equal(t, "the newest event", []any{newest.Action, newest.Reason, newest.Target},
		[]any{"certificate.revoked", "Wrong file.", wire.AuditTarget{Type: "certificate", ID: id}})
	for i, e := range history {
		if int(e.Sequence) != len(history)-i {
			t.Fatalf("the history has a hole at %d", i)
		}
	}
	early := read[wire.AuditEvents](s.get(certificationAction+"/audit-events?limit=2&before=5&offset=1"), http.StatusOK)
	equal(t, "a page of the history", []any{early.Events, early.Limit, early.Offset, early.Total},
		[]any{history[len(history)-3 : len(history)-1], 2, 1, len(history)})
	runs := map[string]map[string]int64{}
	for _, m := range read[wire.DetectorMetrics](
		s.get(certificationAction+"/metrics/detectors"), http.StatusOK).Detectors {
		runs[m.ID] = m.Outcomes
	}
	equal(
		t, "runs of the detector of duplicates", runs[domain.DuplicateDetector],
		body{"clear": 1, "finding": 1, "inconclusive": 0, "not_applicable": 0},
	)
	s.Audit(t)
}

// An artifact's history has the newest hundred reviews, and a cursor for the others.
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
		page := read[wire.ArtifactHistory](s.get(path+after), http.StatusOK)
		n := 0
		for _, v := range page.Versions {
			for _, r := range v.Reviews {
				seen[*r.Statement] = true
				n++
			}
			if v.Approval != nil {
				approvals++
			}
		}
		pages++
		if want := map[int][2]int{1: {2, 100}, 2: {1, 2*each - 100}}[pages]; want != [2]int{len(page.Versions), n} {
			t.Fatalf("page %d: %d versions, %d reviews", pages, len(page.Versions), n)
		}
		if page.HasMore != (page.NextCursor != nil) || page.HasMore != (pages == 1) {
			t.Fatalf("page %d: %+v", pages, page.Next)
		} else if !page.HasMore {
			break
		}
		after = "?after=" + *page.NextCursor
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
