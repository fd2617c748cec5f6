package evidence

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"integrityledger/domain/strictjson"
)

// The golden files are the bytes that were signed since the first day: a change here breaks every receipt that exists.
func TestCanonicalBytes(t *testing.T) {
	f := newFixture(t)
	golden(t, "record.canonical.json", f.record.AppendCanonical(nil))
	golden(t, "status.canonical.json", f.status.AppendCanonical(nil))
	golden(t, "status-as-of.canonical.json", StatusAsOfPayload{f.status, "2026-11-19T10:00:00Z", 17}.AppendCanonical(nil))
	golden(t, "references.canonical.json", f.references.AppendCanonical(nil))
	golden(t, "signature.txt", []byte(f.signer.Sign(f.record.AppendCanonical(nil))))
	golden(t, "private-evidence.json", marshal(t, f.envelope()))
	golden(t, "public-receipt.json", marshal(t, NewEnvelope(f.signer.SignPayload(f.record.AppendCanonical(nil)))))
	file, err := f.trust.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "trusted-keys.json", file)
}

// transform is the independent way to the canonical form.
func transform(t *testing.T, members map[string]any) []byte {
	t.Helper()
	plain, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := jcs.Transform(plain)
	if err != nil {
		t.Fatal(err)
	}
	return canonical
}

func same(t *testing.T, got []byte, members map[string]any) {
	t.Helper()
	if want := transform(t, members); !bytes.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	if !utf8.Valid(got) {
		t.Fatalf("%q is not UTF-8", got)
	}
}

// FuzzCanonical: whatever the strings hold, the bytes written by hand are those of RFC 8785.
func FuzzCanonical(f *testing.F) {
	f.Add("https://a.example", "\b\t\n\f\r\"\\/\x00\x1f\x7f", "\u2028\u2029<>&é😀", "\xff\xed\xa0\x80", int64(0), int64(1))
	f.Add("", "\\u0000", "\ufffd\ufeff", "e\u0301", int64(1<<53-1), int64(-1<<53+1))
	f.Fuzz(func(t *testing.T, a, b, c, d string, m, n int64) {
		m, n = m%(1<<53), n%(1<<53)
		same(t, RecordPayload{a, b, c, m, d, a + b, b + c, c + d}.AppendCanonical(nil), map[string]any{
			"contract": "integrity-v1", "algorithm": "SHA-256", "timeSource": "service-clock", "issuer": a, "publicId": b, "sha256": c,
			"sizeBytes": m, "mimeType": d, "generatedAt": a + b, "receivedAt": b + c, "referencesSha256": c + d,
		})
		status := StatusPayload{a, b, Status(c), d, n}
		same(t, status.AppendCanonical(nil), map[string]any{
			"contract": "integrity-status-v1", "publicId": a, "payloadSha256": b, "status": c, "observedAt": d, "sequence": n,
		})
		same(t, StatusAsOfPayload{status, a + d, m}.AppendCanonical(nil), map[string]any{
			"contract": "integrity-status-as-of-v1", "publicId": a, "payloadSha256": b, "status": c, "observedAt": d, "sequence": n,
			"asOf": a + d, "asOfSequence": m,
		})
		same(t, References{a, b, c, n, d}.AppendCanonical(nil), map[string]any{
			"companyReference": a, "source": b, "documentReference": c, "version": n, "salt": d,
		})
	})
}

func TestParseRecordPayload(t *testing.T) {
	f := newFixture(t)
	good := f.record.AppendCanonical(nil)
	if got, err := ParseRecordPayload(good); err != nil || got != f.record {
		t.Fatalf("%+v, %v", got, err)
	}
	change := func(from, to string) string {
		if !bytes.Contains(good, []byte(from)) {
			t.Fatalf("%q does not occur", from)
		}
		return string(bytes.Replace(good, []byte(from), []byte(to), 1))
	}
	for name, payload := range map[string]string{
		"white space":         change(`,"contract"`, ` ,"contract"`),
		"trailing newline":    string(good) + "\n",
		"another order":       change(`"algorithm":"SHA-256","contract":"integrity-v1"`, `"contract":"integrity-v1","algorithm":"SHA-256"`),
		"an escape":           change(`<`, `\u003c`),
		"upper-case hash":     change(f.record.SHA256, "A"+f.record.SHA256[1:]),
		"newline after hash":  change(f.record.SHA256, f.record.SHA256+`\n`),
		"newline after id":    change(f.record.PublicID, f.record.PublicID+`\n`),
		"short id":            change(f.record.PublicID, f.record.PublicID[1:]),
		"another algorithm":   change("SHA-256", "SHA-512"),
		"another clock":       change("service-clock", "tsa"),
		"another contract":    change("integrity-v1", "integrity-v2"),
		"status contract":     change("integrity-v1", "integrity-status-v1"),
		"negative size":       change(`"sizeBytes":20`, `"sizeBytes":-20`),
		"minus zero":          change(`"sizeBytes":20`, `"sizeBytes":-0`),
		"fraction":            change(`"sizeBytes":20`, `"sizeBytes":20.0`),
		"exponent":            change(`"sizeBytes":20`, `"sizeBytes":2e1`),
		"huge size":           change(`"sizeBytes":20`, `"sizeBytes":9007199254740992`),
		"text for size":       change(`"sizeBytes":20`, `"sizeBytes":"20"`),
		"unknown member":      change(`,"timeSource"`, `,"tim":1,"timeSource"`),
		"duplicate member":    change(`,"timeSource"`, `,"sizeBytes":20,"timeSource"`),
		"case variant":        change(`"issuer"`, `"Issuer"`),
		"missing member":      change(`,"sizeBytes":20`, ``),
		"local time":          change("05.25Z", "05.25+00:00"),
		"zeros at the end":    change("05.25Z", "05.250Z"),
		"finer than the rest": change("05.25Z", "05.2500001Z"),
		"no such day":         change("2026-11-19T09:30:05", "2026-11-31T09:30:05"),
		"empty issuer":        change(f.record.Issuer, ""),
		"control in issuer":   change("https", `\n`),
		"media parameters":    change("application/pdf", "text/plain;a=b"),
		"upper-case media":    change("application/pdf", "Application/pdf"),
		"array":               "[]",
		"null":                "null",
		"lone surrogate":      change("<", `\ud800`),
		"two values":          string(good) + string(good),
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := ParseRecordPayload([]byte(payload)); err == nil {
				t.Errorf("accepted: %+v", p)
			}
		})
	}
}

// FuzzParsePayload: what is accepted is exactly its own canonical form.
func FuzzParsePayload(f *testing.F) {
	x := newFixture(f)
	f.Add(x.record.AppendCanonical(nil))
	f.Add(x.status.AppendCanonical(nil))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if p, err := ParseRecordPayload(payload); err == nil {
			if canonical, err := jcs.Transform(payload); err != nil || !bytes.Equal(canonical, payload) || !bytes.Equal(p.AppendCanonical(nil), payload) {
				t.Fatalf("%q", payload)
			}
			if p.SizeBytes < 0 || p.SizeBytes > strictjson.MaxInteger {
				t.Fatal(p.SizeBytes)
			}
		}
		if p, err := ParseStatusPayload(payload); err == nil && !bytes.Equal(p.AppendCanonical(nil), payload) {
			t.Fatalf("%q", payload)
		}
	})
}
