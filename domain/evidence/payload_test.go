package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
	"integrityledger/schemas"
)

// TestCanonicalBytes: the golden files have been the signed bytes since the first release, so a change here breaks
// every existing receipt.
func TestCanonicalBytes(t *testing.T) {
	f := newFixture(t)
	golden(t, "record.canonical.json", f.record.AppendCanonical(nil))
	golden(t, "status.canonical.json", f.status.AppendCanonical(nil))
	golden(
		t, "status-as-of.canonical.json",
		StatusAsOfPayload{f.status, instant("2026-11-19T10:00:00Z"), 17}.AppendCanonical(nil),
	)
	golden(t, "references.canonical.json", f.references.AppendCanonical(nil))
	golden(t, "signature.txt", []byte(must(f.signer.Sign(f.record.AppendCanonical(nil)))))
	golden(t, "private-evidence.json", marshal(t, f.envelope()))
	golden(t, "public-receipt.json", marshal(t, NewEnvelope(must(f.signer.SignPayload(f.record.AppendCanonical(nil))))))
	file, err := f.trust.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "trusted-keys.json", file)
}

// transform computes the canonical form independently.
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

// FuzzCanonical: for all strings, the bytes are the RFC 8785 form.
func FuzzCanonical(f *testing.F) {
	f.Add("https://a.example", "\b\t\n\f\r\"\\/\x00\x1f\x7f", "\u2028\u2029<>&é😀", "\xff\xed\xa0\x80", int64(0), int64(1))
	f.Add("", "\\u0000", "\ufffd\ufeff", "e\u0301", int64(1<<53-1), int64(-1<<53+1))
	f.Fuzz(func(t *testing.T, a, b, c, d string, m, n int64) {
		m, n = m%(1<<53), n%(1<<53)
		at := time.UnixMicro(n % (1 << 55)).UTC()
		sum, other := Hash(sha256.Sum256([]byte(a))), Hash(sha256.Sum256([]byte(c)))
		same(t, RecordPayload{a, b, sum, m, d, DeclaredTime(a + b), at, other}.AppendCanonical(nil), map[string]any{
			"contract": "integrity-v1", "algorithm": "SHA-256", "timeSource": "service-clock", "issuer": a, "publicId": b,
			"sha256":    hexSHA256([]byte(a)),
			"sizeBytes": m, "mimeType": d, "generatedAt": a + b, "receivedAt": FormatTime(at),
			"referencesSha256": hexSHA256([]byte(c)),
		})
		status := StatusPayload{a, sum, Status(c), at, n}
		same(t, status.AppendCanonical(nil), map[string]any{
			"contract": "integrity-status-v1", "publicId": a, "payloadSha256": hexSHA256([]byte(a)), "status": c,
			"observedAt": FormatTime(at), "sequence": n,
		})
		same(t, StatusAsOfPayload{status, at, m}.AppendCanonical(nil), map[string]any{
			"contract": "integrity-status-as-of-v1", "publicId": a, "payloadSha256": hexSHA256([]byte(a)), "status": c,
			"observedAt": FormatTime(at), "sequence": n,
			"asOf": FormatTime(at), "asOfSequence": m,
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
		"white space":      change(`,"contract"`, ` ,"contract"`),
		"trailing newline": string(good) + "\n",
		"another order": change(
			`"algorithm":"SHA-256","contract":"integrity-v1"`, `"contract":"integrity-v1","algorithm":"SHA-256"`,
		),
		"an escape":           change(`<`, `\u003c`),
		"upper-case hash":     change(f.record.SHA256.String(), strings.ToUpper(f.record.SHA256.String())),
		"newline after hash":  change(f.record.SHA256.String(), f.record.SHA256.String()+`\n`),
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

// FuzzParsePayload: an accepted payload equals its own canonical form, and the fast path agrees with the full parser.
func FuzzParsePayload(f *testing.F) {
	x := newFixture(f)
	f.Add(x.record.AppendCanonical(nil))
	f.Add(x.status.AppendCanonical(nil))
	plain := RecordPayload{
		"https://ledger.example", strings.Repeat("a2z7bcde", 4)[:26], Hash(bytes.Repeat([]byte{0x0f}, 32)), 9, "a/b",
		"2024-02-29T23:59:59.000000001Z", instant("2026-11-20T09:00:00.000001Z"), Hash(bytes.Repeat([]byte{0xa9}, 32)),
	}
	good := string(plain.AppendCanonical(nil))
	if got, ok := scanRecordPayload([]byte(good)); !ok || got != plain {
		f.Errorf("scanned %+v, %t of %s", got, ok, good)
	}
	f.Add([]byte(good))
	for _, change := range []struct{ from, to string }{
		{"2024-02", "2023-02"}, {"2024", "0000"}, {"02-29", "00-01"}, {"02-29", "02-00"}, {"02-29", "13-01"},
		{"02-29", "04-31"}, {"23:59:59", "24:00:00"}, {"59:59", "60:00"}, {"59.", "60."},
		{".000000001", ""}, {".000000001", "."}, {".000000001", ".0000000001"}, {".000000001", ".10"}, {".000000001", ",1"},
		{".000000001", ".+1"}, {".000001Z", ".0000001Z"}, {"T23", "t23"}, {"01Z", "01z"}, {"01Z", "01+00:00"},
		{"https://ledger.example", ""}, {"https://ledger.example", strings.Repeat("i", 513)}, {"ledger", "l\u00e9dger"},
		{"ledger", "lédger"}, {"ledger", "l\x7fdger"}, {`"a/b"`, `"A/b"`}, {`"a/b"`, `"a/b/c"`}, {`"a/b"`, `"a/"`},
		{`"a/b"`, `"a"`},
		{`"a/b"`, `"+a/b"`}, {`"a/b"`, `"a/b;c=d"`}, {`"a/b"`, `"a/` + strings.Repeat("b", 128) + `"`}, {`"a2z7`, `"a1z7`},
		{`"a2z7`, `"a2z`}, {`"0f`, `"0g`}, {`"0f`, `"0F`}, {`"a9`, `"a9a`}, {":9,", ":-9,"}, {":9,", ":09,"},
		{":9,", ":9007199254740991,"},
		{":9,", ":9007199254740992,"}, {":9,", ":9.0,"}, {"service-clock", "other"}, {"integrity-v1", "integrity-v2"},
		{"SHA-256", "SHA-512"}, {`}`, `} `}, {`}`, `,"a":1}`}, {`,"issuer"`, `, "issuer"`},
	} {
		f.Add([]byte(strings.Replace(good, change.from, change.to, 1)))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		scanned, ok := scanRecordPayload(payload)
		read, err := readRecordPayload(payload)
		plain := !bytes.ContainsFunc(payload, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' })
		if ok != (err == nil && plain) || ok && scanned != read {
			t.Fatalf("%q\nscanned %+v, %t\nread    %+v, %v", payload, scanned, ok, read, err)
		}
		if p, err := ParseRecordPayload(payload); err == nil {
			if canonical, err := jcs.Transform(payload); err != nil || !bytes.Equal(canonical, payload) ||
				!bytes.Equal(p.AppendCanonical(nil), payload) {
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

// certificate returns the payload with which the fixture's service would certify the document.
func (f fixture) certificate() CertificatePayload {
	return CertificatePayload{
		Issuer: f.record.Issuer, PublicID: f.record.PublicID, SHA256: sha256.Sum256(testContent),
		SizeBytes: int64(len(testContent)),
		IssuedAt:  instant("2026-11-19T10:00:00Z"), Title: pointer("Annual report"), OrganizationName: pointer("Example"),
	}
}

// TestUnreadableCertificate: a signed payload that is not a certificate yields that one reason only.
func TestUnreadableCertificate(t *testing.T) {
	f := newFixture(t)
	all := Options{Now: testNow, RequireReferences: true, RequireCurrent: true, RequireInclusion: true}
	text := marshal(t, must(f.signer.SignPayload(f.record.AppendCanonical(nil))))
	if got := Verify(text, f.trust, all); got.Signature != Invalid || len(got.Reasons) != 1 ||
		!strings.HasPrefix(got.Reasons[0].String(), "signature: payload: ") {
		t.Errorf("%s", marshal(t, got))
	}
}

// download returns the certificate in the form that the service offers for download.
func (f fixture) download(t testing.TB, s *Signer) []byte {
	t.Helper()
	return marshal(t, must(s.SignPayload(f.certificate().AppendCanonical(nil))))
}

// TestVerifyCertificateOffline: a downloaded certificate verifies like a receipt, and findings that it cannot support
// stay empty.
func TestVerifyCertificateOffline(t *testing.T) {
	f := newFixture(t)
	good := f.download(t, f.signer)
	document := &Document{strings.ToUpper(hexSHA256(testContent)), int64(len(testContent))}
	signed := func(payload []byte) []byte { return marshal(t, must(f.signer.SignPayload(payload))) }
	record := f.record.AppendCanonical(nil)
	receipt := func(payload []byte) []byte { return marshal(t, NewEnvelope(must(f.signer.SignPayload(payload)))) }
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
		{
			"a certificate in a record's place", receipt(f.certificate().AppendCanonical(nil)), Options{Document: document},
			Invalid, nil, 1,
		},
		{
			"not canonical", signed([]byte(strings.Replace(string(f.certificate().AppendCanonical(nil)), ",", ", ", 1))),
			Options{}, Invalid, nil, 1,
		},
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
		if (got.Signature == Valid) != (got.Certificate != nil) || got.Record != nil || got.ObservedStatus != nil ||
			got.Observation == Valid || got.References == Valid {
			t.Errorf("%s establishes too much: %s", c.name, marshal(t, got))
		}
		if established := strings.Contains(
			say.Join(got.Notes, " ").String(), "is not established",
		); established != (got.Signature == Valid) {
			t.Errorf("%s: %q", c.name, got.Notes)
		}
	}
}

// TestEveryByteOfTheCertificate changes every byte of a downloaded certificate: it fails, or its JSON still means the
// same.
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
		everyByte(t, f.trust, receipt, opts, masks)
	}
}

// FuzzVerifyCertificate: no certificate causes a panic, and a certificate that differs in meaning from the good one is
// never accepted.
func FuzzVerifyCertificate(f *testing.F) {
	x := newFixture(f)
	want := x.certificate()
	f.Add(x.download(f, x.signer))
	f.Add(marshal(f, must(x.signer.SignPayload(x.record.AppendCanonical(nil)))))
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

type generatedAtVector struct {
	Name       string  `json:"name"`
	Text       string  `json:"text"`
	Normalized *string `json:"normalized"` // nil: refused
	Form       bool    `json:"form"`       // the pattern of the OpenAPI document lets it pass
}

// generatedAtVectors returns the published vectors of generatedAt.
func generatedAtVectors(t testing.TB) []generatedAtVector {
	t.Helper()
	text, err := schemas.File(schemas.GeneratedAtFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []generatedAtVector }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Vectors) < 80 {
		t.Fatalf("%d vectors: %v", len(file.Vectors), err)
	}
	return file.Vectors
}

func TestNormalizeGeneratedAt(t *testing.T) {
	for _, v := range generatedAtVectors(t) {
		got, err := NormalizeGeneratedAt(v.Text)
		want := ""
		if v.Normalized != nil {
			want = *v.Normalized
		}
		if string(got) != want || (err == nil) != (v.Normalized != nil) {
			t.Errorf("%s: %q became %q, %v; want %q", v.Name, v.Text, got, err, want)
		}
		if err != nil && (errors.Is(err, errGeneratedAtForm) && v.Form) {
			t.Errorf("%s: %q is of the right form: %v", v.Name, v.Text, err)
		}
		if strict, err := NormalizeTimestamp(v.Text); err == nil && (strict != want ||
			!timestampPattern.MatchString(v.Text)) {
			t.Errorf("%s: %q became %q as a timestamp of RFC 3339", v.Name, v.Text, strict)
		}
		if v.Normalized == nil {
			continue
		}
		if strict, err := NormalizeTimestamp(want); err != nil || strict != want {
			t.Errorf("%s: %q is not in the form that is signed: %v", v.Name, want, err)
		}
	}
}

// naive parses generatedAt by trying every possible layout of the standard library; ok is false if none matches.
func naive(s string) (at time.Time, ok bool) {
	days := 0
	if beyond := midnight.FindStringSubmatchIndex(s); beyond != nil {
		s, days = s[:beyond[2]]+"00"+s[beyond[3]:], 1
	}
	for _, t := range []string{"T", "t"} {
		for _, form := range [][]string{
			{"2006-01-02", "15", "15:04", "15:04:05", "15:04:05.999999999", "15:04:05,999999999"},
			{"20060102", "15", "1504", "150405", "150405.999999999", "150405,999999999"},
		} {
			for _, clock := range form[1:] {
				for _, zone := range []string{"Z07:00", "Z0700", "Z07", "-07:00", "-0700", "-07", "z"} {
					if at, err := time.Parse(form[0]+t+clock+zone, s); err == nil {
						return at.AddDate(0, 0, days).UTC(), true
					}
				}
			}
		}
	}
	return at, false
}

// midnight matches the hour 24 if only zeros follow it.
var midnight = regexp.MustCompile(`^[0-9-]{8,10}[Tt](24)(?::?00(?::?00(?:[.,]0+)?)?)?(?:[Zz+-]|$)`)

// FuzzNormalizeGeneratedAt: an accepted text denotes the instant that the standard library parses with some layout, a
// refused text is parsed by none, and the normal form is stable.
func FuzzNormalizeGeneratedAt(f *testing.F) {
	for _, v := range generatedAtVectors(f) {
		f.Add(v.Text)
	}
	f.Fuzz(func(t *testing.T, s string) { againstNaive(t, s) })
}

// TestGeneratedAtSpellings compares random spellings, valid ones and near misses, with the naive parser.
func TestGeneratedAtSpellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		hyphen, colon := part("hyphen", "-", ""), part("colon", ":", "")
		againstNaive(t,
			part("year", "0000", "0001", "1999", "2026", "9999")+hyphen+part(
				"month", "00", "01", "02", "12", "13",
			)+hyphen+part("day", "00", "01", "28", "29", "30", "31", "32")+
				part("T", "T", "t", " ")+part("hour", "00", "23", "24")+part("minute", "", colon+"00", colon+"59", colon+"60")+
				part("second", "", colon+"00", colon+"59", colon+"60")+part(
				"fraction", "", ".", ",", ".0", ",5", ".120", ",123456789", ".1234567890",
			)+
				part("zone", "Z", "z", "", "+00", "-00:00", "+0200", "-0330", "+23:59", "-2359", "+24:00", "+00:60", "+1", "+100"))
	})
}

func againstNaive(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, s string) {
	t.Helper()
	declared, err := NormalizeGeneratedAt(s)
	normal := string(declared)
	want, ok := naive(s)
	// The standard library accepts offsets up to 24:60, any number of fractional digits, and a fraction even if the layout
	// has none.
	ok = ok && want.Year() >= 1 && want.Year() <= 9999 && generatedAtPattern.MatchString(s) && !beyondDay.MatchString(s)
	if (err == nil) != ok {
		t.Fatalf("%q: %v, but the standard library reads %v, %t", s, err, want, ok)
	}
	if err != nil {
		return
	}
	got, err := time.Parse(time.RFC3339Nano, normal)
	if err != nil || !got.Equal(want) || !strings.HasSuffix(normal, "Z") ||
		strings.HasSuffix(normal, "0Z") && strings.Contains(normal, ".") {
		t.Fatalf("%q became %q", s, normal)
	}
	if again, err := NormalizeGeneratedAt(normal); err != nil || again != declared {
		t.Fatalf("%q became %q", normal, again)
	}
}

// beyondDay matches offsets of a day or more, which no place has.
var beyondDay = regexp.MustCompile(`[+-](2[4-9]:?[0-9]*|[3-9][0-9]:?[0-9]*|[0-9]{2}:?[6-9][0-9])$`)

func TestFormatTime(t *testing.T) {
	zone := time.FixedZone("", 3600)
	for want, at := range map[string]time.Time{
		"2026-11-20T09:00:00Z":        time.Date(2026, 11, 20, 10, 0, 0, 999, zone),
		"2026-11-20T10:00:00.000001Z": time.Date(2026, 11, 20, 10, 0, 0, 1999, time.UTC),
		"2026-11-20T10:00:00.12Z":     time.Date(2026, 11, 20, 10, 0, 0, 120_000_000, time.UTC),
	} {
		if got := FormatTime(at); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if back, err := parseServiceTime(want); err != nil || FormatTime(back) != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}
