package evidence

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// vector is one receipt with the findings that every verifier must reach. The
// table is written to testdata/vectors.json for the verifiers in other languages.
type vector struct {
	Name              string  `json:"name"`
	Receipt           []byte  `json:"receiptBase64"`
	DocumentSHA256    string  `json:"documentSha256,omitempty"`
	DocumentSize      int64   `json:"documentSize,omitempty"`
	RequireReferences bool    `json:"requireReferences,omitempty"`
	RequireCurrent    bool    `json:"requireCurrent,omitempty"`
	Signature         Finding `json:"signature"`
	References        Finding `json:"references"`
	Observation       Finding `json:"observation"`
	ObservedStatus    *Status `json:"observedStatus"`
	FileMatch         *bool   `json:"fileMatch"`
	Inclusion         Finding `json:"inclusion"`
	ExitCode          int     `json:"exitCode"`
}

func pointer[T any](v T) *T { return &v }

// vectors lists them all; each begins as the good private export.
func vectors(t *testing.T) []vector {
	f := newFixture(t)
	var list []vector
	add := func(name string, receipt []byte, expect func(*vector)) {
		v := vector{
			Name: name, Receipt: receipt, Signature: Valid, References: Valid, Observation: Valid,
			ObservedStatus: pointer(Current), Inclusion: NotSupplied,
		}
		expect(&v)
		list = append(list, v)
	}
	envelope := func(change func(f *fixture, e *Envelope)) []byte {
		g := f
		e := g.envelope()
		change(&g, &e)
		return marshal(t, e)
	}
	good := envelope(func(*fixture, *Envelope) {})
	replace := func(from, to string) []byte {
		if !bytes.Contains(good, []byte(from)) {
			t.Fatalf("%q does not occur", from)
		}
		return bytes.Replace(good, []byte(from), []byte(to), 1)
	}
	record := func(finding Finding) func(*vector) {
		return func(v *vector) {
			v.Signature, v.References, v.Observation, v.ObservedStatus, v.ExitCode = finding, NotChecked, NotChecked, nil, 1
		}
	}
	refused := func(v *vector) { record(Invalid)(v); v.Inclusion = NotChecked }
	references := func(v *vector) { v.References, v.ExitCode = Invalid, 1 }
	observation := func(finding Finding) func(*vector) {
		return func(v *vector) { v.Observation, v.ObservedStatus, v.ExitCode = finding, nil, 1 }
	}
	bare := func(f *fixture, e *Envelope) { e.References, e.StatusObservation = nil, nil }
	absent := func(exit int) func(*vector) {
		return func(v *vector) {
			v.References, v.Observation, v.ObservedStatus, v.ExitCode = NotSupplied, NotSupplied, nil, exit
		}
	}
	// signAll signs both payloads with another key, as its own receipt would say.
	signAll := func(pick func(*fixture) *Signer) []byte {
		return envelope(func(f *fixture, e *Envelope) {
			s := pick(f)
			o := s.SignPayload(f.status.AppendCanonical(nil))
			e.Signed, e.StatusObservation = s.SignPayload(f.record.AppendCanonical(nil)), &o
		})
	}
	// observed signs another status payload.
	observed := func(change func(p *StatusPayload)) []byte {
		return envelope(func(f *fixture, e *Envelope) {
			change(&f.status)
			o := f.signer.SignPayload(f.status.AppendCanonical(nil))
			e.StatusObservation = &o
		})
	}
	// payload signs another text in the record's place.
	payload := func(text string) []byte {
		return envelope(func(f *fixture, e *Envelope) { e.Signed = f.signer.SignPayload([]byte(text)) })
	}
	canonical := string(f.record.AppendCanonical(nil))
	statusText := string(f.status.AppendCanonical(nil))

	// Good receipts.
	add("private export", good, func(*vector) {})
	add("white space round members", []byte(strings.ReplaceAll(string(good), `,"`, " ,\r\n\t\"")), func(*vector) {})
	add("public receipt", envelope(bare), absent(0))
	add("references required and absent", envelope(bare), func(v *vector) { absent(1)(v); v.RequireReferences = true })
	add("current required and absent", envelope(bare), func(v *vector) { absent(1)(v); v.RequireCurrent = true })
	add("references and current required and there", good, func(v *vector) { v.RequireReferences, v.RequireCurrent = true, true })
	add("inclusion is not checked", envelope(func(_ *fixture, e *Envelope) {
		e.Inclusion = &Inclusion{Leaf: "{}", LeafIndex: 0, TreeSize: 1, Hashes: []string{}, Checkpoint: "log\n1\n"}
	}), func(v *vector) { v.Inclusion = NotChecked })
	// Documents.
	add("the document", good, func(v *vector) {
		v.DocumentSHA256, v.DocumentSize, v.FileMatch = f.record.SHA256, f.record.SizeBytes, pointer(true)
	})
	add("the document's hash in upper case", good, func(v *vector) {
		v.DocumentSHA256, v.DocumentSize, v.FileMatch = strings.ToUpper(f.record.SHA256), f.record.SizeBytes, pointer(true)
	})
	add("the hash decides, not the length", good, func(v *vector) {
		v.DocumentSHA256, v.DocumentSize, v.FileMatch = f.record.SHA256, 1, pointer(true)
	})
	add("another document", good, func(v *vector) {
		v.DocumentSHA256, v.DocumentSize, v.FileMatch, v.ExitCode = hexSHA256(nil), f.record.SizeBytes, pointer(false), 1
	})
	add("no hash is compared where the record fails", replace("application/pdf", "application/pdg"), func(v *vector) {
		record(Invalid)(v)
		v.DocumentSHA256, v.DocumentSize = f.record.SHA256, f.record.SizeBytes
	})
	// Keys.
	add("retired key", signAll(func(f *fixture) *Signer { return f.retired }), func(*vector) {})
	add("revoked key", signAll(func(f *fixture) *Signer { return f.revoked }), record(Untrusted))
	add("key in both lists", signAll(func(f *fixture) *Signer { return f.both }), record(Untrusted))
	add("foreign key", signAll(func(f *fixture) *Signer { return f.foreign }), record(Untrusted))
	add("foreign signature under a trusted keyId", envelope(func(f *fixture, e *Envelope) {
		e.Signature = f.foreign.Sign([]byte(e.Payload))
	}), record(Invalid))
	add("foreign JWK under a trusted keyId", envelope(func(f *fixture, e *Envelope) { e.PublicKeyJWK = f.foreign.Key().JWK }), record(Invalid))
	add("foreign fingerprint under a trusted keyId", envelope(func(f *fixture, e *Envelope) {
		e.FingerprintSHA256 = f.foreign.Key().FingerprintSHA256
	}), record(Invalid))
	add("upper-case fingerprint", envelope(func(_ *fixture, e *Envelope) { e.FingerprintSHA256 = strings.ToUpper(e.FingerprintSHA256) }), record(Invalid))
	add("another kty", envelope(func(_ *fixture, e *Envelope) { e.PublicKeyJWK.Kty = "okp" }), record(Invalid))
	add("JWK with d", replace(`"kty":"OKP"`, `"d":"AA","kty":"OKP"`), refused)
	// The signature's spelling.
	for name, spell := range map[string]func(string) string{
		"set bits after the last byte": func(s string) string { return respell(t, s) },
		"padding":                      func(s string) string { return s + "==" },
		"a newline within":             func(s string) string { return s[:40] + "\n" + s[40:] },
		"a newline for a character":    func(s string) string { return s[:40] + "\n" + s[41:] },
		"one byte short":               func(s string) string { return s[:84] },
		"standard alphabet":            func(s string) string { return s[:10] + "+" + s[11:] },
		"nothing":                      func(string) string { return "" },
	} {
		add("signature: "+name, envelope(func(_ *fixture, e *Envelope) { e.Signature = spell(e.Signature) }), record(Invalid))
	}
	add("signature: S plus L", envelope(func(_ *fixture, e *Envelope) { e.Signature = plusL(t, e.Signature) }), record(Invalid))
	// Roles and canonical form, all with good signatures.
	add("status payload in the record's place", payload(statusText), record(Invalid))
	add("certificate contract in the record's place", payload(strings.Replace(canonical, "integrity-v1", "certificate-v1", 1)), record(Invalid))
	add("white space in the payload", payload(strings.Replace(canonical, `,"`, `, "`, 1)), record(Invalid))
	add("needless escape in the payload", payload(strings.Replace(canonical, `<`, `\u003c`, 1)), record(Invalid))
	add("duplicate member in the payload", payload(strings.Replace(canonical, `,"timeSource"`, `,"sizeBytes":20,"timeSource"`, 1)), record(Invalid))
	add("case variant in the payload", payload(strings.Replace(canonical, `,"timeSource"`, `,"sizebytes":1,"timeSource"`, 1)), record(Invalid))
	add("unknown member in the payload", payload(strings.Replace(canonical, `"timeSource"`, `"tenant":"x","timeSource"`, 1)), record(Invalid))
	add("fraction in the payload", payload(strings.Replace(canonical, `:20,`, `:20.0,`, 1)), record(Invalid))
	add("exponent in the payload", payload(strings.Replace(canonical, `:20,`, `:2e1,`, 1)), record(Invalid))
	add("minus zero in the payload", payload(strings.Replace(canonical, `:20,`, `:-0,`, 1)), record(Invalid))
	add("huge number in the payload", payload(strings.Replace(canonical, `:20,`, `:9007199254740993,`, 1)), record(Invalid))
	add("enormous number in the payload", payload(strings.Replace(canonical, `:20,`, `:1`+strings.Repeat("0", 400)+`,`, 1)), record(Invalid))
	add("lone surrogate in the payload", payload(strings.Replace(canonical, `<`, `\ud800`, 1)), record(Invalid))
	add("newline at the end of the hash", payload(strings.Replace(canonical, f.record.SHA256, f.record.SHA256+`\n`, 1)), record(Invalid))
	add("payload followed by a newline", payload(canonical+"\n"), record(Invalid))
	add("deep payload", payload(strings.Repeat("[", 9)+strings.Repeat("]", 9)), record(Invalid))
	add("payload with a byte order mark", payload("\ufeff"+canonical), record(Invalid))
	// The envelope.
	add("byte order mark", append([]byte("\xef\xbb\xbf"), good...), refused)
	add("not UTF-8", replace("é", "\xe9"), refused)
	add("lone surrogate", replace("é", `\ud83d`), refused)
	add("NUL in a string", replace("é", `\u0000`), refused)
	add("two values", append(bytes.Clone(good), "{}"...), refused)
	add("an array", append(append([]byte("["), good...), ']'), refused)
	add("nothing", []byte{}, refused)
	add("too deep", replace(`"contract":"integrity-evidence-v1"`, `"contract":`+strings.Repeat("[", 8)+strings.Repeat("]", 8)), refused)
	add("64 KiB", append(bytes.Clone(good), bytes.Repeat([]byte{' '}, 64<<10-len(good))...), func(*vector) {})
	add("more than 64 KiB", append(bytes.Clone(good), bytes.Repeat([]byte{' '}, 64<<10-len(good)+1)...), refused)
	add("another envelope contract", replace("integrity-evidence-v1", "integrity-evidence-v2"), refused)
	add("duplicate member", replace(`"signature"`, `"payload":"","signature"`), refused)
	add("duplicate of the same value", replace(`"contract":"integrity-evidence-v1"`, `"contract":"integrity-evidence-v1","contract":"integrity-evidence-v1"`), refused)
	add("duplicate under an escape", replace(`"signature"`, `"p\u0061yload":"","signature"`), refused)
	add("case variant besides", replace(`"signature"`, `"Payload":"","signature"`), refused)
	add("case variant instead", replace(`"keyId"`, `"keyID"`), refused)
	add("unknown member", replace(`"signature"`, `"alg":"none","signature"`), refused)
	add("missing member", replace(`"contract":"integrity-evidence-v1",`, ``), refused)
	add("null references", replace(`"references":{`, `"references":null,"x":{`), refused)
	add("null observation", marshal(t, map[string]any{"contract": EnvelopeContract, "statusObservation": nil}), refused)
	add("inclusion of another shape", replace(`"references"`, `"inclusion":[],"references"`), refused)
	// References.
	bind := func(change func(r *References)) []byte {
		return envelope(func(_ *fixture, e *Envelope) { change(e.References) })
	}
	add("another company", bind(func(r *References) { r.CompanyReference = "c-7f3b" }), references)
	add("another version", bind(func(r *References) { r.Version = 3 }), references)
	add("another salt", bind(func(r *References) { r.Salt = strings.Repeat("A", 22) }), references)
	add("another spelling of the salt", bind(func(r *References) { r.Salt = respell(t, r.Salt) }), references)
	add("source and document exchanged", bind(func(r *References) { r.Source, r.DocumentReference = r.DocumentReference, r.Source }), references)
	add("newline after a reference", bind(func(r *References) { r.Source += "\n" }), references)
	add("version as a fraction", replace(`"version":2`, `"version":2.0`), refused)
	add("version as minus zero", replace(`"version":2`, `"version":-0`), refused)
	add("huge version", replace(`"version":2`, `"version":9007199254740993`), refused)
	add("version as text", replace(`"version":2`, `"version":"2"`), refused)
	add("missing reference", replace(`"source":"erp",`, ``), refused)
	add("sixth reference", replace(`"source":"erp"`, `"source":"erp","plate":"x"`), refused)
	// Observation.
	add("superseded is historical", observed(func(p *StatusPayload) { p.Status = Superseded }), func(v *vector) { v.ObservedStatus = pointer(Superseded) })
	add("superseded where current is required", observed(func(p *StatusPayload) { p.Status = Superseded }), func(v *vector) {
		v.ObservedStatus, v.RequireCurrent, v.ExitCode = pointer(Superseded), true, 1
	})
	add("revoked", observed(func(p *StatusPayload) { p.Status = Revoked }), func(v *vector) { v.ObservedStatus, v.ExitCode = pointer(Revoked), 1 })
	add("unknown status", observed(func(p *StatusPayload) { p.Status = "valid" }), observation(Invalid))
	add("observation of another publicId", observed(func(p *StatusPayload) { p.PublicID = strings.Repeat("a", 26) }), observation(Invalid))
	add("observation of another payload", observed(func(p *StatusPayload) { p.PayloadSHA256 = hexSHA256(nil) }), observation(Invalid))
	add("observation at the record's own time", observed(func(p *StatusPayload) { p.ObservedAt = f.record.ReceivedAt }), func(*vector) {})
	add("observation before the record", observed(func(p *StatusPayload) { p.ObservedAt = "2026-11-19T09:30:05.249999Z" }), observation(Invalid))
	add("observation 300 seconds ahead", observed(func(p *StatusPayload) { p.ObservedAt = FormatTime(testNow.Add(300 * time.Second)) }), func(*vector) {})
	add("observation further ahead", observed(func(p *StatusPayload) {
		p.ObservedAt = FormatTime(testNow.Add(300*time.Second + time.Microsecond))
	}), observation(Invalid))
	add("sequence zero", observed(func(p *StatusPayload) { p.Sequence = 0 }), observation(Invalid))
	for name, sign := range map[string]func(f *fixture) Signed{
		"record in the observation's place": func(f *fixture) Signed { return f.signer.SignPayload(f.record.AppendCanonical(nil)) },
		"as-of in the observation's place": func(f *fixture) Signed {
			return f.signer.SignPayload(StatusAsOfPayload{f.status, f.status.ObservedAt, 41}.AppendCanonical(nil))
		},
		"as-of members under the status contract": func(f *fixture) Signed {
			p := StatusAsOfPayload{f.status, f.status.ObservedAt, 41}.AppendCanonical(nil)
			return f.signer.SignPayload(bytes.Replace(p, []byte(StatusAsOfContract), []byte(StatusContract), 1))
		},
		"observation not canonical": func(f *fixture) Signed { return f.signer.SignPayload([]byte(statusText + " ")) },
		"observation wrongly signed": func(f *fixture) Signed {
			s := f.signer.SignPayload([]byte(statusText))
			s.Signature = f.foreign.Sign([]byte(statusText))
			return s
		},
	} {
		add(name, envelope(func(f *fixture, e *Envelope) { e.StatusObservation = pointer(sign(f)) }), observation(Invalid))
	}
	for name, pick := range map[string]func(f *fixture) *Signer{
		"observation by a foreign key": func(f *fixture) *Signer { return f.foreign },
		"observation by a revoked key": func(f *fixture) *Signer { return f.revoked },
	} {
		add(name, envelope(func(f *fixture, e *Envelope) {
			e.StatusObservation = pointer(pick(f).SignPayload([]byte(statusText)))
		}), observation(Untrusted))
	}
	add("observation by a retired key", envelope(func(f *fixture, e *Envelope) {
		e.StatusObservation = pointer(f.retired.SignPayload([]byte(statusText)))
	}), func(*vector) {})
	add("duplicate member in the observation", replace(`"statusObservation":{`, `"statusObservation":{"payload":"",`), refused)
	return list
}

