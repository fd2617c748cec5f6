package evidence

import (
	"bytes"
	"crypto/sha256"
	"strconv"
	"strings"
	"time"
)

func (b *vectorBook) goodReceipts() {
	bare := b.envelope(func(_ *fixture, e *Envelope) { e.References, e.StatusObservation = nil, nil })
	b.add("private export", b.good)
	b.add("white space round members", []byte(strings.ReplaceAll(string(b.good), `,"`, " ,\r\n\t\"")))
	b.add(
		"contract at the end",
		append(bytes.TrimSuffix(b.replaced(`{"contract":"integrity-evidence-v1",`, `{`), []byte("}")),
			`,"contract":"integrity-evidence-v1"}`...),
	)
	b.add("public receipt", bare, partsAbsent)
	b.add(
		"public receipt of a foreign key",
		marshal(b.t, NewEnvelope(must(b.f.foreign.SignPayload(b.f.record.AppendCanonical(nil))))), recordFails(Untrusted),
		partsAbsent,
	)
	b.add("references required and absent", bare, partsAbsent, requireReferences, exits(1))
	b.add("current required and absent", bare, partsAbsent, requireCurrent, exits(1))
	b.add("references and current required and there", b.good, requireReferences, requireCurrent)
	b.add("64 KiB", append(bytes.Clone(b.good), bytes.Repeat([]byte{' '}, 64<<10-len(b.good))...))
}

func (b *vectorBook) documents() {
	b.add("the document", b.good, compared(testContent, true))
	b.add(
		"the hash decides, not the length", b.issued(func(p *RecordPayload) { p.SizeBytes++ }), compared(testContent, true),
	)
	b.add("an empty document", b.issued(func(p *RecordPayload) {
		p.SHA256, p.SizeBytes = sha256.Sum256(nil), 0
	}), compared([]byte{}, true))
	b.add("another document", b.good, compared(append(bytes.Clone(testContent), '\n'), false))
	b.add("another document of the same length", b.good, compared(bytes.ToUpper(testContent), false))
	b.add("an empty document in its place", b.good, compared([]byte{}, false))
	b.add("historical, and another document", b.observed(func(p *StatusPayload) {
		p.Status = Superseded
	}), observes(Superseded, 0), compared(nil, false))
	b.add(
		"no hash is compared where the record fails", b.replaced("application/pdf", "application/pdg"),
		compared(testContent, true), recordFails(Invalid),
	)
}

func (b *vectorBook) keys() {
	// signed signs both payloads with another key and names that key.
	signed := func(s *Signer) []byte {
		return b.envelope(func(f *fixture, e *Envelope) {
			o := must(s.SignPayload(f.status.AppendCanonical(nil)))
			e.Signed, e.StatusObservation = must(s.SignPayload(f.record.AppendCanonical(nil))), &o
		})
	}
	names := func(change func(e *Envelope)) []byte { return b.envelope(func(_ *fixture, e *Envelope) { change(e) }) }
	foreign := b.f.foreign.Key()
	b.add("retired key", signed(b.f.retired))
	b.add("revoked key", signed(b.f.revoked), recordFails(Untrusted))
	b.add("compromised key, in both lists", signed(b.f.both), recordFails(Untrusted))
	b.add("foreign key", signed(b.f.foreign), recordFails(Untrusted))
	b.add("foreign signature under a trusted keyId", names(func(e *Envelope) {
		e.Signature = must(b.f.foreign.Sign([]byte(e.Payload)))
	}), recordFails(Invalid))
	b.add("foreign signature and JWK under a trusted keyId", names(func(e *Envelope) {
		e.Signature, e.JWK, e.FingerprintSHA256 = must(b.f.foreign.Sign([]byte(e.Payload))), foreign.JWK, foreign.FingerprintSHA256
	}), recordFails(Invalid))
	b.add("foreign JWK under a trusted keyId", names(func(e *Envelope) { e.JWK = foreign.JWK }), recordFails(Invalid))
	b.add("foreign fingerprint under a trusted keyId", names(func(e *Envelope) {
		e.FingerprintSHA256 = foreign.FingerprintSHA256
	}), recordFails(Invalid))
	b.add("upper-case fingerprint", names(func(e *Envelope) {
		e.FingerprintSHA256 = strings.ToUpper(e.FingerprintSHA256)
	}), recordFails(Invalid))
	b.add(
		"keyId of another trusted key", names(func(e *Envelope) { e.KeyID = b.f.retired.Key().KeyID }), recordFails(Invalid),
	)
	b.add("names of another trusted key", names(func(e *Envelope) {
		k := b.f.retired.Key()
		e.KeyID, e.JWK, e.FingerprintSHA256 = k.KeyID, k.JWK, k.FingerprintSHA256
	}), recordFails(Invalid))
	b.add("unknown keyId", names(func(e *Envelope) { e.KeyID = tweak(e.KeyID) }), recordFails(Untrusted))
	b.add("keyId with padding", names(func(e *Envelope) { e.KeyID += "=" }), recordFails(Untrusted))
	b.add("keyId __proto__", names(func(e *Envelope) { e.KeyID = "__proto__" }), recordFails(Untrusted))
	b.add("another kty", names(func(e *Envelope) { e.JWK.Kty = "okp" }), recordFails(Invalid))
	b.add("another crv", names(func(e *Envelope) { e.JWK.Crv = "X25519" }), recordFails(Invalid))
	b.add("another spelling of x", names(func(e *Envelope) { e.JWK.X = respell(b.t, e.JWK.X) }), recordFails(Invalid))
	b.add("JWK with d", b.replaced(`"kty":"OKP"`, `"d":"AA","kty":"OKP"`), refused)
	b.add("JWK with use", b.replaced(`"kty":"OKP"`, `"use":"sig","kty":"OKP"`), refused)
	b.add("JWK without kty", b.replaced(`"kty":"OKP",`, ``), refused)
}

