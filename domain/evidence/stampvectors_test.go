package evidence

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	goodGenTime = "2026-11-19T09:31:00Z"
	stampedKeys = "authorities and witnesses"
)

// stampBook creates the vectors of timestamps.
type stampBook struct {
	*vectorBook
	stampFixture
}

// stamps adds the vectors of timestamps, witnesses and revoked keys.
func (b *vectorBook) stamps() {
	s := stampBook{b, newStampFixture(b.t)}
	s.trusts(stampedKeys, s.stampFixture.trust)
	for _, group := range []func(){
		s.timestamps, s.tokens, s.tokenForms, s.chains, s.cosignatures, s.revocations, s.newMembers, s.strict,
		s.proofs,
	} {
		group()
	}
}

func (s stampBook) trusts(name string, trust *TrustedKeys) {
	s.t.Helper()
	file, err := trust.Marshal()
	if err != nil {
		s.t.Fatal(err)
	}
	s.trust[name] = string(file)
}

// export returns the private export with a proof and timestamps, modified by changes.
func (s stampBook) export(timestamps []Timestamp, changes ...func(e *Envelope)) []byte {
	return s.envelope(func(f *fixture, e *Envelope) {
		i := f.goodInclusion(s.t)
		e.Inclusion, e.Timestamps = &i, timestamps
		for _, change := range changes {
			change(e)
		}
	})
}

// note returns the stamped checkpoint.
func (s stampBook) note() string { return s.stamped(s.t, 5).Checkpoint }

// by returns one stamped checkpoint with a token by Alpha.
func (s stampBook) by(spec stampSpec, genTime string) []Timestamp {
	return []Timestamp{s.stamped(s.t, 5, stampToken("Alpha", spec.token(s.t, s.note()), genTime))}
}

func (s stampBook) good() []Timestamp { return s.by(s.alpha, goodGenTime) }

// timed sets the expected finding on supplied timestamps, with keys that pin authorities and witnesses.
func timed(finding Finding) func(*vector) {
	return func(v *vector) {
		v.TrustedKeys = stampedKeys
		f := v.Expect.Findings
		f.Inclusion, f.Time, f.Witnessed = Valid, finding, pointer(0)
		switch finding {
		case Valid:
			f.ExistedBefore, f.TimeAuthority = pointer(goodGenTime), pointer("Alpha")
		case Invalid, Untrusted:
			v.Expect.ExitCode = 1
		}
	}
}

func before(at, authority string) func(*vector) {
	return func(v *vector) { v.Expect.Findings.ExistedBefore, v.Expect.Findings.TimeAuthority = &at, &authority }
}

func requireTimestamp(v *vector) { v.RequireTimestamp = true }

func requireWitnesses(n int) func(*vector) { return func(v *vector) { v.RequireWitnesses = n } }

func acceptStamped(v *vector) { v.AcceptStampedBeforeRevocation = true }

