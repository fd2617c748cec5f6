package evidence

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/strictjson"
)

// proofOf returns the proof of a changed fixture, or with changed parts.
func (b *vectorBook) proofOf(change func(f *fixture, e *Envelope)) string {
	g := b.f
	e := g.envelope()
	i := g.goodInclusion(b.t)
	e.Inclusion = &i
	change(&g, &e)
	return string(e.AppendProof(nil))
}

// extraChanged replaces the extra data of a proof by another text.
func extraChanged(t testing.TB, proof string, change func(data string) string) string {
	t.Helper()
	before, rest, _ := strings.Cut(proof, "extra ")
	text, after, _ := strings.Cut(rest, "\n")
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	changed := change(string(data))
	if changed == string(data) {
		t.Fatalf("nothing changed in %s", data)
	}
	return before + "extra " + base64.StdEncoding.EncodeToString([]byte(changed)) + "\n" + after
}

// goodProof expects a valid proof that has references.
func goodProof(v *vector) {
	partsAbsent(v)
	v.Expect.Findings.References, v.Expect.Findings.Inclusion = Valid, Valid
}

// proofs adds transparency log proofs (C2SP tlog-proof).
func (s stampBook) proofs() {
	b := s.vectorBook
	private := b.proofOf(func(*fixture, *Envelope) {})
	public := b.proofOf(func(_ *fixture, e *Envelope) { e.References = nil })
	add := func(name, proof string, expect ...func(*vector)) {
		b.add("proof: "+name, []byte(proof), append([]func(*vector){goodProof}, expect...)...)
	}
	noReferences := func(v *vector) { v.Expect.Findings.References = NotSupplied }
	add("private", private)
	add("public", public, noReferences)
	add("public, of the document", public, noReferences, compared(testContent, true))
	add("of another document", private, compared([]byte("another"), false))
	add("public, references required", public, noReferences, requireReferences, exits(1))
	add("without an observation, which is required", private, requireCurrent, exits(1))
	add("without log keys", private, trusting("only keys"), func(v *vector) {
		v.Expect.Findings.Inclusion, v.Expect.ExitCode = NotChecked, 1
	})
	for _, place := range [][2]int64{{0, 1}, {6, 7}, {256, 257}} {
		add(fmt.Sprintf("entry %d of %d", place[0], place[1]), b.proofOf(func(f *fixture, e *Envelope) {
			i := f.inclusion(b.t, string(f.leaf().AppendCanonical(nil)), place[0], place[1])
			e.Inclusion = &i
		}))
	}
	add("by a foreign log key", b.proofOf(func(f *fixture, e *Envelope) {
		f.logSigner = f.foreignLog
		i := f.goodInclusion(b.t)
		e.Inclusion = &i
	}), included(Untrusted))
	add("of a tree of size 0", b.proofOf(func(f *fixture, e *Envelope) {
		e.Inclusion.LeafIndex, e.Inclusion.Hashes = 0, []string{}
		e.Inclusion.Checkpoint = sign(b.t, checkpointText(testLogName, tlog.Tree{}), f.logSigner)
	}), included(Invalid))
	add("of another record", b.proofOf(func(f *fixture, e *Envelope) {
		f.record.PublicID = strings.Repeat("a", 26)
		i := f.goodInclusion(b.t)
		e.Inclusion = &i
	}), included(Invalid))
	add("a healed record", b.proofOf(func(f *fixture, e *Envelope) {
		leaf := f.leaf()
		leaf.Type = "integrity.healed"
		i := f.inclusion(b.t, string(leaf.AppendCanonical(nil)), 4, 7)
		e.Inclusion = &i
	}), func(v *vector) { v.Expect.Findings.Inclusion, v.Expect.ExitCode = NotChecked, 1 })
	add("foreign signing key", b.proofOf(func(f *fixture, e *Envelope) {
		e.Signed = must(f.foreign.SignPayload(f.record.AppendCanonical(nil)))
	}), recordFails(Untrusted), func(v *vector) {
		v.Expect.Findings.Observation, v.Expect.Findings.Inclusion = NotSupplied, NotChecked
	})
	add("references of another record", b.proofOf(func(_ *fixture, e *Envelope) { e.References.Version++ }), referencesFail)
	for name, change := range map[string]func(lines []string) []string{
		"a hash less":          func(l []string) []string { return append(l[:3:3], l[4:]...) },
		"a hash more":          func(l []string) []string { return append(l[:4:4], l[3:]...) },
		"two hashes exchanged": func(l []string) []string { l[3], l[4] = l[4], l[3]; return l },
		"another index":        func(l []string) []string { l[2] = "index 5"; return l },
		"index of the size":    func(l []string) []string { l[2] = "index 7"; return l },
	} {
		add(name, strings.Join(change(strings.Split(private, "\n")), "\n"), included(Invalid))
	}
	at := uint64(1_795_080_660)
	cosigned := b.proofOf(func(_ *fixture, e *Envelope) {
		note := e.Inclusion.Checkpoint
		e.Inclusion.Checkpoint += s.witnesses[0].cosign(note, at) + s.witnesses[2].cosign(note, at)
	})
	two := func(v *vector) { v.TrustedKeys, v.Expect.Findings.Witnessed = stampedKeys, pointer(2) }
	add("cosigned by two", cosigned, two, requireWitnesses(2))
	add("cosigned by two, three required", cosigned, two, requireWitnesses(3), exits(1))

	replaced := func(from, to string) string { return strings.Replace(private, from, to, 1) }
	_, head, _ := strings.Cut(private, "\n")
	for name, proof := range map[string]string{
		"version 2":                    replaced("tlog-proof@v1", "tlog-proof@v2"),
		"a byte order mark":            "\ufeff" + private,
		"carriage returns":             strings.ReplaceAll(private, "\n", "\r\n"),
		"a carriage return":            replaced("\nindex", "\r\nindex"),
		"no header":                    head,
		"only a header":                proofHeader + "\n",
		"only a header and two lines":  proofHeader + "\n\n",
		"no extra data":                private[:strings.Index(private, "extra")] + private[strings.Index(private, "index"):],
		"empty extra data":             extraReplaced(private, "extra \n"),
		"extra data twice":             replaced("\nindex", "\nextra AAAA\nindex"),
		"extra data with a line break": replaced("extra ", "extra \n"),
		"extra data with two spaces":   replaced("extra ", "extra  "),
		"extra data of another kind":   extraReplaced(private, "extra YWdlLXYxLjIuMS50YXIuZ3o=\n"),
		"extra data in base64url":      extraReplaced(private, "extra _-8=\n"),
		"no index":                     replaced("\nindex 4", ""),
		"index with a zero":            replaced("index 4", "index 04"),
		"index with a plus":            replaced("index 4", "index +4"),
		"index with a minus":           replaced("index 4", "index -4"),
		"index with a space":           replaced("index 4", "index 4 "),
		"index in hexadecimal":         replaced("index 4", "index 0x4"),
		"index in other digits":        replaced("index 4", "index ４"),
		"index of nothing":             replaced("index 4", "index "),
		"index of 2^53":                replaced("index 4", "index 9007199254740992"),
		"index beyond 64 bits":         replaced("index 4", "index 18446744073709551620"),
		"no blank line":                replaced("\n\n", "\n"),
		"two blank lines":              replaced("\n\n", "\n\n\n"),
		"no checkpoint":                private[:strings.Index(private, "\n\n")+2],
		"a line after the checkpoint":  private + "x\n",
		"no line feed at the end":      strings.TrimSuffix(private, "\n"),
		"a proof within a proof":       private + "\n" + private,
		"a hash of 31 bytes":           replaced("\n\n", "\n"+base64.StdEncoding.EncodeToString(make([]byte, 31))+"\n\n"),
		"a hash of another spelling":   respelledHash(b.t, private),
		"a tree beyond 2^53":           replaced("\n7\n", "\n9007199254740993\n"),
		"64 KiB":                       private + strings.Repeat(" ", MaxReceiptBytes-len(private)),
		"more than 64 KiB":             private + strings.Repeat(" ", MaxReceiptBytes-len(private)+1),
	} {
		add(name, proof, refused)
	}
	for name, change := range map[string]func(string) string{
		"white space":    func(d string) string { return strings.Replace(d, ",", ", ", 1) },
		"an escape":      func(d string) string { return strings.Replace(d, "é", `\u00e9`, 1) },
		"another order":  func(d string) string { return `{"leaf":"",` + strings.Replace(d, `"leaf"`, `"loaf"`, 1)[1:] },
		"a member more":  func(d string) string { return strings.Replace(d, `,"signature"`, `,"s":1,"signature"`, 1) },
		"a member twice": func(d string) string { return strings.Replace(d, `,"signature"`, `,"leaf":"","signature"`, 1) },
		"an observation": func(d string) string { return strings.Replace(d, `}`, `},"statusObservation":{}`, 1) },
		"no leaf":        func(d string) string { return strings.Replace(d, `"leaf"`, `"leav"`, 1) },
		"leaf as a number": func(d string) string {
			return d[:strings.Index(d, `"leaf":`)] + `"leaf":1,` + d[strings.Index(d, `"payload"`):]
		},
		"another contract": func(d string) string { return strings.Replace(d, "log-proof-v1", "log-proof-v2", 1) },
		"evidence": func(d string) string {
			return strings.Replace(d, "integrity-tlog-proof-v1", "integrity-evidence-v1", 1)
		},
		"no contract": func(d string) string { return strings.Replace(d, `"contract":"integrity-tlog-proof-v1",`, "", 1) },
		"a line feed": func(d string) string { return d + "\n" },
		"two values":  func(d string) string { return d + "{}" },
		"an array":    func(d string) string { return "[" + d + "]" },
		"not UTF-8":   func(d string) string { return strings.Replace(d, "é", "\xe9", 1) },
		"null references": func(d string) string {
			return d[:strings.Index(d, `"references":`)] + `"references":null,` + d[strings.Index(d, `"signature"`):]
		},
		"references of a part": func(d string) string { return strings.Replace(d, `"source":"erp",`, "", 1) },
	} {
		add("extra data with "+name, extraChanged(b.t, private, change), refused)
	}
	add("in white space", " "+private, refused)
	add("within evidence", string(marshal(b.t, private)), refused)
}