// signatures adds signatures in other than the canonical encoding.
func (b *vectorBook) signatures() {
	for name, spell := range map[string]func(string) string{
		"set bits after the last byte": func(s string) string { return respell(b.t, s) },
		"padding":                      func(s string) string { return s + "==" },
		"a newline within":             func(s string) string { return s[:40] + "\n" + s[40:] },
		"a newline for a character":    func(s string) string { return s[:40] + "\n" + s[41:] },
		"a newline at the end":         func(s string) string { return s + "\n" },
		"one byte short":               func(s string) string { return s[:84] },
		"standard alphabet":            func(s string) string { return s[:10] + "+" + s[11:] },
		"S plus L":                     func(s string) string { return plusL(b.t, s) },
		"all zeros":                    func(string) string { return strings.Repeat("A", 86) },
		"nothing":                      func(string) string { return "" },
	} {
		b.add("signature: "+name, b.envelope(func(_ *fixture, e *Envelope) {
			e.Signature = spell(e.Signature)
		}), recordFails(Invalid))
	}
}

// payloads adds payloads with good signatures whose values are just within or beyond the allowed ones.
func (b *vectorBook) payloads() {
	canonical, status := string(b.f.record.AppendCanonical(nil)), string(b.f.status.AppendCanonical(nil))
	b.add("status payload in the record's place", b.payload(status), recordFails(Invalid))
	b.add(
		"certificate contract in the record's place",
		b.payload(strings.Replace(canonical, "integrity-v1", "certificate-v1", 1)), recordFails(Invalid),
	)
	for name, change := range map[string]func(p *RecordPayload){
		"generatedAt of February 30":  func(p *RecordPayload) { p.GeneratedAt = "2026-02-30T00:00:00Z" },
		"generatedAt with an offset":  func(p *RecordPayload) { p.GeneratedAt = "2026-11-19T09:30:00+00:00" },
		"generatedAt of second 60":    func(p *RecordPayload) { p.GeneratedAt = "2016-12-31T23:59:60Z" },
		"generatedAt with a zero":     func(p *RecordPayload) { p.GeneratedAt = "2026-11-19T09:30:00.120Z" },
		"generatedAt in lower case":   func(p *RecordPayload) { p.GeneratedAt = "2026-11-19t09:30:00z" },
		"generatedAt of ten digits":   func(p *RecordPayload) { p.GeneratedAt = "2026-11-19T09:30:00.1234567891Z" },
		"generatedAt of the year 0":   func(p *RecordPayload) { p.GeneratedAt = "0000-01-01T00:00:00Z" },
		"generatedAt in other digits": func(p *RecordPayload) { p.GeneratedAt = "２026-11-19T09:30:00Z" },
		"receivedAt of nanoseconds": func(p *RecordPayload) {
			p.ReceivedAt = p.ReceivedAt.Truncate(time.Second).Add(123456789)
		},
		"media type in upper case":    func(p *RecordPayload) { p.MimeType = "Application/pdf" },
		"media type with a parameter": func(p *RecordPayload) { p.MimeType = "text/plain; charset=utf-8" },
		"publicId in upper case":      func(p *RecordPayload) { p.PublicID = strings.ToUpper(p.PublicID) },
		"empty issuer":                func(p *RecordPayload) { p.Issuer = "" },
		"issuer with a control":       func(p *RecordPayload) { p.Issuer = "https://ledger.example/\x1f" },
		"issuer of 513 characters":    func(p *RecordPayload) { p.Issuer = strings.Repeat("😀", 513) },
		"size below zero":             func(p *RecordPayload) { p.SizeBytes = -1 },
		"size of 2^53":                func(p *RecordPayload) { p.SizeBytes = 1 << 53 },
	} {
		b.add("payload: "+name, b.issued(change), recordFails(Invalid))
	}
	hash, received := b.f.record.SHA256.String(), FormatTime(b.f.record.ReceivedAt)
	b.add("payload: hash in upper case", b.reworded(hash, strings.ToUpper(hash)), recordFails(Invalid))
	b.add("payload: newline at the end of the hash", b.reworded(hash, hash+`\n`), recordFails(Invalid))
	b.add("payload: newline at the end of a time", b.reworded(received, received+`\n`), recordFails(Invalid))
	for name, change := range map[string]func(p *RecordPayload){
		"issuer with quotes and beyond the BMP": func(p *RecordPayload) { p.Issuer = "\"a\\b/\u2028\U0001F600é\ue000" },
		"issuer of 512 characters":              func(p *RecordPayload) { p.Issuer = strings.Repeat("😀", 512) },
		"size of 2^53 less 1":                   func(p *RecordPayload) { p.SizeBytes = 1<<53 - 1 },
		"generatedAt in the year 1":             func(p *RecordPayload) { p.GeneratedAt = "0001-01-01T00:00:00.000000001Z" },
		"generatedAt on a leap day":             func(p *RecordPayload) { p.GeneratedAt = "2024-02-29T23:59:59Z" },
		"generatedAt in the future":             func(p *RecordPayload) { p.GeneratedAt = "9999-12-31T23:59:59.9Z" },
	} {
		b.add("good payload: "+name, b.issued(change))
	}
	// A payload may contain only the normal form of the declared time.
	for _, v := range generatedAtVectors(b.t) {
		if v.Normalized != nil && *v.Normalized == v.Text {
			b.add("good payload: generatedAt, "+v.Name, b.issued(func(p *RecordPayload) {
				p.GeneratedAt = DeclaredTime(v.Text)
			}))
			continue
		}
		b.add("payload: generatedAt, "+v.Name, b.issued(func(p *RecordPayload) {
			p.GeneratedAt = DeclaredTime(v.Text)
		}), recordFails(Invalid))
		if v.Normalized != nil {
			b.add("good payload: generatedAt, "+v.Name+", normalized", b.issued(func(p *RecordPayload) {
				p.GeneratedAt = DeclaredTime(*v.Normalized)
			}))
		}
	}
	for name, text := range map[string]string{
		"null": "null", "an array": "[]", "text": `"integrity-v1"`, "nothing": "",
		"a missing member":      strings.Replace(canonical, `"mimeType":"application/pdf",`, ``, 1),
		"a null member":         strings.Replace(canonical, `"application/pdf"`, `null`, 1),
		"size as text":          strings.Replace(canonical, `:20,`, `:"20",`, 1),
		"another algorithm":     strings.Replace(canonical, `"SHA-256"`, `"SHA-512"`, 1),
		"another time source":   strings.Replace(canonical, `"service-clock"`, `"rfc3161"`, 1),
		"an unknown member":     strings.Replace(canonical, `"timeSource"`, `"tenant":"x","timeSource"`, 1),
		"a deep value":          strings.Repeat("[", 9) + strings.Repeat("]", 9),
		"contract of no object": `["integrity-v1"]`,
	} {
		b.add("payload: "+name, b.payload(text), recordFails(Invalid))
	}
}