// timestamps adds intact and changed timestamps around valid tokens.
func (s stampBook) timestamps() {
	good := s.good()
	s.add("time", s.export(good), timed(Valid))
	s.add("time required and there", s.export(good), timed(Valid), requireTimestamp)
	s.add("time required and absent", s.export(nil), timed(NotSupplied), requireTimestamp, exits(1))
	s.add("time without pinned authorities", s.export(good), included(Valid), noTime)
	s.add("time required without pinned authorities", s.export(good), included(Valid), noTime, requireTimestamp, exits(1))
	s.add(
		"time required and not trusted",
		s.export([]Timestamp{s.stamped(s.t, 5, stampToken("Gamma", s.foreign.token(s.t, s.note()), goodGenTime))}),
		timed(Untrusted), requireTimestamp,
	)
	s.add("time: without log keys", s.export(good), timed(NotChecked), included(NotChecked),
		trusting("authorities, no log"), func(v *vector) {
			v.Expect.Findings.Witnessed = nil
		})
	s.trusts("authorities, no log", s.pinned(s.t, func(t *TrustedKeys) { t.logKeys = nil }))
	s.add("time: certificate where it is required", s.f.download(s.t, s.f.signer), partsAbsent, requireTimestamp, exits(1))
	s.add("time where the record fails",
		bytes.Replace(s.export(good), []byte("application/pdf"), []byte("application/pdg"), 1),
		recordFails(Invalid), trusting(stampedKeys), included(NotChecked), func(v *vector) {
			v.Expect.Findings.Time, v.Expect.ExitCode = NotChecked, 1
		})
	s.add("time where inclusion fails", s.export(good, func(e *Envelope) {
		e.Inclusion.Hashes = nil
		e.Inclusion.Hashes = []string{}
	}), timed(Valid), included(Invalid), func(v *vector) { v.Expect.Findings.Witnessed = nil })
	s.add("time without inclusion", s.export(good, func(e *Envelope) { e.Inclusion = nil }), timed(Invalid),
		func(v *vector) {
			v.Expect.Findings.Inclusion, v.Expect.Findings.Witnessed = NotSupplied, nil
		})
	s.add("time: inclusion of another record", s.export(good, func(e *Envelope) {
		other := s.fixture
		other.record.PublicID = strings.Repeat("a", 26)
		i := other.goodInclusion(s.t)
		e.Inclusion = &i
	}), timed(Invalid), included(Invalid), func(v *vector) { v.Expect.Findings.Witnessed = nil })
	beta := stampToken("Beta", s.beta.token(s.t, s.note()), goodGenTime)
	earlier := s.beta
	earlier.genTime = "20261119093030.5Z"
	s.add("time: of two authorities", s.export([]Timestamp{s.stamped(s.t, 5, good[0].Tokens[0], beta)}), timed(Valid))
	s.add("time: of two authorities, the second earlier",
		s.export([]Timestamp{
			s.stamped(s.t, 5, good[0].Tokens[0], stampToken("Beta", earlier.token(s.t, s.note()), "2026-11-19T09:30:30.5Z")),
		}),
		timed(Valid), before("2026-11-19T09:30:30.5Z", "Beta"))
	s.add(
		"time: of two authorities, one with the other's token",
		s.export([]Timestamp{s.stamped(s.t, 5, good[0].Tokens[0], StampToken{"Beta", goodGenTime, good[0].Tokens[0].Token})}),
		timed(Untrusted),
	)
	s.add(
		"time: an authority that is not pinned",
		s.export([]Timestamp{s.stamped(s.t, 5, stampToken("Gamma", s.foreign.token(s.t, s.note()), goodGenTime))}),
		timed(Untrusted),
	)
	s.add(
		"time: an authority that is not pinned beside one that is",
		s.export([]Timestamp{s.stamped(s.t, 5, stampToken("Gamma", []byte("no token"), "soon"), good[0].Tokens[0])}),
		timed(Valid),
	)
	s.add(
		"time: a name in lower case",
		s.export([]Timestamp{s.stamped(s.t, 5, stampToken("alpha", s.alpha.token(s.t, s.note()), goodGenTime))}),
		timed(Untrusted),
	)
	later := s.stamped(s.t, 6, stampToken("Beta", s.beta.token(s.t, s.stamped(s.t, 6).Checkpoint), goodGenTime))
	s.add("time: two stamped checkpoints", s.export([]Timestamp{good[0], later}), timed(Valid))
	s.add(
		"time: the newest checkpoint",
		s.export([]Timestamp{
			s.stamped(s.t, 7, stampToken("Alpha", s.alpha.token(s.t, s.stamped(s.t, 7).Checkpoint), goodGenTime)),
		}),
		timed(Valid),
	)
	s.add(
		"time: two stamped checkpoints, the second broken",
		s.export([]Timestamp{good[0], {later.LeafIndex, later.TreeSize, later.Hashes[1:], later.Checkpoint, later.Tokens}}),
		timed(Invalid),
	)

	changed := func(name string, finding Finding, change func(t *Timestamp)) {
		list := s.good()
		change(&list[0])
		s.add("time: "+name, s.export(list), timed(finding))
	}
	changed("another leafIndex", Invalid, func(t *Timestamp) { t.LeafIndex = 3 })
	changed("leafIndex of the size", Invalid, func(t *Timestamp) { t.LeafIndex = 5 })
	changed("another treeSize", Invalid, func(t *Timestamp) { t.TreeSize = 6 })
	changed("a hash less", Invalid, func(t *Timestamp) { t.Hashes = t.Hashes[:len(t.Hashes)-1] })
	changed("a hash more", Invalid, func(t *Timestamp) { t.Hashes = append(t.Hashes, t.Hashes[0]) })
	changed("an altered hash", Invalid, func(t *Timestamp) { t.Hashes[0] = tweak(t.Hashes[0]) })
	changed("the newer checkpoint in its place", Invalid, func(t *Timestamp) {
		t.Checkpoint = s.stamped(s.t, 6).Checkpoint
	})
	changed("a text in the place of a checkpoint", Invalid, func(t *Timestamp) { t.Checkpoint = "log\n5\n" })
	changed("a checkpoint by another key of the log than was stamped", Invalid, func(t *Timestamp) {
		text := t.Checkpoint[:strings.Index(t.Checkpoint, "\n\n")+1]
		t.Checkpoint = sign(s.t, text, s.retiredLog)
	})
	changed("a checkpoint with a cosignature that was not stamped", Invalid, func(t *Timestamp) {
		t.Checkpoint += s.witnesses[0].cosign(t.Checkpoint, 1_795_080_660)
	})
	changed("an altered signature of the log", Invalid, func(t *Timestamp) {
		t.Checkpoint = strings.Replace(t.Checkpoint, "— "+testLogName+" ", "— "+testLogName+" A", 1)
	})
	changed("genTime another", Invalid, func(t *Timestamp) { t.Tokens[0].GenTime = "2026-11-19T09:31:01Z" })
	changed("genTime with a fraction of zero", Invalid, func(t *Timestamp) {
		t.Tokens[0].GenTime = "2026-11-19T09:31:00.0Z"
	})
	changed("genTime with an offset", Invalid, func(t *Timestamp) { t.Tokens[0].GenTime = "2026-11-19T10:31:00+01:00" })
	changed("genTime empty", Invalid, func(t *Timestamp) { t.Tokens[0].GenTime = "" })
	changed("a token in base64url", Invalid, func(t *Timestamp) {
		t.Tokens[0].Token = base64.RawURLEncoding.EncodeToString(decoded(s.t, t.Tokens[0].Token))
	})
	changed("a token with a newline", Invalid, func(t *Timestamp) { t.Tokens[0].Token += "\n" })
	changed("an empty token", Invalid, func(t *Timestamp) { t.Tokens[0].Token = "" })
	changed("a token of another checkpoint", Invalid, func(t *Timestamp) {
		t.Tokens[0] = stampToken("Alpha", s.alpha.token(s.t, s.stamped(s.t, 6).Checkpoint), goodGenTime)
	})
	foreign := s.fixture
	foreign.logSigner = s.foreignLog
	unknown := stampBook{s.vectorBook, stampFixture{fixture: foreign}}.stamped(s.t, 5)
	unknown.Tokens = []StampToken{stampToken("Alpha", s.alpha.token(s.t, unknown.Checkpoint), goodGenTime)}
	s.add("time: a checkpoint by a foreign log key", s.export([]Timestamp{unknown}), timed(Untrusted))
	// The envelope is closed, and its lists are bounded.
	for name, replace := range map[string][2]string{
		"an unknown member":             {`"timestamps":[{`, `"timestamps":[{"since":"",`},
		"an unknown member of a token":  {`"tokens":[{`, `"tokens":[{"nonce":1,`},
		"no tokens":                     {`"tokens":[{`, `"tokens":[],"x":[{`},
		"timestamps as an object":       {`"timestamps":[{`, `"timestamps":{"a":[{`},
		"timestamps null":               {`"timestamps":[`, `"timestamps":null,"x":[`},
		"empty timestamps":              {`"timestamps":[`, `"timestamps":[],"x":[`},
		"a leafIndex as text":           {`"timestamps":[{"leafIndex":4`, `"timestamps":[{"leafIndex":"4"`},
		"a negative leafIndex":          {`"timestamps":[{"leafIndex":4`, `"timestamps":[{"leafIndex":-1`},
		"treeSize 0":                    {`"treeSize":5`, `"treeSize":0`},
		"a token that is null":          {`"token":"`, `"token":null,"x":"`},
		"timestamps in another case":    {`"timestamps":[`, `"Timestamps":[`},
		"tokens twice":                  {`"tokens":[`, `"tokens":[],"tokens":[`},
		"a hash that is a number":       {`"treeSize":5,"hashes":[`, `"treeSize":5,"hashes":[1,`},
		"an authority that is a number": {`"authority":"Alpha"`, `"authority":1`},
	} {
		whole := string(s.export(good))
		if !strings.Contains(whole, replace[0]) {
			s.t.Fatalf("%s: %q does not occur", name, replace[0])
		}
		s.add(
			"time, not read: "+name, []byte(strings.Replace(whole, replace[0], replace[1], 1)), refused, trusting(stampedKeys),
		)
	}
	four := slices.Repeat(good, 4)
	s.add("time: four stamped checkpoints", s.export(four), timed(Valid))
	s.add("time, not read: five stamped checkpoints", s.export(append(four, good[0])), refused, trusting(stampedKeys))
	tokens := slices.Repeat(good[0].Tokens, 4)
	s.add("time: four tokens", s.export([]Timestamp{s.stamped(s.t, 5, tokens...)}), timed(Valid))
	s.add(
		"time, not read: five tokens", s.export([]Timestamp{s.stamped(s.t, 5, append(tokens, tokens[0])...)}), refused,
		trusting(stampedKeys),
	)
}