func TestVectors(t *testing.T) {
	f := newFixture(t)
	seen := make(map[string]bool)
	for _, v := range vectors(t) {
		if seen[v.Name] {
			t.Fatalf("%s stands twice", v.Name)
		}
		seen[v.Name] = true
		t.Run(v.Name, func(t *testing.T) {
			opts := Options{Now: testNow, RequireReferences: v.RequireReferences, RequireCurrent: v.RequireCurrent}
			if v.DocumentSHA256 != "" {
				opts.Document = &Document{v.DocumentSHA256, v.DocumentSize}
			}
			got := Verify(v.Receipt, f.trust, opts)
			w := v
			w.Signature, w.References, w.Observation, w.Inclusion = got.Signature, got.References, got.Observation, got.Inclusion
			w.ObservedStatus, w.FileMatch, w.ExitCode = got.ObservedStatus, got.FileMatch, got.ExitCode()
			if !reflect.DeepEqual(v, w) {
				v.Receipt, w.Receipt = nil, nil
				t.Errorf("got  %s\nwant %s\n%q", marshal(t, w), marshal(t, v), got.Reasons)
			}
			if (got.Record != nil) != (got.Signature == Valid) || (got.ObservedAt == nil) != (got.ObservedStatus == nil) {
				t.Errorf("%s", marshal(t, got))
			}
		})
	}
}