// canonicalForms adds good signatures over forms other than RFC 8785.
func (b *vectorBook) canonicalForms() {
	canonical := string(b.f.record.AppendCanonical(nil))
	for name, text := range map[string]string{
		"white space": strings.Replace(canonical, `,"`, `, "`, 1),
		"other order": strings.Replace(
			strings.Replace(canonical, `"algorithm":"SHA-256",`, ``, 1), `}`, `,"algorithm":"SHA-256"}`, 1,
		),
		"needless escape":         strings.Replace(canonical, `<`, `\u003c`, 1),
		"escaped slash":           strings.Replace(canonical, `application/pdf`, `application\/pdf`, 1),
		"escape beyond ASCII":     strings.Replace(canonical, `é`, `\u00e9`, 1),
		"duplicate member":        strings.Replace(canonical, `,"timeSource"`, `,"sizeBytes":20,"timeSource"`, 1),
		"case variant":            strings.Replace(canonical, `,"timeSource"`, `,"sizebytes":1,"timeSource"`, 1),
		"fraction":                strings.Replace(canonical, `:20,`, `:20.0,`, 1),
		"exponent":                strings.Replace(canonical, `:20,`, `:2e1,`, 1),
		"minus zero":              strings.Replace(canonical, `:20,`, `:-0,`, 1),
		"leading zero":            strings.Replace(canonical, `:20,`, `:020,`, 1),
		"huge number":             strings.Replace(canonical, `:20,`, `:9007199254740993,`, 1),
		"enormous number":         strings.Replace(canonical, `:20,`, `:1`+strings.Repeat("0", 400)+`,`, 1),
		"number beyond a double":  strings.Replace(canonical, `:20,`, `:1e400,`, 1),
		"lone surrogate":          strings.Replace(canonical, `<`, `\ud800`, 1),
		"newline at the end":      canonical + "\n",
		"a second value":          canonical + "{}",
		"byte order mark":         "\ufeff" + canonical,
		"no-break space in front": "\u00a0" + canonical,
	} {
		b.add("canonical form: "+name, b.payload(text), recordFails(Invalid))
	}
}