// noTime: the timestamps are not checked, because the keys pin no authorities.
func noTime(v *vector) { v.Expect.Findings.Time = NotChecked }

// tokens adds tokens with other times, keys and imprints.
func (s stampBook) tokens() {
	at := func(name, genTime, member string, expect ...func(*vector)) {
		spec := s.alpha
		spec.genTime = genTime
		s.add("token: "+name, s.export(s.by(spec, member)), expect...)
	}
	at(
		"with a fraction", "20261119093100.123456Z", "2026-11-19T09:31:00.123456Z", timed(Valid),
		before("2026-11-19T09:31:00.123456Z", "Alpha"),
	)
	at("with seven digits of a fraction", "20261119093100.1234567Z", "2026-11-19T09:31:00.123456Z", timed(Invalid))
	at("with a zero at the end of its fraction", "20261119093100.10Z", "2026-11-19T09:31:00.1Z", timed(Invalid))
	at("with a fraction without digits", "20261119093100.Z", goodGenTime, timed(Invalid))
	at("with a comma", "20261119093100,5Z", "2026-11-19T09:31:00.5Z", timed(Invalid))
	at("with an offset", "20261119103100+0100", goodGenTime, timed(Invalid))
	at("without seconds", "202611190931Z", goodGenTime, timed(Invalid))
	at("in local time", "20261119093100", goodGenTime, timed(Invalid))
	at("of a day that the month lacks", "20260231093100Z", "2026-03-03T09:31:00Z", timed(Invalid))
	at("with a leap second", "20261119093060Z", goodGenTime, timed(Invalid))
	at(
		"as far ahead as it may be", "20261120120500Z", "2026-11-20T12:05:00Z", timed(Valid),
		before("2026-11-20T12:05:00Z", "Alpha"),
	)
	at("ahead of the verifier's clock", "20261120120500.000001Z", "2026-11-20T12:05:00.000001Z", timed(Invalid))
	at(
		"as far behind as it may be", "20261119092505.25Z", "2026-11-19T09:25:05.25Z", timed(Valid),
		before("2026-11-19T09:25:05.25Z", "Alpha"),
	)
	at("behind the record", "20261119092505.249999Z", "2026-11-19T09:25:05.249999Z", timed(Invalid))
	accurate := func(name string, accuracy []byte, expect ...func(*vector)) {
		s.add("token: accuracy "+name, s.export(s.by(s.alpha.with("accuracy", func([]byte) []byte {
			return accuracy
		}), goodGenTime)), expect...)
	}
	accurate(
		"of a second", tlv(tagSequence, []byte{tagInteger, 1, 1}), timed(Valid), before("2026-11-19T09:31:01Z", "Alpha"),
	)
	accurate(
		"of all its parts", tlv(tagSequence, []byte{tagInteger, 1, 2, 0x80, 2, 1, 0xf4, 0x81, 1, 7}), timed(Valid),
		before("2026-11-19T09:31:02.500007Z", "Alpha"),
	)
	accurate(
		"of milliseconds alone", tlv(tagSequence, []byte{0x80, 1, 1}), timed(Valid),
		before("2026-11-19T09:31:00.001Z", "Alpha"),
	)
	accurate("of nothing", tlv(tagSequence), timed(Valid))
	accurate(
		"of an hour", tlv(tagSequence, []byte{tagInteger, 2, 0x0e, 0x10}), timed(Valid),
		before("2026-11-19T10:31:00Z", "Alpha"),
	)
	accurate("of more than an hour", tlv(tagSequence, []byte{tagInteger, 2, 0x0e, 0x11}), timed(Invalid))
	accurate(
		"of an hour and a millisecond", tlv(tagSequence, []byte{tagInteger, 2, 0x0e, 0x10, 0x80, 1, 1}), timed(Invalid),
	)
	accurate("below zero", tlv(tagSequence, []byte{tagInteger, 1, 0xff}), timed(Invalid))
	accurate("of 1000 milliseconds", tlv(tagSequence, []byte{0x80, 2, 0x03, 0xe8}), timed(Invalid))
	accurate("of 0 microseconds", tlv(tagSequence, []byte{0x81, 1, 0}), timed(Invalid))
	accurate("with a needless zero", tlv(tagSequence, []byte{tagInteger, 2, 0, 1}), timed(Invalid))
	accurate("in another order", tlv(tagSequence, []byte{0x81, 1, 1, 0x80, 1, 1}), timed(Invalid))
	for name, c := range map[string]struct {
		curve elliptic.Curve
		hash  crypto.Hash
	}{
		"P-256 with SHA-384": {elliptic.P256(), crypto.SHA384}, "P-384": {elliptic.P384(), crypto.SHA384},
		"P-521": {elliptic.P521(), crypto.SHA512}, "P-384 with SHA-256": {elliptic.P384(), crypto.SHA256},
	} {
		spec := stampSpec{
			by: certify(s.t, "Alpha "+name, curveKey(s.t, c.curve, 1), s.root, stamping(s.t)), genTime: goodTime, hash: c.hash,
		}
		s.add("token: by "+name, s.export(s.by(spec, goodGenTime)), timed(Valid))
	}
	p224 := stampSpec{
		by: certify(s.t, "Alpha P-224", curveKey(s.t, elliptic.P224(), 40), s.root, stamping(s.t)), genTime: goodTime,
		hash: crypto.SHA256,
	}
	s.add("token: by P-224", s.export(s.by(p224, goodGenTime)), timed(Invalid))
	rsa := stampSpec{
		by: certify(s.t, "Alpha RSA", rsaKey(s.t, "timestamp-rsa-key.pem"), s.root, stamping(s.t)), genTime: goodTime,
		hash: crypto.SHA256,
	}
	for _, hash := range []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512} {
		rsa.hash = hash
		s.add("token: by RSA with "+hash.String(), s.export(s.by(rsa, goodGenTime)), timed(Valid))
	}
	rsa.hash = crypto.SHA256
	named := func(oid asn1.ObjectIdentifier, parameters ...[]byte) stampSpec {
		return rsa.with("algorithm", func([]byte) []byte { return algorithmDER(oid, parameters...) })
	}
	s.add(
		"token: by RSA under the name of both",
		s.export(s.by(named(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, null), goodGenTime)), timed(Valid),
	)
	s.add(
		"token: by RSA under the name of another digest",
		s.export(s.by(named(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 12}, null), goodGenTime)), timed(Invalid),
	)
	s.add(
		"token: by RSA under the name of SHA-1",
		s.export(s.by(named(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 5}, null), goodGenTime)), timed(Invalid),
	)
	s.add(
		"token: by RSA under the name of PSS",
		s.export(s.by(named(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 10}), goodGenTime)), timed(Invalid),
	)
	s.add(
		"token: by RSA under the name of ECDSA",
		s.export(s.by(named(asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}), goodGenTime)), timed(Invalid),
	)
	small := stampSpec{
		by:      certify(s.t, "Alpha RSA 1024", rsaKey(s.t, "timestamp-rsa-1024-key.pem"), s.root, stamping(s.t)),
		genTime: goodTime, hash: crypto.SHA256,
	}
	s.add("token: by RSA of 1024 bits", s.export(s.by(small, goodGenTime)), timed(Invalid))
	swapped := s.alpha
	swapped.by = &testAuthority{s.alpha.by.certificate, s.beta.by.key, s.alpha.by.chain}
	s.add("token: signed with another key", s.export(s.by(swapped, goodGenTime)), timed(Invalid))
	s.add("token: of a foreign authority", s.export(s.by(s.foreign, goodGenTime)), timed(Untrusted))
}