// TestVectorsFile keeps the table where the verifiers in other languages find it.
func TestVectorsFile(t *testing.T) {
	f := newFixture(t)
	trusted, err := f.trust.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	list := vectors(t)
	sortByName(list)
	b, err := json.MarshalIndent(map[string]any{"trustedKeys": json.RawMessage(trusted), "now": FormatTime(testNow), "vectors": list}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "vectors.json", append(b, '\n'))
}

func TestFindingsAsJSON(t *testing.T) {
	f := newFixture(t)
	var got map[string]any
	if err := json.Unmarshal(marshal(t, Verify(nil, f.trust, Options{Now: testNow})), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"signature": "invalid", "references": "not-checked", "observation": "not-checked", "observedStatus": nil, "observedAt": nil,
		"fileMatch": nil, "inclusion": "not-checked", "record": nil, "notes": []any{},
	} {
		if v, ok := got[name]; !ok || !reflect.DeepEqual(v, want) {
			t.Errorf("%s is %v", name, v)
		}
	}
}

func TestVerifyRecord(t *testing.T) {
	f := newFixture(t)
	payload := f.record.AppendCanonical(nil)
	check := func(name string, s *Signer, payload []byte, signature string, want Finding) {
		t.Helper()
		p, got := VerifyRecord(f.trust, s.Key().KeyID, payload, signature)
		if got != want || (p != RecordPayload{}) != (want == Valid) {
			t.Errorf("%s: %s, %+v", name, got, p)
		}
	}
	check("good", f.signer, payload, f.signer.Sign(payload), Valid)
	check("retired", f.retired, payload, f.retired.Sign(payload), Valid)
	check("revoked", f.revoked, payload, f.revoked.Sign(payload), Untrusted)
	check("both", f.both, payload, f.both.Sign(payload), Untrusted)
	check("foreign", f.foreign, payload, f.foreign.Sign(payload), Untrusted)
	check("another key's", f.signer, payload, f.retired.Sign(payload), Invalid)
	check("nothing", f.signer, payload, "", Invalid)
	status := f.status.AppendCanonical(nil)
	check("another role", f.signer, status, f.signer.Sign(status), Invalid)
	if got := CheckSignature(f.trust, f.signer.Key().KeyID, status, f.signer.Sign(status)); got != Valid {
		t.Error(got)
	}
}