func (b *vectorBook) envelopes() {
	b.add("envelope: byte order mark", append([]byte("\xef\xbb\xbf"), b.good...), refused)
	b.add("envelope: not UTF-8", b.replaced("é", "\xe9"), refused)
	b.add("envelope: overlong UTF-8", b.replaced("é", "\xc0\xaf"), refused)
	b.add("envelope: surrogate as UTF-8", b.replaced("é", "\xed\xa0\x80"), refused)
	b.add("envelope: two values", append(bytes.Clone(b.good), "{}"...), refused)
	b.add("envelope: garbage at the end", append(bytes.Clone(b.good), 0), refused)
	b.add("envelope: an array", append(append([]byte("["), b.good...), ']'), refused)
	b.add("envelope: nothing", []byte{}, refused)
	b.add("envelope: null", []byte("null"), refused)
	b.add("envelope: no end", b.good[:len(b.good)-1], refused)
	b.add(
		"envelope: more than 64 KiB", append(bytes.Clone(b.good), bytes.Repeat([]byte{' '}, 64<<10-len(b.good)+1)...),
		refused,
	)
	for name, change := range map[string][2]string{
		"lone surrogate":                  {"é", `\ud83d`},
		"surrogates exchanged":            {"é", `\ude00\ud83d`},
		"surrogate before another escape": {"é", `\ud83d\u0041`},
		"NUL in a string":                 {"é", `\u0000`},
		"raw newline in a string":         {"é", "\n"},
		"unknown escape":                  {"é", `\x41`},
		"too deep": {
			`"contract":"integrity-evidence-v1"`, `"contract":` + strings.Repeat("[", 8) + strings.Repeat("]", 8),
		},
		"far too deep":     {`"contract":"integrity-evidence-v1"`, `"contract":` + strings.Repeat("[", 20_000)},
		"comma at the end": {`"references"`, `,"references"`},
		"comment":          {`"references"`, `/**/"references"`},
		"form feed":        {`"references"`, "\f" + `"references"`},
		"no-break space":   {`"references"`, "\u00a0" + `"references"`},
		"another contract": {"integrity-evidence-v1", "integrity-evidence-v2"},
		"duplicate member": {`"signature"`, `"payload":"","signature"`},
		"duplicate of the same value": {
			`"contract":"integrity-evidence-v1"`, `"contract":"integrity-evidence-v1","contract":"integrity-evidence-v1"`,
		},
		"duplicate under an escape":     {`"signature"`, `"p\u0061yload":"","signature"`},
		"duplicate within the JWK":      {`"kty":"OKP"`, `"kty":"OKP","kty":"OKP"`},
		"case variant besides":          {`"signature"`, `"Payload":"","signature"`},
		"case variant instead":          {`"keyId"`, `"keyID"`},
		"unknown member":                {`"signature"`, `"alg":"none","signature"`},
		"unknown member __proto__":      {`"signature"`, `"__proto__":{},"signature"`},
		"unknown member in observation": {`"statusObservation":{`, `"statusObservation":{"alg":"none",`},
		"duplicate in observation":      {`"statusObservation":{`, `"statusObservation":{"payload":"",`},
		"missing member":                {`"contract":"integrity-evidence-v1",`, ``},
		"null references":               {`"references":{`, `"references":null,"x":{`},
		"null observation":              {`"statusObservation":{`, `"statusObservation":null,"x":{`},
		"references in a list":          {`"references":{`, `"references":[],"x":{`},
		"inclusion of another shape":    {`"references"`, `"inclusion":[],"references"`},
		"signature as a number":         {`"signature":"`, `"signature":1,"x":"`},
	} {
		b.add("envelope: "+name, b.replaced(change[0], change[1]), refused)
	}
	b.add("envelope: empty observation", b.envelope(func(_ *fixture, e *Envelope) {
		e.StatusObservation = &Signed{}
	}), observationFails(Invalid))
	b.add("good envelope: escapes that are no canonical form", b.replaced("é", `\u00e9`))
}

