package handlers_test

import (
	"net/http"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/action"
)

// otherSignature differs from the column's value in its first character.
const otherSignature = "CASE left(signature, 1) WHEN 'A' THEN 'B' ELSE 'A' END || substr(signature, 2)"

// If anything is changed in the database behind the ledger's back, a certificate does not verify and its hash is not
// used.
func TestTamperedCertificates(t *testing.T) {
	pgtest.OneServer(t, "its statements join what stands on several nodes")
	s := open(t, options{})
	v, id := s.certificate("Title", "content", "title")
	_, other := s.certificate("Other", "other")
	for name, change := range map[string]string{
		"another hash": `UPDATE texts SET body = replace(body, '` + hash("content") + `', '` + hash("forged") +
			`') WHERE body LIKE '%certificate-v1%'`,
		"another title":         `UPDATE texts SET body = replace(body, '"title":"Title"', '"title":"Titel"') WHERE body LIKE '%certificate-v1%'`,
		"another's certificate": `UPDATE certificates c SET payload_id = o.payload_id, signature = o.signature FROM certificates o WHERE o.public_id <> c.public_id`,
		"no bytes":              `UPDATE texts SET body = NULL WHERE body LIKE '%certificate-v1%'`,
		"another signature":     `UPDATE certificates SET signature = ` + otherSignature,
	} {
		s.owner("CREATE TABLE kept_texts AS TABLE texts", "CREATE TABLE kept_certificates AS TABLE certificates", change)
		got := s.verified(id, "content")
		equal(t, name, []any{got.Verified, got.HashMatches, got.SignatureValid, got.Reason, got.CertificateStatus},
			[]any{false, nil, false, "SIGNATURE_INVALID", "valid"})
		forged := s.public(certificationAction + "/certificates/" + id + "/verify?sha256=" + hash("forged")).is(http.StatusOK)
		equal(
			t, name+", in public", []any{forged["verified"], forged["hashMatches"], forged["certificate"]},
			[]any{false, nil, nil},
		)
		switch a := s.get(certificationAction + "/certificates/" + id + "/download"); name {
		case "no bytes":
			a.refuses(http.StatusConflict, domain.InvalidState)
		default:
			a.refuses(http.StatusInternalServerError, domain.Internal)
		}
		s.owner("UPDATE texts t SET body = k.body FROM kept_texts k WHERE k.id = t.id",
			"UPDATE certificates c SET payload_id = k.payload_id, signature = k.signature FROM kept_certificates k WHERE "+
				"k.public_id = c.public_id",
			"DROP TABLE kept_texts", "DROP TABLE kept_certificates")
	}
	equal(t, "restored", []any{s.verified(id, "content").Reason, s.verified(other, "other").Reason},
		[]any{"MATCH", "MATCH"})

	// Signed by a key that was revoked later: untrusted, but still available for examination.
	key := s.Registrar.Signer.Key()
	revoked, err := evidence.NewTrustedKeys(
		s.Trusted.Keys(),
		[]evidence.RevokedKey{
			{KeyID: key.KeyID, FingerprintSHA256: key.FingerprintSHA256, Reason: "compromised", Since: "2026-11-20T00:00:00Z"},
		},
		nil,
	)
	check(t, err)
	s.keys.Store(&action.Keys{Signer: s.Registrar.Signer, Trusted: revoked})
	equal(t, "a revoked key", s.verified(id, "content").Reason, "SIGNATURE_INVALID")
	if a := s.get(certificationAction + "/certificates/" + id + "/download"); a.status != http.StatusOK {
		t.Errorf("download: %s", a.body)
	}
	next := s.laterText(v.artifact, "Title", "next")
	s.reviewed(next, "accepted").is(http.StatusCreated)
	s.approved(next).is(http.StatusCreated)
	s.certified(next).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
}
