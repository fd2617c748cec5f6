package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

const organizationAPI = "/api/v1/organization"

// turnKeys creates API keys, uses them, removes and restores their companies, rotates and revokes them, and tries each
// key again after it must have stopped working.
func (c *client) turnKeys() {
	for n := 0; c.rest(); n++ {
		company := c.of.company(c.rng)
		key, ok := c.createKey(fmt.Sprintf("%s %d", c.name, n), company.Reference)
		if !ok {
			continue
		}
		c.work(key, company.Reference, n)
		if c.rng.IntN(2) == 0 {
			c.grant(key, company, false)
			c.work(key, company.Reference, n)
			c.grant(key, company, true)
			c.work(key, company.Reference, n)
		}
		former := credential{}
		if c.rng.IntN(2) == 0 {
			if next, ok := c.rotateKey(key, []int64{0, 1, 3}[c.rng.IntN(3)]); ok {
				former, key = key, next
				c.work(former, company.Reference, n)
				c.work(key, company.Reference, n)
			}
		}
		c.revokeKey(key)
		c.work(key, company.Reference, n)
		if former.id != "" {
			c.work(former, company.Reference, n)
		}
	}
}

// work uses a key in both ways: it reads and writes.
func (c *client) work(key credential, company string, n int) {
	for range 1 + c.rng.IntN(3) {
		if !c.rest() {
			return
		}
		if c.rng.IntN(2) == 0 {
			call := c.begin(history.KeyUse, "", history.Request{})
			c.send(&call, outgoing{method: http.MethodGet, path: organizationAPI, key: key})
			c.write(call)
			continue
		}
		c.registerOnce(key, declarationOf(company, fmt.Sprintf("%s-%d", c.name, n), 1+c.rng.Int32N(4), ""))
	}
}

func (c *client) createKey(name, company string) (made credential, ok bool) {
	call := c.begin(history.KeyCreate, company, history.Request{})
	r := c.send(&call,
		outgoing{method: http.MethodPost, path: organizationAPI + "/keys", key: c.of.owner, body: wire.APIKeyRequest{
			Name: name, Scopes: []domain.Scope{domain.IntegrityRead, domain.IntegrityWrite}, Companies: []string{company},
		}})
	key := decode[wire.CreatedAPIKey](c, &call, r)
	call.Answer.Key = key.ID
	c.write(call)
	return credential{key.ID, key.Key}, call.Outcome == history.Answered
}

func (c *client) rotateKey(key credential, overlap int64) (made credential, ok bool) {
	call := c.begin(history.KeyRotate, "", history.Request{Target: key.id, OverlapSeconds: overlap})
	r := c.send(
		&call,
		outgoing{
			method: http.MethodPost, path: organizationAPI + "/keys/" + key.id + "/rotate", key: c.of.owner,
			body: wire.APIKeyRotation{OverlapSeconds: &overlap, CopyGrants: true},
		},
	)
	next := decode[wire.RotatedAPIKey](c, &call, r)
	call.Answer.Key = next.ID
	c.write(call)
	return credential{next.ID, next.Key}, call.Outcome == history.Answered
}

// revokeKey repeats a revocation until its outcome is known.
func (c *client) revokeKey(key credential) {
	for range 20 {
		call := c.begin(history.KeyRevoke, "", history.Request{Target: key.id})
		c.send(&call, outgoing{method: http.MethodDelete, path: organizationAPI + "/keys/" + key.id, key: c.of.owner})
		c.write(call)
		if call.Outcome != history.Unknown || !c.rest() {
			return
		}
	}
}

func (c *client) grant(key credential, company history.Company, enabled bool) {
	for range 20 {
		call := c.begin(history.Grant, company.Reference, history.Request{Target: key.id, Enabled: &enabled})
		c.send(
			&call,
			outgoing{
				method: http.MethodPost, path: integrityAPI + "/companies/" + company.ID + "/access", key: c.of.owner,
				body: wire.KeyAccessRequest{KeyID: key.id, Enabled: enabled},
			},
		)
		c.write(call)
		if call.Outcome != history.Unknown || !c.rest() {
			return
		}
	}
}