func (b *vectorBook) referenceParts() {
	bind := func(change func(r *References)) []byte {
		return b.envelope(func(_ *fixture, e *Envelope) { change(e.References) })
	}
	b.add("references: source and document exchanged", bind(func(r *References) {
		r.Source, r.DocumentReference = r.DocumentReference, r.Source
	}), referencesFail)
	b.add("references: another spelling of the salt", bind(func(r *References) {
		r.Salt = respell(b.t, r.Salt)
	}), referencesFail)
	b.add("references: newline at the end", bind(func(r *References) { r.Source += "\n" }), referencesFail)
	b.add("references: all of another record", bind(func(r *References) {
		*r = References{
			CompanyReference: "c-1", Source: "s", DocumentReference: "d", Version: 1, Salt: strings.Repeat("A", 22),
		}
	}), referencesFail)
	for name, change := range map[string][2]string{
		"version as a fraction": {`"version":2`, `"version":2.0`},
		"version as minus zero": {`"version":2`, `"version":-0`},
		"version with a zero":   {`"version":2`, `"version":02`},
		"huge version":          {`"version":2`, `"version":9007199254740993`},
		"version as text":       {`"version":2`, `"version":"2"`},
		"version true":          {`"version":2`, `"version":true`},
		"version NaN":           {`"version":2`, `"version":NaN`},
		"four of them":          {`"source":"erp",`, ``},
		"six of them":           {`"source":"erp"`, `"source":"erp","plate":"x"`},
		"one of them twice":     {`"source":"erp"`, `"source":"erp","source":"erp"`},
	} {
		b.add("references: "+name, b.replaced(change[0], change[1]), refused)
	}
	// The record itself commits to these references, but no registration can have had them.
	for name, change := range map[string]func(r *References){
		"version 0":               func(r *References) { r.Version = 0 },
		"version below zero":      func(r *References) { r.Version = -1 },
		"version of 2^31":         func(r *References) { r.Version = 1 << 31 },
		"a space":                 func(r *References) { r.CompanyReference = "c 1" },
		"129 characters":          func(r *References) { r.DocumentReference = strings.Repeat("d", 129) },
		"nothing":                 func(r *References) { r.Source = "" },
		"salt of 15 bytes":        func(r *References) { r.Salt = strings.Repeat("A", 20) },
		"salt of other spelling":  func(r *References) { r.Salt = respell(b.t, r.Salt) },
		"salt in standard base64": func(r *References) { r.Salt = strings.Replace(r.Salt, "-", "+", 1) },
	} {
		b.add("committed references: "+name, b.envelope(func(f *fixture, e *Envelope) {
			change(&f.references)
			f.record.ReferencesSHA256 = f.references.SHA256()
			f.status.PayloadSHA256 = sha256.Sum256(f.record.AppendCanonical(nil))
			*e = f.envelope()
		}), referencesFail)
	}
}