// extraReplaced replaces the line of the extra data.
func extraReplaced(proof, line string) string {
	start := strings.Index(proof, "extra ")
	return proof[:start] + line + proof[strings.Index(proof, "index "):]
}

// respelledHash sets bits after the last byte of the first hash.
func respelledHash(t testing.TB, proof string) string {
	lines := strings.Split(proof, "\n")
	lines[3] = respellPadded(t, lines[3])
	return strings.Join(lines, "\n")
}

// TestProof: a proof is read as the parts of which it was made, and no other text is read as the same parts.
func TestProof(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := f.envelope()
	i := f.goodInclusion(t)
	e.Inclusion = &i
	proof := e.AppendProof(nil)
	read, err := ParseProof(proof)
	if err != nil || !bytes.Equal(read.AppendProof(nil), proof) {
		t.Fatalf("%v: %s", err, marshal(t, read))
	}
	e.StatusObservation = nil
	if got, want := marshal(t, read), marshal(t, e); !bytes.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// The extra data is a closed object of what the verifier checks.
	line, _, _ := strings.Cut(strings.SplitN(string(proof), "extra ", 2)[1], "\n")
	v, err := strictjson.Parse(decoded(t, line), maxDepth)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strictjson.Decode(v).Names(), " "); got !=
		"contract fingerprintSha256 keyId leaf payload publicKeyJwk references signature" {
		t.Error(got)
	}
}