// cosign returns a cosignature line (C2SP tlog-cosignature).
func (w testWitness) cosign(note string, at uint64) string {
	text := note[:strings.Index(note, "\n\n")+1]
	signature := decodedURL(w.t, must(w.signer.Sign(fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text))))
	return noteLine(
		w.Name,
		slices.Concat(
			keyHashOf(w.t, logSigner{key: LogKey(w.WitnessKey)}), binary.BigEndian.AppendUint64(nil, at), signature,
		),
	)
}

// cosignatures adds checkpoints cosigned by pinned witnesses and by others.
func (s stampBook) cosignatures() {
	const at = 1_795_080_660 // a minute after the record
	now := uint64(testNow.Unix())
	with := func(write func(note string) string) []byte {
		return s.export(nil, func(e *Envelope) { e.Inclusion.Checkpoint += write(e.Inclusion.Checkpoint) })
	}
	add := func(name string, n int, write func(note string) string, expect ...func(*vector)) {
		s.add("witnesses: "+name, with(write), append([]func(*vector){timed(NotSupplied), func(v *vector) {
			v.Expect.Findings.Witnessed = &n
		}}, expect...)...)
	}
	line := func(w int, at uint64) func(string) string {
		return func(note string) string { return s.witnesses[w].cosign(note, at) }
	}
	two := func(note string) string { return line(0, at)(note) + line(2, at)(note) }
	add("none", 0, func(string) string { return "" })
	add("one", 1, line(0, at))
	add("two", 2, two)
	add("two required", 2, two, requireWitnesses(2))
	add("three required", 2, two, requireWitnesses(3), exits(1))
	add("one required, none there", 0, func(string) string { return "" }, requireWitnesses(1), exits(1))
	add("one twice", 1, func(note string) string { return line(0, at)(note) + line(0, at+1)(note) })
	add("one that lies and is honest", 1, func(note string) string { return line(0, now+301)(note) + line(0, at)(note) })
	add("at the beginning of time", 0, line(0, 0))
	add("as far ahead as it may be", 1, line(0, now+300))
	add("ahead of the verifier's clock", 0, line(0, now+301))
	add("at a time that cannot be", 0, line(0, 1<<63))
	add("of another checkpoint", 0, func(string) string { return s.witnesses[0].cosign(s.note(), at) })
	add("by the key of another", 0, func(note string) string {
		w := s.witnesses[0]
		w.signer = s.witnesses[1].signer
		return w.cosign(note, at)
	})
	add("under the name of another", 0, func(note string) string {
		w := s.witnesses[0]
		w.Name = "witness.example/2"
		return w.cosign(note, at)
	})
	add("not pinned", 0, func(note string) string { return newTestWitness(s.t, "witness.example/9", 39).cosign(note, at) })
	add("a pinned key under type 1", 0, func(note string) string {
		key, err := NewLogKey(s.witnesses[0].Name, s.witnesses[0].raw[:])
		if err != nil {
			s.t.Fatal(err)
		}
		return sign(
			s.t, note[:strings.Index(note, "\n\n")+1], logSigner{key, s.witnesses[0].signer.private.(ed25519.PrivateKey)},
		)[strings.Index(note, "\n\n")+2:]
	})
	add("without its time", 0, func(note string) string {
		return noteLine(
			s.witnesses[0].Name,
			slices.Concat(keyHashOf(s.t, logSigner{key: LogKey(s.witnesses[0].WitnessKey)}), make([]byte, 64)),
		)
	})
	rotated := newTestWitness(s.t, s.witnesses[0].Name, 38)
	s.trusts("a witness of two keys", s.pinned(s.t, func(t *TrustedKeys) {
		t.witnesses = append(t.witnesses, rotated.WitnessKey)
	}))
	both := func(note string) string { return line(0, at)(note) + rotated.cosign(note, at) }
	add("one by both of its keys", 1, both, trusting("a witness of two keys"))
	add("one by both of its keys, two required", 1, both, trusting("a witness of two keys"), requireWitnesses(2), exits(1))
	s.add("witnesses: none are pinned", with(two), included(Valid))
	s.add("witnesses: required and none are pinned", with(two), included(Valid), requireWitnesses(1), exits(1))
	s.add("witnesses: required and no proof", s.vectorBook.good, timed(NotSupplied), requireWitnesses(1), func(v *vector) {
		v.Expect.Findings.Inclusion, v.Expect.Findings.Witnessed, v.Expect.ExitCode = NotSupplied, nil, 1
	})
}