func (b *vectorBook) observations() {
	status := string(b.f.status.AppendCanonical(nil))
	early, late := b.f.record.ReceivedAt, testNow.Add(300*time.Second)
	at := func(t time.Time) []byte { return b.observed(func(p *StatusPayload) { p.ObservedAt = t }) }
	superseded := b.observed(func(p *StatusPayload) { p.Status = Superseded })
	b.add("historical: superseded", superseded, observes(Superseded, 0))
	b.add("historical where current is required", superseded, observes(Superseded, 1), requireCurrent)
	b.add("revoked", b.observed(func(p *StatusPayload) { p.Status = Revoked }), observes(Revoked, 1))
	b.add("observation at the record's own time", at(early), observedAt(FormatTime(early)))
	b.add("observation: stale, before the record", at(early.Add(-time.Microsecond)), observationFails(Invalid))
	b.add("observation 300 seconds ahead", at(late), observedAt(FormatTime(late)))
	b.add("observation: in the future", at(late.Add(time.Microsecond)), observationFails(Invalid))
	b.add("observation years old", b.good, func(v *vector) { v.Now = "2036-11-20T12:00:00Z" })
	for name, change := range map[string]func(p *StatusPayload){
		"unknown status":     func(p *StatusPayload) { p.Status = "valid" },
		"another publicId":   func(p *StatusPayload) { p.PublicID = strings.Repeat("a", 26) },
		"another payload":    func(p *StatusPayload) { p.PayloadSHA256 = sha256.Sum256(nil) },
		"sequence zero":      func(p *StatusPayload) { p.Sequence = 0 },
		"time in an offset":  func(p *StatusPayload) { p.ObservedAt = p.ObservedAt.In(time.FixedZone("", 3600)) },
		"time in nanosecond": func(p *StatusPayload) { p.ObservedAt = p.ObservedAt.Add(1) },
	} {
		b.add("observation: "+name, b.observed(change), observationFails(Invalid))
	}
	place := func(s Signed) []byte { return b.envelope(func(_ *fixture, e *Envelope) { e.StatusObservation = &s }) }
	asOf := StatusAsOfPayload{b.f.status, b.f.status.ObservedAt, 41}.AppendCanonical(nil)
	wrongly := must(b.f.signer.SignPayload([]byte(status)))
	wrongly.Signature = must(b.f.foreign.Sign([]byte(status)))
	respelled := must(b.f.signer.SignPayload([]byte(status)))
	respelled.Signature = respell(b.t, respelled.Signature)
	otherJWK := must(b.f.signer.SignPayload([]byte(status)))
	otherJWK.JWK = b.f.foreign.Key().JWK
	for name, s := range map[string]Signed{
		"record in its place": must(b.f.signer.SignPayload(b.f.record.AppendCanonical(nil))),
		"as-of in its place":  must(b.f.signer.SignPayload(asOf)),
		"as-of members under its name": must(b.f.signer.SignPayload(bytes.Replace(
			asOf, []byte(StatusAsOfContract), []byte(StatusContract), 1,
		))),
		"not canonical": must(b.f.signer.SignPayload([]byte(status + " "))),
		"duplicate member": must(b.f.signer.SignPayload([]byte(strings.Replace(
			status, `"sequence":41`, `"sequence":41,"sequence":41`, 1,
		)))),
		"wrongly signed":                  wrongly,
		"signature in another spelling":   respelled,
		"foreign JWK under trusted keyId": otherJWK,
	} {
		b.add("observation: "+name, place(s), observationFails(Invalid))
	}
	b.add("observation: by a foreign key", place(must(b.f.foreign.SignPayload([]byte(status)))), observationFails(Untrusted))
	b.add("observation: by a revoked key", place(must(b.f.revoked.SignPayload([]byte(status)))), observationFails(Untrusted))
	b.add("observation by a retired key", place(must(b.f.retired.SignPayload([]byte(status)))))
	b.add(
		"observation invalid where current is required", at(testNow.Add(time.Hour)), observationFails(Invalid),
		requireCurrent,
	)
	b.add("references wrong and observation too", b.envelope(func(f *fixture, e *Envelope) {
		e.References.Version, e.StatusObservation.Signature = 3, strings.Repeat("A", 86)
	}), referencesFail, observationFails(Invalid))
}