// certifyDocuments takes texts from upload to certificate. Some later versions replace the certificate, some revoke it.
func (c *client) certifyDocuments() {
	c.pace *= 4
	var artifact string
	for n := 0; c.rest(); n++ {
		if c.rng.IntN(3) == 0 {
			artifact = ""
		}
		text := fmt.Sprintf("Document %d of %s, in its final words.", n, c.name)
		var version string
		artifact, version = c.upload(artifact, text)
		if version == "" {
			continue
		}
		outcome := "accepted"
		if c.rng.IntN(6) == 0 {
			outcome = "changes_requested"
		}
		c.review(artifact, version, outcome, text)
		c.step(
			history.Approve, "/api/v1/versions/"+version+"/approve",
			history.Request{Artifact: artifact, ArtifactVersion: version},
			map[string]any{"statement": "Approved.", "acceptResponsibility": true},
		)
		certified := c.step(
			history.Certify, "/api/v1/versions/"+version+"/certificates",
			history.Request{Artifact: artifact, ArtifactVersion: version},
			map[string]any{"publicationAuthorized": true, "publicFields": []string{"title"}},
		)
		c.readArtifact(artifact, version)
		id := certified.Answer.Certificate
		if id == "" {
			continue
		}
		c.verify(id, hashOf(text))
		if c.rng.IntN(2) == 0 {
			c.step(
				history.CertificateEnd, "/api/v1/certificates/"+id+"/revoke", history.Request{PublicID: id},
				map[string]any{"reason": "weather"},
			)
			c.verify(id, hashOf(text))
		}
	}
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// settled repeats a certification call with the same Idempotency-Key until its outcome is known.
func (c *client) settled(once func(key string) history.Call) (call history.Call) {
	key := fmt.Sprintf("%s-%d", c.name, c.w.history.Number())
	for range 20 {
		if call = once(key); call.Outcome != history.Unknown && call.Code != "REQUEST_IN_PROGRESS" || !c.rest() {
			return call
		}
	}
	return call
}

func (c *client) upload(artifact, text string) (id, version string) {
	path := "/api/v1/artifacts"
	if artifact != "" {
		path += "/" + artifact + "/versions"
	}
	c.settled(func(key string) history.Call {
		call := c.begin(history.Upload, "", history.Request{Artifact: artifact, Hash: hashOf(text), IdempotencyKey: key})
		r := c.send(&call, outgoing{
			method: http.MethodPost, path: path, key: c.of.owner,
			body:   map[string]string{"title": "Weather", "kind": "text", "text": text},
			header: map[string]string{"Idempotency-Key": key},
		})
		if made := decode[wire.ArtifactRegistration](c, &call, r); call.Outcome == history.Answered {
			call.Answer.Artifact, call.Answer.ArtifactVersion, call.Answer.State = made.Artifact.ID, made.Version.ID,
				string(made.Version.State)
			id, version = made.Artifact.ID, made.Version.ID
		}
		c.write(call)
		return call
	})
	if id == "" {
		id = artifact
	}
	return id, version
}

func (c *client) review(artifact, version, outcome, text string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	metadata, err := json.Marshal(map[string]any{
		"versionId": version, "outcome": outcome, "statement": "Read in full.", "acceptResponsibility": true,
	})
	if err == nil {
		err = w.WriteField("metadata", string(metadata))
	}
	if err == nil {
		part, createErr := w.CreateFormFile("file", "document.txt")
		if err = createErr; err == nil {
			_, err = part.Write([]byte(text))
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		c.w.t.Error(err)
		return
	}
	c.settled(func(key string) history.Call {
		call := c.begin(
			history.Review, "",
			history.Request{Artifact: artifact, ArtifactVersion: version, ReviewOutcome: outcome, IdempotencyKey: key},
		)
		r := c.send(&call, outgoing{
			method: http.MethodPost, path: "/api/v1/artifacts/" + artifact + "/reviews", key: c.of.owner, raw: b.Bytes(),
			contentType: w.FormDataContentType(),
			header:      map[string]string{"Idempotency-Key": key},
		})
		if made := decode[wire.DeclaredReview](c, &call, r); call.Outcome == history.Answered {
			call.Answer.Act, call.Answer.Artifact, call.Answer.ArtifactVersion, call.Answer.State = made.Review.ID,
				made.Version.ArtifactID, made.Version.ID, string(made.Version.State)
		}
		c.write(call)
		return call
	})
}

// step approves, certifies or revokes.
func (c *client) step(operation history.Operation, path string, request history.Request, body any) history.Call {
	return c.settled(func(key string) history.Call {
		request.IdempotencyKey = key
		call := c.begin(operation, "", request)
		r := c.send(
			&call,
			outgoing{
				method: http.MethodPost, path: path, key: c.of.owner, body: body,
				header: map[string]string{"Idempotency-Key": key},
			},
		)
		switch operation {
		case history.Approve:
			made := decode[wire.ApprovedVersion](c, &call, r)
			call.Answer.Act, call.Answer.Artifact, call.Answer.ArtifactVersion, call.Answer.State = made.Approval.ID,
				made.Version.ArtifactID, made.Version.ID, string(made.Version.State)
		case history.Certify:
			made := decode[wire.IssuedCertificate](c, &call, r)
			call.Answer.Artifact, call.Answer.ArtifactVersion, call.Answer.State = made.Version.ArtifactID, made.Version.ID,
				string(made.Version.State)
			call.Answer.Certificate, call.Answer.CertificateStatus = made.Certificate.PublicID, string(made.Certificate.Status)
		default:
			made := decode[wire.RevokedCertificate](c, &call, r)
			call.Answer.Certificate, call.Answer.CertificateStatus = made.PublicID, string(made.Status)
			call.Answer.Replayed = call.Answer.Replayed || made.Replayed
		}
		c.write(call)
		return call
	})
}

func (c *client) readArtifact(artifact, version string) history.Call {
	call := c.begin(history.ArtifactRead, "", history.Request{Artifact: artifact, ArtifactVersion: version})
	r := c.send(&call, outgoing{method: http.MethodGet, path: "/api/v1/artifacts/" + artifact, key: c.of.owner})
	for _, v := range decode[wire.ArtifactHistory](c, &call, r).Versions {
		if v.ID == version {
			call.Answer.Artifact, call.Answer.ArtifactVersion, call.Answer.State = artifact, v.ID, string(v.State)
			if v.Certificate != nil {
				call.Answer.Certificate, call.Answer.CertificateStatus = v.Certificate.PublicID, string(v.Certificate.Status)
			}
		}
	}
	c.write(call)
	return call
}

// compareCertificate compares a hash with a certificate.
func (c *client) compareCertificate(certificate, hash string) history.Call {
	call := c.begin(history.CertificateRead, "", history.Request{PublicID: certificate, Hash: hash})
	r := c.send(
		&call,
		outgoing{
			method: http.MethodPost, path: "/api/v1/verify", key: c.of.owner,
			body: map[string]string{"publicId": certificate, "sha256": hash},
		},
	)
	if found := decode[wire.Verification](c, &call, r); call.Outcome == history.Answered {
		call.Answer.Result, call.Answer.CertificateStatus = string(found.Reason), string(found.CertificateStatus)
	}
	c.write(call)
	return call
}

// verify compares a hash with a certificate, and keeps the certificate.
func (c *client) verify(certificate, hash string) {
	c.compareCertificate(certificate, hash)
	var text []byte
	if (&plain{w: c.w, http: c.http}).get("/api/v1/certificates/"+certificate+"/download", c.of.owner, &text) == nil {
		file := filepath.Join("evidence", certificate+".json")
		if err := os.WriteFile(filepath.Join(c.w.dir, file), text, 0o600); err != nil {
			c.w.t.Error(err)
		}
		c.w.history.End(history.End{Evidence: &history.Evidence{PublicID: certificate, File: file, Certificate: true}})
	}
}