// revocations adds revocations of keys with earlier signatures.
func (s stampBook) revocations() {
	revoke := func(key KeyNames, since string) func(*TrustedKeys) {
		return func(t *TrustedKeys) {
			t.revoked = append(slices.Clone(t.revoked), RevokedKey{key.KeyID, key.FingerprintSHA256, ReasonCompromised, since})
		}
	}
	logKey := s.logSigner.key.names()
	before, at, after := "2026-11-19T09:30:59Z", goodGenTime, "2026-11-19T09:31:00.000001Z"
	for name, since := range map[string]string{"before": before, "at": at, "after": after} {
		s.trusts("log key revoked "+name+" the token", s.pinned(s.t, revoke(logKey, since)))
		s.trusts("signing key revoked "+name+" the token", s.pinned(s.t, revoke(s.signer.Key().KeyNames, since)))
	}
	s.trusts("log key revoked in the future", s.pinned(s.t, revoke(logKey, "2036-01-01T00:00:00Z")))
	s.trusts("both revoked after the token", s.pinned(s.t, func(t *TrustedKeys) {
		revoke(logKey, after)(t)
		revoke(s.signer.Key().KeyNames, after)(t)
	}))
	published, err := s.pinned(s.t, revoke(s.signer.Key().KeyNames, after)).Published()
	if err != nil {
		s.t.Fatal(err)
	}
	s.trusts("signing key revoked after the token, published", published)
	good := s.export(s.good())
	untrustedLog := func(v *vector) {
		v.Expect.Findings.Inclusion, v.Expect.Findings.Witnessed, v.Expect.ExitCode = Untrusted, nil, 1
	}
	s.add("revoked log key: stamped before", good, timed(Valid), trusting("log key revoked after the token"))
	s.add(
		"revoked log key: stamped in the moment", good, timed(Untrusted), trusting("log key revoked at the token"),
		untrustedLog,
	)
	s.add(
		"revoked log key: stamped after", good, timed(Untrusted), trusting("log key revoked before the token"), untrustedLog,
	)
	s.add(
		"revoked log key: not stamped", s.export(nil), timed(NotSupplied), trusting("log key revoked after the token"),
		untrustedLog,
	)
	inaccurate := s.alpha.with("accuracy", replaced(tlv(tagSequence, []byte{tagInteger, 1, 1})))
	s.add(
		"revoked log key: stamped before, but not for certain", s.export(s.by(inaccurate, goodGenTime)), timed(Untrusted),
		trusting("log key revoked after the token"), untrustedLog,
	)
	earlier := s.beta
	earlier.genTime = "20261119093030Z"
	s.add("revoked log key: stamped after, and by another before",
		s.export([]Timestamp{
			s.stamped(s.t, 5, s.good()[0].Tokens[0], stampToken("Beta", earlier.token(s.t, s.note()), "2026-11-19T09:30:30Z")),
		}),
		timed(Valid), trusting("log key revoked at the token"), func(v *vector) {
			v.Expect.Findings.ExistedBefore, v.Expect.Findings.TimeAuthority = pointer("2026-11-19T09:30:30Z"), pointer("Beta")
		})
	s.add("revoked log key: the proof signed by another one", s.export(nil, func(e *Envelope) {
		text := e.Inclusion.Checkpoint[:strings.Index(e.Inclusion.Checkpoint, "\n\n")+1]
		e.Inclusion.Checkpoint = sign(s.t, text, s.retiredLog)
	}), timed(NotSupplied), trusting("log key revoked before the token"))
	s.add("revoked log key: beside one that is not", s.export(nil, func(e *Envelope) {
		text := e.Inclusion.Checkpoint[:strings.Index(e.Inclusion.Checkpoint, "\n\n")+1]
		e.Inclusion.Checkpoint = sign(s.t, text, s.logSigner, s.retiredLog)
	}), timed(NotSupplied), trusting("log key revoked before the token"))
	cosigned := func(times ...uint64) []byte {
		return s.export(nil, func(e *Envelope) {
			note := e.Inclusion.Checkpoint
			for i, at := range times {
				e.Inclusion.Checkpoint += s.witnesses[i].cosign(note, at)
			}
		})
	}
	since := uint64(time.Date(2026, 11, 19, 9, 31, 0, 0, time.UTC).Unix())
	count := func(n int) func(*vector) { return func(v *vector) { v.Expect.Findings.Witnessed = &n } }
	s.add(
		"revoked log key: cosigned before by as many as required", cosigned(since-1, since-2), timed(NotSupplied),
		trusting("log key revoked at the token"), requireWitnesses(2), count(2),
	)
	ahead := uint64(testNow.Unix()) + 301
	s.add(
		"revoked log key: cosigned ahead of the verifier's clock", cosigned(ahead, ahead), timed(NotSupplied),
		trusting("log key revoked in the future"), requireWitnesses(2), untrustedLog,
	)
	s.add(
		"revoked log key: cosigned in the moment", cosigned(since-1, since), timed(NotSupplied),
		trusting("log key revoked at the token"), requireWitnesses(2), untrustedLog,
	)
	s.add(
		"revoked log key: cosigned before by fewer than required", cosigned(since-1), timed(NotSupplied),
		trusting("log key revoked at the token"), requireWitnesses(2), untrustedLog,
	)
	s.add(
		"revoked log key: cosigned before, none required", cosigned(since-1, since-2), timed(NotSupplied),
		trusting("log key revoked at the token"), untrustedLog,
	)

	accepted := func(v *vector) {
		v.AcceptStampedBeforeRevocation = true
		f := v.Expect.Findings
		f.Observation, f.ObservedStatus, f.ObservedAt = Untrusted, nil, nil
	}
	fails := func(v *vector) {
		recordFails(Untrusted)(v)
		v.Expect.Findings.Inclusion, v.Expect.Findings.Time = NotChecked, NotChecked
	}
	const after2 = "signing key revoked after the token"
	s.add("revoked signing key: not asked to accept it", good, timed(Valid), trusting(after2), fails)
	s.add("revoked signing key: stamped before", good, timed(Valid), trusting(after2), accepted)
	s.add(
		"revoked signing key: stamped before, published keys", good, timed(Valid), trusting(after2+", published"), accepted,
	)
	s.add(
		"revoked signing key: stamped before, its state required", good, timed(Valid), trusting(after2), accepted,
		requireCurrent, exits(1),
	)
	s.add(
		"revoked signing key: stamped in the moment", good, timed(Valid), trusting("signing key revoked at the token"),
		acceptStamped, fails,
	)
	s.add(
		"revoked signing key: stamped after", good, timed(Valid), trusting("signing key revoked before the token"),
		acceptStamped, fails,
	)
	s.add("revoked signing key: stamped by nobody", s.export(nil), timed(NotSupplied), trusting(after2), acceptStamped,
		fails, func(v *vector) {
			v.Expect.Findings.Time = NotSupplied
		})
	s.add(
		"revoked signing key: stamped by an authority that is not pinned",
		s.export([]Timestamp{s.stamped(s.t, 5, stampToken("Gamma", s.foreign.token(s.t, s.note()), goodGenTime))}),
		timed(Valid), trusting(after2), acceptStamped, fails,
	)
	s.add(
		"revoked signing key: with the log's, stamped before both", good, timed(Valid),
		trusting("both revoked after the token"), accepted,
	)
	s.add("revoked signing key: altered signature", s.export(s.good(), func(e *Envelope) {
		e.Signature = strings.Repeat("A", 86)
	}), timed(Valid), trusting(after2), acceptStamped, fails, func(v *vector) { v.Expect.Findings.Signature = Invalid })
	foreign := s.impersonated(s.good())
	s.add(
		"revoked signing key: another key under its keyId", foreign, timed(Valid), trusting(after2+", published"),
		acceptStamped, fails,
	)
	s.add("accepting what was stamped changes nothing for a key that is not revoked", good, timed(Valid), acceptStamped)
	s.add("accepting what was stamped is no trust in a foreign key", s.envelope(func(f *fixture, e *Envelope) {
		f.signer = f.foreign
		*e = f.envelope()
		i := f.goodInclusion(s.t)
		e.Inclusion, e.Timestamps = &i, s.good()
	}), timed(Valid), acceptStamped, fails)
}