// trustFiles adds vectors with other sets than the standard one.
func (b *vectorBook) trustFiles() {
	key := string(marshal(b.t, b.f.signer.Key()))
	with := func(name, file string, expect ...func(*vector)) {
		b.trust[name] = file
		b.add("trusted keys: "+name, b.good, append(expect, trusting(name))...)
	}
	with("bare array", `[`+key+`]`)
	with("only keys", `{"keys":[`+key+`]}`)
	with("no key", `{"keys":[]}`, recordFails(Untrusted))
	with("empty array", `[]`, recordFails(Untrusted))
	with("revoked by its fingerprint alone",
		`{"keys":[`+key+`],"revokedKeys":[{"keyId":"`+b.f.foreign.Key().KeyID+`","fingerprintSha256":"`+
			b.f.signer.Key().FingerprintSHA256+`","reason":"compromised","since":"2036-01-01T00:00:00Z"}]}`,
		recordFails(Untrusted))
	with("revoked later than it signed",
		`{"keys":[`+key+`],"revokedKeys":[{"keyId":"`+b.f.signer.Key().KeyID+`","fingerprintSha256":"`+
			b.f.signer.Key().FingerprintSHA256+`","reason":"revoked","since":"2036-01-01T00:00:00Z"}]}`, recordFails(Untrusted))
	with("a log key under two names", `{"keys":[`+key+`],"logKeys":[`+string(marshal(b.t, b.f.logSigner.key))+`,`+
		string(marshal(b.t, testLogSigner(b.t, "other.example/log", 11).key))+`]}`)
	with("status of a revoked key",
		`{"keys":[`+key+`],"keyStatus":{"`+b.f.revoked.Key().KeyID+
			`":{"status":"retired","since":"2026-11-01T00:00:00Z"}},"revokedKeys":[{"keyId":"`+
			b.f.revoked.Key().KeyID+`","fingerprintSha256":"`+b.f.revoked.Key().FingerprintSHA256+
			`","reason":"revoked","since":"2026-11-01T00:00:00Z"}]}`)
	for name, since := range map[string]string{
		"without seconds": "2026-01-01T00:00Z", "with an offset in hours": "2026-01-01T02:00:00+02",
		"with an offset without colon": "2026-01-01T02:00:00+0200",
		"with a comma":                 "2026-01-01T00:00:00,5Z", "in lower case": "2026-01-01t00:00:00z",
	} {
		with("since "+name,
			`{"keys":[`+key+`],"keyStatus":{"`+b.f.signer.Key().KeyID+`":{"status":"retired","since":"`+since+`"}}}`,
			func(v *vector) {
				v.Expect = expectation{ExitCode: 2}
			})
	}
	with(
		"since in the year 1 of UTC",
		`{"keys":[`+key+`],"keyStatus":{"`+b.f.signer.Key().KeyID+
			`":{"status":"retired","since":"0000-12-31T23:30:00-00:30"}}}`,
	)
	with(
		"since in the year 9999 of UTC",
		`{"keys":[`+key+`],"keyStatus":{"`+b.f.signer.Key().KeyID+
			`":{"status":"retired","since":"9999-12-31T23:59:59.999999999Z"}}}`,
	)
	for name, file := range refusedTrustFiles(b.t, b.f) {
		with(name, file, func(v *vector) { v.Expect = expectation{ExitCode: 2} })
	}
}