// TestUncheckedProof: a proof or a token that was supplied and could not be checked is not called missing. The reason
// says what to do.
func TestUncheckedProof(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := f.envelope()
	i := f.goodInclusion(t)
	e.Inclusion = &i
	healed := f.leaf()
	healed.Type = "integrity.healed"
	other := f.inclusion(t, string(healed.AppendCanonical(nil)), 4, 7)
	restored := f.envelope()
	restored.Inclusion = &other
	withoutLog := must(NewTrustedKeys(f.trust.Keys(), nil, nil))
	required := Options{Now: testNow, RequireInclusion: true, RequireTimestamp: true}
	stamped := e
	stamped.Timestamps = []Timestamp{{
		TreeSize: 7, Hashes: []string{}, Checkpoint: i.Checkpoint, Tokens: []StampToken{{Authority: "a", Token: "AAAA"}},
	}}
	spoiled := stamped
	spoiled.Signature = strings.Repeat("A", 86)
	const missing = "a proof was supplied, but it could not be checked, because the trusted keys name no key of its log"
	for what, c := range map[string]struct {
		receipt []byte
		trust   *TrustedKeys
		opts    Options
		want    []string
	}{
		"a bare proof": {e.AppendProof(nil), withoutLog, Options{Now: testNow}, []string{"inclusion: " + missing}},
		"evidence":     {marshal(t, stamped), withoutLog, required, []string{"inclusion: " + missing, "time: tokens were supplied"}},
		"restored":     {restored.AppendProof(nil), f.trust, Options{Now: testNow}, []string{"inclusion: the leaf in the"}},
		"neither": {marshal(t, f.envelope()), withoutLog, required, []string{
			"inclusion: a valid proof of inclusion in the transparency log is required", "time: a valid token of a pinned",
		}},
		"another signature": {marshal(t, spoiled), withoutLog, required, []string{"signature: "}},
	} {
		got := Verify(c.receipt, c.trust, c.opts)
		ok := len(got.Reasons) == len(c.want)
		for n, want := range c.want {
			ok = ok && strings.HasPrefix(got.Reasons[n].String(), want)
		}
		if !ok {
			t.Errorf("%s: %q, want %q", what, got.Reasons, c.want)
		}
	}
}

// TestEveryByteOfTheProof changes every byte of a proof without cosignatures, and of one whose cosignatures are
// required: none has a byte that means nothing.
func TestEveryByteOfTheProof(t *testing.T) {
	t.Parallel()
	b := &vectorBook{t: t, f: newFixture(t), trust: map[string]string{}}
	s := stampBook{b, newStampFixture(t)}
	plain := s.proofOf(func(_ *fixture, e *Envelope) { e.References = nil })
	everyByte(t, s.f.trust, []byte(plain), Options{Now: testNow}, fewMasks)
	cosigned := s.proofOf(func(_ *fixture, e *Envelope) {
		e.Inclusion.Checkpoint += s.witnesses[0].cosign(e.Inclusion.Checkpoint, 1_795_080_660)
	})
	everyByte(t, s.stampFixture.trust, []byte(cosigned), Options{Now: testNow, RequireWitnesses: 1}, fewMasks)
}