// impersonated returns the export signed by a foreign key that claims the names of the revoked key.
func (s stampBook) impersonated(timestamps []Timestamp) []byte {
	return s.export(timestamps, func(e *Envelope) {
		names := e.KeyNames
		e.Signed = must(s.fixture.foreign.SignPayload([]byte(e.Payload)))
		e.KeyID, e.FingerprintSHA256 = names.KeyID, names.FingerprintSHA256
	})
}

// newMembers adds trusted-keys files with members that a verifier may not know, and with faults in the newer members.
func (s stampBook) newMembers() {
	file := s.trust[stampedKeys]
	key := string(marshal(s.t, s.signer.Key()))
	only := func(more string) string { return `{"keys":[` + key + `],` + more + `}` }
	with := func(name, file string, expect ...func(*vector)) {
		s.trust["new members: "+name] = file
		s.add("trusted keys: new members: "+name, s.vectorBook.good, append(expect, trusting("new members: "+name))...)
	}
	refuses := func(v *vector) { v.Expect = expectation{ExitCode: 2} }
	with("one that nobody knows", only(`"postQuantumKeys":[{"a":1}]`))
	with("two that nobody knows", only(`"note":null,"Übrig":{}`))
	with("critical, and known", only(`"logKeys":[],"critical":["logKeys","keys"]`))
	with("critical is known by itself", only(`"critical":["critical"]`))
	with("critical, and not known", only(`"postQuantumKeys":[],"critical":["postQuantumKeys"]`), refuses)
	with("critical, and absent", only(`"critical":["logKeys"]`), refuses)
	with("critical, twice", only(`"logKeys":[],"critical":["logKeys","logKeys"]`), refuses)
	with("critical of nothing", only(`"critical":[]`), refuses)
	with("critical as text", only(`"critical":"keys"`), refuses)
	with("critical null", only(`"critical":null`), refuses)
	with("critical of an empty name", only(`"":1,"critical":[""]`), refuses)
	with("critical of a number", only(`"critical":[1]`), refuses)
	with("critical in another case", only(`"Critical":["keys"]`), refuses)
	with("revoked keys in another case", only(`"RevokedKeys":[]`), refuses)
	with("log keys in another case, beside themselves", only(`"logKeys":[],"logkeys":[]`), refuses)
	with("an unknown one twice", only(`"note":1,"note":1`), refuses)
	with("a name that only Unicode takes for a known one", only(`"\u212aeys":[]`)) // the Kelvin sign
	entry := func(name, from, to string) {
		if !strings.Contains(file, from) {
			s.t.Fatalf("%s: %q does not occur", name, from)
		}
		with(name, strings.Replace(file, from, to, 1), refuses)
	}
	w, other := s.witnesses[0].WitnessKey, s.witnesses[1].WitnessKey
	entry("a witness with a member more", `"name": "`+w.Name+`"`, `"since": "", "name": "`+w.Name+`"`)
	entry("a witness of another name", `"name": "`+w.Name+`"`, `"name": "witness.example/0"`)
	entry("a witness of another hash", `"keyHash": "`+w.KeyHash+`"`, `"keyHash": "`+other.KeyHash+`"`)
	witnesses := func(name string, keys ...any) {
		with(
			name, only(`"logKeys":[`+string(marshal(s.t, s.logSigner.key))+`],"witnessKeys":`+string(marshal(s.t, keys))),
			refuses,
		)
	}
	witnesses("a witness twice", w, w)
	witnesses("a log key as a witness", s.logSigner.key)
	logKey, err := NewLogKey(w.Name, w.raw[:])
	if err != nil {
		s.t.Fatal(err)
	}
	witnesses("a witness whose key has a log's type", logKey)
	for name, seed := range map[string]byte{"a witness that signs records": 1, "a witness that signs checkpoints": 11} {
		witnesses(name, newTestWitness(s.t, "witness.example/1", seed).WitnessKey)
	}
	with("a witness that is revoked",
		only(`"revokedKeys":[{"keyId":"`+LogKey(w).names().KeyID+`","fingerprintSha256":"`+
			LogKey(w).names().FingerprintSHA256+
			`","reason":"revoked","since":"2026-11-01T00:00:00Z"}],"witnessKeys":[`+string(marshal(s.t, w))+`]`), refuses)
	with("witnesses null", only(`"witnessKeys":null`), refuses)
	root := base64.StdEncoding.EncodeToString(s.root.certificate.Raw)
	authority := func(name, entry string, expect ...func(*vector)) {
		with(name, only(`"timestampAuthorities":[`+entry+`]`), expect...)
	}
	one := func(name string, certificates ...string) string {
		return `{"name":"` + name + `","certificates":` + string(marshal(s.t, certificates)) + `}`
	}
	authority("an authority", one("A", root))
	authority("an authority of a long name", one(strings.Repeat("a", 64), root))
	authority("an authority of a longer name", one(strings.Repeat("a", 65), root), refuses)
	authority("an authority without name", one("", root), refuses)
	authority("an authority with a space in its name", one("a b", root), refuses)
	authority("an authority with a newline after its name", one(`a\n`, root), refuses)
	authority("an authority whose name begins with a dot", one(".a", root), refuses)
	authority("an authority twice", one("A", root)+","+one("A", root), refuses)
	authority("two authorities in two cases", one("A", root)+","+one("a", root))
	authority("an authority without certificates", one("A"), refuses)
	authority("an authority with a certificate twice", one("A", root, root), refuses)
	authority("an authority with nine certificates", one("A", slices.Repeat([]string{root}, 9)...), refuses)
	authority(
		"an authority whose certificate cannot be read", one("A", base64.StdEncoding.EncodeToString([]byte("certificate"))),
		refuses,
	)
	authority(
		"an authority whose certificate has a byte more",
		one("A", base64.StdEncoding.EncodeToString(append(bytes.Clone(s.root.certificate.Raw), 0))), refuses,
	)
	authority(
		"an authority whose certificate is in base64url",
		one("A", base64.RawURLEncoding.EncodeToString(s.root.certificate.Raw)), refuses,
	)
	authority("an authority whose certificate has a newline", one("A", root+`\n`), refuses)
	authority("an authority whose certificate is PEM", one("A", "-----BEGIN CERTIFICATE-----"), refuses)
	authority("an authority with a member more", strings.Replace(one("A", root), `{`, `{"url":"",`, 1), refuses)
	authority("an authority as text", `"A"`, refuses)
	with("authorities as an object", only(`"timestampAuthorities":{}`), refuses)
	list := make([]string, 17)
	for i := range list {
		list[i] = one(fmt.Sprintf("A%d", i), root)
	}
	authority("sixteen authorities", strings.Join(list[:16], ","))
	authority("seventeen authorities", strings.Join(list, ","), refuses)
}