// tampered changes one member of a signed part at a time, and does not sign again.
func (b *vectorBook) tampered() {
	for name, text := range b.otherMembers(b.f.record.AppendCanonical(nil)) {
		b.add("tampered record: "+name, b.envelope(func(_ *fixture, e *Envelope) { e.Payload = text }), recordFails(Invalid))
	}
	for name, text := range b.otherMembers(b.f.status.AppendCanonical(nil)) {
		b.add("tampered observation: "+name, b.envelope(func(_ *fixture, e *Envelope) {
			e.StatusObservation.Payload = text
		}), observationFails(Invalid))
	}
	references := b.f.references
	for name, change := range map[string]func(r *References){
		"companyReference":  func(r *References) { r.CompanyReference = tweak(r.CompanyReference) },
		"source":            func(r *References) { r.Source = tweak(r.Source) },
		"documentReference": func(r *References) { r.DocumentReference = tweak(r.DocumentReference) },
		"version":           func(r *References) { r.Version++ },
		"salt":              func(r *References) { r.Salt = tweak(r.Salt) },
	} {
		changed := references
		change(&changed)
		b.add("tampered references: "+name, b.envelope(func(_ *fixture, e *Envelope) {
			e.References = &changed
		}), referencesFail)
	}
	for _, character := range []int{0, 43, 85} {
		b.add("tampered signature, character "+strconv.Itoa(character), b.envelope(func(_ *fixture, e *Envelope) {
			to := byte('B')
			if e.Signature[character] == to {
				to = 'C'
			}
			e.Signature = e.Signature[:character] + string(to) + e.Signature[character+1:]
		}), recordFails(Invalid))
	}
}

// certificates adds certification downloads, which have only the signed members.
func (b *vectorBook) certificates() {
	signed := func(payload string) []byte { return marshal(b.t, must(b.f.signer.SignPayload([]byte(payload)))) }
	canonical := string(b.f.certificate().AppendCanonical(nil))
	issued := func(change func(p *CertificatePayload)) []byte {
		p := b.f.certificate()
		change(&p)
		return signed(string(p.AppendCanonical(nil)))
	}
	good := b.f.download(b.t, b.f.signer)
	b.add("certificate", good, partsAbsent)
	b.add("certificate and its document", good, partsAbsent, compared(testContent, true))
	b.add("certificate: another document", good, partsAbsent, compared([]byte{}, false))
	b.add("certificate where current is required", good, partsAbsent, requireCurrent, exits(1))
	b.add("certificate where references are required", good, partsAbsent, requireReferences, exits(1))
	b.add("certificate by a retired key", b.f.download(b.t, b.f.retired), partsAbsent)
	b.add("certificate without title and name", issued(func(p *CertificatePayload) {
		p.Title, p.OrganizationName = nil, nil
	}), partsAbsent)
	for name, s := range map[string]*Signer{"revoked": b.f.revoked, "compromised": b.f.both, "foreign": b.f.foreign} {
		b.add("certificate: by a "+name+" key", b.f.download(b.t, s), refused, func(v *vector) {
			v.Expect.Findings.Signature = Untrusted
		})
	}
	for name, receipt := range map[string][]byte{
		"a record in its place":       signed(string(b.f.record.AppendCanonical(nil))),
		"an observation in its place": signed(string(b.f.status.AppendCanonical(nil))),
		"not canonical":               signed(strings.Replace(canonical, ",", ", ", 1)),
		"an unknown member signed":    signed(strings.Replace(canonical, `"sha256"`, `"reviewer":"x","sha256"`, 1)),
		"another algorithm":           signed(strings.Replace(canonical, `"SHA-256"`, `"SHA-512"`, 1)),
		"a size below zero":           issued(func(p *CertificatePayload) { p.SizeBytes = -1 }),
		"a title of 201 characters":   issued(func(p *CertificatePayload) { p.Title = pointer(strings.Repeat("é", 201)) }),
		"a title with a newline":      issued(func(p *CertificatePayload) { p.Title = pointer("a\nb") }),
		"an empty name":               issued(func(p *CertificatePayload) { p.OrganizationName = pointer("") }),
		"issuedAt of nanoseconds":     issued(func(p *CertificatePayload) { p.IssuedAt = p.IssuedAt.Add(123456789) }),
		"tampered":                    bytes.Replace(good, []byte("Annual"), []byte("annual"), 1),
		"a member more":               append([]byte(`{"status":"valid",`), good[1:]...),
		"references":                  append([]byte(`{"references":null,`), good[1:]...),
		"a contract":                  append([]byte(`{"contract":"certificate-v1",`), good[1:]...),
		"a member twice":              append([]byte(`{"keyId":"x",`), good[1:]...),
	} {
		b.add("certificate: "+name, receipt, refused)
	}
	b.add("certificate in a record's place", b.payload(canonical), recordFails(Invalid))
}
