package evidence

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// certificate is what the fixture's service would certify of the document.
func (f fixture) certificate() CertificatePayload {
	return CertificatePayload{
		Issuer: f.record.Issuer, PublicID: f.record.PublicID, SHA256: hexSHA256(testContent), SizeBytes: int64(len(testContent)),
		IssuedAt: "2026-11-19T10:00:00Z", Title: pointer("Annual report"), OrganizationName: pointer("Example"),
	}
}

// TestUnreadableCertificate: of a payload that is signed and is no certificate, that is all there is to say.
func TestUnreadableCertificate(t *testing.T) {
	f := newFixture(t)
	all := Options{Now: testNow, RequireReferences: true, RequireCurrent: true, RequireInclusion: true}
	text := marshal(t, f.signer.SignPayload(f.record.AppendCanonical(nil)))
	if got := Verify(text, f.trust, all); got.Signature != Invalid || len(got.Reasons) != 1 || !strings.HasPrefix(got.Reasons[0], "signature: payload: ") {
		t.Errorf("%s", marshal(t, got))
	}
}

// download is the certificate as the service lets it be downloaded.
func (f fixture) download(t testing.TB, s *Signer) []byte {
	t.Helper()
	return marshal(t, s.SignPayload(f.certificate().AppendCanonical(nil)))
}

// A downloaded certificate verifies like a receipt; what it cannot show is never taken for shown.
func TestVerifyCertificateOffline(t *testing.T) {
	f := newFixture(t)
	good := f.download(t, f.signer)
	document := &Document{strings.ToUpper(hexSHA256(testContent)), int64(len(testContent))}
	signed := func(payload []byte) []byte { return marshal(t, f.signer.SignPayload(payload)) }
	record := f.record.AppendCanonical(nil)
	receipt := func(payload []byte) []byte { return marshal(t, NewEnvelope(f.signer.SignPayload(payload))) }
	with := func(member string) []byte { return append([]byte("{"+member+","), good[1:]...) }
	for _, c := range []struct {
		name      string
		receipt   []byte
		options   Options
		signature Finding
		match     *bool
		exit      int
	}{
		{"the certificate alone", good, Options{}, Valid, nil, 0},
		{"with its document", good, Options{Document: document}, Valid, pointer(true), 0},
		{"with another document", good, Options{Document: &Document{hexSHA256(nil), 0}}, Valid, pointer(false), 1},
		{"currency asked for", good, Options{RequireCurrent: true}, Valid, nil, 1},
		{"references asked for", good, Options{RequireReferences: true}, Valid, nil, 1},
		{"by a retired key", f.download(t, f.retired), Options{}, Valid, nil, 0},
		{"by a revoked key", f.download(t, f.revoked), Options{Document: document}, Untrusted, nil, 1},
		{"by a key both trusted and revoked", f.download(t, f.both), Options{Document: document}, Untrusted, nil, 1},
		{"by an unknown key", f.download(t, f.foreign), Options{Document: document}, Untrusted, nil, 1},
		{"a record in its place", signed(record), Options{Document: document}, Invalid, nil, 1},
		{"an observation in its place", signed(f.status.AppendCanonical(nil)), Options{Document: document}, Invalid, nil, 1},
		{"a certificate in a record's place", receipt(f.certificate().AppendCanonical(nil)), Options{Document: document}, Invalid, nil, 1},
		{"not canonical", signed([]byte(strings.Replace(string(f.certificate().AppendCanonical(nil)), ",", ", ", 1))), Options{}, Invalid, nil, 1},
		{"with a member more", with(`"status":"valid"`), Options{}, Invalid, nil, 1},
		{"with references", with(`"references":null`), Options{}, Invalid, nil, 1},
		{"with a contract", with(`"contract":"certificate-v1"`), Options{}, Invalid, nil, 1},
		{"with a member twice", with(`"keyId":"x"`), Options{}, Invalid, nil, 1},
		{"a text", []byte(`"certificate"`), Options{}, Invalid, nil, 1},
		{"nothing", []byte(`{}`), Options{}, Invalid, nil, 1},
	} {
		c.options.Now = testNow
		got := Verify(c.receipt, f.trust, c.options)
		if got.Signature != c.signature || got.ExitCode() != c.exit || !reflect.DeepEqual(got.FileMatch, c.match) {
			t.Errorf("%s: %s", c.name, marshal(t, got))
		}
		if (got.Signature == Valid) != (got.Certificate != nil) || got.Record != nil || got.ObservedStatus != nil || got.Observation == Valid || got.References == Valid {
			t.Errorf("%s establishes too much: %s", c.name, marshal(t, got))
		}
		if established := strings.Contains(strings.Join(got.Notes, " "), "is not established"); established != (got.Signature == Valid) {
			t.Errorf("%s: %q", c.name, got.Notes)
		}
	}
}

// TestEveryByteOfTheCertificate changes every byte of a downloaded certificate: it
// fails, or its JSON still says the very same.
func TestEveryByteOfTheCertificate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	compact := f.download(t, f.signer)
	var indented bytes.Buffer
	if err := json.Indent(&indented, compact, "", "\t"); err != nil {
		t.Fatal(err)
	}
	opts := Options{Now: testNow, Document: &Document{hexSHA256(testContent), int64(len(testContent))}}
	for _, receipt := range [][]byte{compact, indented.Bytes()} {
		everyByte(t, f.trust, receipt, opts)
	}
}

// FuzzVerifyCertificate: no certificate panics, and none that says anything else than the good one is accepted.
func FuzzVerifyCertificate(f *testing.F) {
	x := newFixture(f)
	want := x.certificate()
	f.Add(x.download(f, x.signer))
	f.Add(marshal(f, x.signer.SignPayload(x.record.AppendCanonical(nil))))
	f.Fuzz(func(t *testing.T, receipt []byte) {
		got := Verify(receipt, x.trust, Options{Now: testNow})
		if got.Certificate == nil {
			return
		}
		if got.ExitCode() != 0 || got.Signature != Valid || got.Record != nil || !reflect.DeepEqual(*got.Certificate, want) {
			t.Fatalf("%q: %s", receipt, marshal(t, got))
		}
	})
}
