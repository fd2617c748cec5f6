package main

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
)

// TestCertificateOffline takes a file to a certificate on a running service, and verifies the downloads without the
// service.
func TestCertificateOffline(t *testing.T) {
	t.Parallel()
	s := start(t, dataDir(t), "--demo")
	access := s.demo()
	files := t.TempDir()
	document := write(t, filepath.Join(files, "report.pdf"), "%PDF-1.7 a report")
	url := access.BaseURL + "/api/v1"

	var registered struct {
		Artifact, Version struct{ ID string }
	}
	upload(t, url+"/artifacts", access.Keys.Admin, `{"title":"Annual report"}`, document, &registered)
	upload(t, url+"/artifacts/"+registered.Artifact.ID+"/reviews", access.Keys.Admin,
		`{"versionId":"`+registered.Version.ID+
			`","outcome":"accepted","statement":"Read in full.","acceptResponsibility":true}`, document, nil)
	post := func(path string, body map[string]any, data any) {
		t.Helper()
		if status, err := call(plainHTTP(), http.MethodPost, url+path, access.Keys.Admin, body, data); err != nil ||
			status != http.StatusCreated {
			t.Fatalf("%s: %d %v", path, status, err)
		}
	}
	post(
		"/versions/"+registered.Version.ID+"/approve",
		map[string]any{"statement": "Approved.", "acceptResponsibility": true}, nil,
	)
	var issued struct {
		Certificate struct{ PublicID, VerificationURL, DownloadURL string }
	}
	post(
		"/versions/"+registered.Version.ID+"/certificates",
		map[string]any{"publicationAuthorized": true, "publicFields": []string{"title"}}, &issued,
	)

	certificate := write(
		t, filepath.Join(files, "certificate.json"), string(fetched(t, issued.Certificate.DownloadURL, access.Keys.Admin)),
	)
	if page := fetched(t, issued.Certificate.VerificationURL, ""); !bytes.Contains(
		page, []byte("<bdi>Annual report</bdi>"),
	) {
		t.Errorf("%s is not the page of the certificate: %s", issued.Certificate.VerificationURL, page)
	}
	trusted := filepath.Join(s.dir, keyfiles.TrustedKeysFile)
	s.stop() // from here on the service cannot be asked
	r := integrity(t, nil, "verify", certificate, trusted, document)
	for _, part := range []string{
		"matches the certified SHA-256", issued.Certificate.PublicID, `"Annual report", in the organization's words`,
		"not established", evidence.CertificateLimits(evidence.English, "")[1],
	} {
		if r.code != cli.ExitOK || !strings.Contains(r.out, part) {
			t.Errorf("exit code %d without %q: %s%s", r.code, part, r.out, r.errs)
		}
	}
	var findings struct {
		Signature      string
		ObservedStatus *string
		FileMatch      *bool
		Certificate    struct{ PublicID, Title string }
		Limits         []string
	}
	mustJSON(t, nil, &findings, "verify", certificate, trusted, document, "--language", "es")
	if findings.Signature != "valid" || findings.ObservedStatus != nil || findings.FileMatch == nil ||
		!*findings.FileMatch || findings.Certificate.PublicID != issued.Certificate.PublicID ||
		findings.Certificate.Title != "Annual report" ||
		findings.Limits[0] != evidence.CertificateLimits(evidence.Spanish, "")[0] {
		t.Errorf("%+v", findings)
	}
	if r := integrity(t, nil, "verify", certificate, trusted, "--require-current"); r.code != cli.ExitNegative {
		t.Errorf("a certificate passes --require-current: %d %s", r.code, r.out)
	}
	everySampledByte(t, files, []string{certificate, trusted, document}, 0)
	everySampledByte(t, files, []string{certificate, trusted, document}, 2)
}

// upload posts metadata and a file as the README does.
func upload(t *testing.T, url, key, metadata, file string, data any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", filepath.Base(file))
	if err == nil {
		_, err = part.Write(content)
	}
	if err == nil {
		err = w.WriteField("metadata", metadata)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	text := exchanged(t, http.MethodPost, url, key, w.FormDataContentType(), &b, http.StatusCreated)
	if err := json.Unmarshal(text, &struct{ Data any }{data}); err != nil {
		t.Fatal(err)
	}
}

func fetched(t *testing.T, url, key string) []byte {
	t.Helper()
	return exchanged(t, http.MethodGet, url, key, "", nil, http.StatusOK)
}

// exchanged sends a request and returns the raw body of the answer, which must have this status.
func exchanged(t *testing.T, method, url, key, contentType string, body io.Reader, status int) []byte {
	t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	response, err := plainHTTP().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status {
		t.Fatalf("%s: %d %s %v", url, response.StatusCode, text, err)
	}
	return text
}
