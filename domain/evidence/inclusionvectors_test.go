package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// testLog is an in-memory log built with Go's sumdb/tlog library.
type testLog struct {
	t      testing.TB
	hashes []tlog.Hash
	size   int64
}

// ReadHashes implements tlog.HashReader.
func (l *testLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	read := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		read[i] = l.hashes[index]
	}
	return read, nil
}

func (l *testLog) add(leaf []byte) {
	l.t.Helper()
	stored, err := tlog.StoredHashes(l.size, leaf, l)
	if err != nil {
		l.t.Fatal(err)
	}
	l.hashes, l.size = append(l.hashes, stored...), l.size+1
}

func (l *testLog) tree() tlog.Tree {
	l.t.Helper()
	root, err := tlog.TreeHash(l.size, l)
	if err != nil {
		l.t.Fatal(err)
	}
	return tlog.Tree{N: l.size, Hash: root}
}

// checkpointText returns the text that a log signs.
func checkpointText(origin string, tree tlog.Tree) string {
	return origin + "\n" + strconv.FormatInt(tree.N, 10) + "\n" + tree.Hash.String() + "\n"
}

// sign returns a note signed with the library's own signers.
func sign(t testing.TB, text string, signers ...logSigner) string {
	t.Helper()
	var list []note.Signer
	for _, s := range signers {
		typed := append([]byte{noteEd25519}, s.private.Seed()...)
		signer, err := note.NewSigner(
			"PRIVATE+KEY+" + s.key.Name + "+" + s.key.KeyHash + "+" + base64.StdEncoding.EncodeToString(typed),
		)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, signer)
	}
	signed, err := note.Sign(&note.Note{Text: text}, list...)
	if err != nil {
		t.Fatal(err)
	}
	return string(signed)
}

// noteLine returns a signature line of arbitrary bytes, the first four of which are the key hash.
func noteLine(name string, raw []byte) string {
	return "— " + name + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
}

// leaf returns the leaf of the record's own event.
func (f fixture) leaf() Leaf {
	return Leaf{
		ID: "evt_01jd1v3m5kf2vb8c9q4x7z6w5t", Type: registeredType, OccurredAt: f.record.ReceivedAt,
		PayloadSHA256: pointer(Hash(sha256.Sum256(f.record.AppendCanonical(nil)))),
		BodySHA256:    sha256.Sum256([]byte("a body")), Nonce: Nonce(bytes.Repeat([]byte{0xfc}, 16)),
	}
}

// inclusion puts a leaf into a log of other entries and returns its proof.
func (f fixture) inclusion(t testing.TB, leaf string, index, size int64) Inclusion {
	t.Helper()
	log := &testLog{t: t}
	for log.size < size {
		if log.size == index {
			log.add([]byte(leaf))
		} else {
			log.add(fmt.Appendf(nil, "entry %d", log.size))
		}
	}
	tree := log.tree()
	proof, err := tlog.ProveRecord(size, index, log)
	if err != nil {
		t.Fatal(err)
	}
	i := Inclusion{
		Leaf: leaf, LeafIndex: index, TreeSize: size, Hashes: []string{},
		Checkpoint: sign(t, checkpointText(f.logSigner.key.Name, tree), f.logSigner),
	}
	for _, hash := range proof {
		i.Hashes = append(i.Hashes, hash.String())
	}
	return i
}

func (f fixture) goodInclusion(t testing.TB) Inclusion {
	return f.inclusion(t, string(f.leaf().AppendCanonical(nil)), 4, 7)
}

// included returns the private export with a changed proof.
func (b *vectorBook) included(change func(i *Inclusion)) []byte {
	return b.envelope(func(f *fixture, e *Envelope) {
		i := f.goodInclusion(b.t)
		change(&i)
		e.Inclusion = &i
	})
}

func (b *vectorBook) inclusions() {
	leaf := string(b.f.leaf().AppendCanonical(nil))
	at := func(index, size int64) []byte {
		return b.envelope(func(f *fixture, e *Envelope) {
			i := f.inclusion(b.t, leaf, index, size)
			e.Inclusion = &i
		})
	}
	good := b.included(func(*Inclusion) {})
	b.add("inclusion", good, included(Valid))
	for _, place := range [][2]int64{
		{0, 1}, {0, 2}, {1, 2}, {2, 3}, {0, 5}, {4, 5}, {2, 6}, {0, 7}, {6, 7}, {3, 8}, {255, 256}, {256, 257}, {517, 1000},
	} {
		b.add(fmt.Sprintf("inclusion: entry %d of %d", place[0], place[1]), at(place[0], place[1]), included(Valid))
	}
	b.add("inclusion required and there", good, included(Valid), requireInclusion)
	b.add("inclusion required and absent", b.good, requireInclusion, exits(1))
	b.add("inclusion without log keys", good, included(NotChecked), trusting("only keys"))
	b.add(
		"inclusion required without log keys", good, included(NotChecked), trusting("only keys"), requireInclusion, exits(1),
	)
	b.add("inclusion broken without log keys", b.included(func(i *Inclusion) {
		i.Leaf, i.Checkpoint = "{}", "log\n1\n"
	}), included(NotChecked), trusting("only keys"))
	b.add(
		"inclusion: certificate where it is required", b.f.download(b.t, b.f.signer), partsAbsent, requireInclusion,
		exits(1),
	)
	b.add(
		"inclusion where the record fails", bytes.Replace(good, []byte("application/pdf"), []byte("application/pdg"), 1),
		recordFails(Invalid), included(NotChecked), exits(1),
	)
	b.add("inclusion and references and observation wrong", b.envelope(func(f *fixture, e *Envelope) {
		i := f.goodInclusion(b.t)
		i.Hashes = i.Hashes[1:]
		e.Inclusion, e.References.Version, e.StatusObservation.Signature = &i, 3, strings.Repeat("A", 86)
	}), referencesFail, observationFails(Invalid), included(Invalid))
	b.add("inclusion: of another record", b.envelope(func(f *fixture, e *Envelope) {
		other := *f
		other.record.PublicID = strings.Repeat("a", 26)
		i := other.goodInclusion(b.t)
		e.Inclusion = &i
	}), included(Invalid))
	b.add("inclusion: of another record, this one's leaf in its place", b.envelope(func(f *fixture, e *Envelope) {
		other := *f
		other.record.PublicID = strings.Repeat("a", 26)
		i := other.goodInclusion(b.t)
		i.Leaf = leaf
		e.Inclusion = &i
	}), included(Invalid))
	for name, change := range map[string]func(i *Inclusion){
		"a hash less at the end":        func(i *Inclusion) { i.Hashes = i.Hashes[:len(i.Hashes)-1] },
		"a hash less at the beginning":  func(i *Inclusion) { i.Hashes = i.Hashes[1:] },
		"a hash more at the end":        func(i *Inclusion) { i.Hashes = append(i.Hashes, i.Hashes[0]) },
		"a hash more at the beginning":  func(i *Inclusion) { i.Hashes = append([]string{i.Hashes[0]}, i.Hashes...) },
		"no hashes":                     func(i *Inclusion) { i.Hashes = []string{} },
		"two hashes swapped":            func(i *Inclusion) { i.Hashes[0], i.Hashes[1] = i.Hashes[1], i.Hashes[0] },
		"a hash repeated":               func(i *Inclusion) { i.Hashes[1] = i.Hashes[0] },
		"an altered hash":               func(i *Inclusion) { i.Hashes[0] = tweak(i.Hashes[0]) },
		"a hash of set bits at its end": func(i *Inclusion) { i.Hashes[0] = respellPadded(b.t, i.Hashes[0]) },
		"a hash without padding":        func(i *Inclusion) { i.Hashes[0] = strings.TrimRight(i.Hashes[0], "=") },
		"a hash with more padding":      func(i *Inclusion) { i.Hashes[0] += "=" },
		"a hash with a newline":         func(i *Inclusion) { i.Hashes[0] += "\n" },
		"a newline within a hash":       func(i *Inclusion) { i.Hashes[0] = i.Hashes[0][:9] + "\n" + i.Hashes[0][9:] },
		"an empty hash":                 func(i *Inclusion) { i.Hashes[0] = "" },
		"a hash of 31 bytes": func(i *Inclusion) {
			i.Hashes[0] = base64.StdEncoding.EncodeToString(make([]byte, 31))
		},
		"a hash of 33 bytes":       func(i *Inclusion) { i.Hashes[0] = base64.StdEncoding.EncodeToString(make([]byte, 33)) },
		"a hash beyond ASCII":      func(i *Inclusion) { i.Hashes[0] = "é" + i.Hashes[0][1:] },
		"leafIndex one less":       func(i *Inclusion) { i.LeafIndex-- },
		"leafIndex one more":       func(i *Inclusion) { i.LeafIndex++ },
		"leafIndex of the size":    func(i *Inclusion) { i.LeafIndex = i.TreeSize },
		"leafIndex of 2^32 more":   func(i *Inclusion) { i.LeafIndex += 1 << 32 },
		"leafIndex of 2^53 less 1": func(i *Inclusion) { i.LeafIndex = 1<<53 - 1 },
		"treeSize one less":        func(i *Inclusion) { i.TreeSize-- },
		"treeSize one more":        func(i *Inclusion) { i.TreeSize++ },
		"treeSize of 2^32 more":    func(i *Inclusion) { i.TreeSize += 1 << 32 },
		"an inner node as leaf":    func(i *Inclusion) { i.Leaf = string(rune(1)) + i.Leaf },
		"sixty-five hashes": func(i *Inclusion) {
			for len(i.Hashes) < 65 {
				i.Hashes = append(i.Hashes, i.Hashes[0])
			}
		},
	} {
		b.add("inclusion: "+name, b.included(change), included(Invalid))
	}
	b.add("inclusion: another spelling of a hash", b.included(func(i *Inclusion) {
		for n, hash := range i.Hashes {
			i.Hashes[n] = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(hash, "="))
		}
	}), included(Invalid))
	for name, receipt := range map[string]string{
		"hashes as text": strings.Replace(string(good), `"hashes":[`, `"hashes":"","x":[`, 1),
		"no leaf":        strings.Replace(string(good), `"leaf":`, `"lea":`, 1),
		"a member more":  strings.Replace(string(good), `"leafIndex":`, `"log":1,"leafIndex":`, 1),
		"a null hash":    strings.Replace(string(good), `"hashes":[`, `"hashes":[null,`, 1),
		"a case variant": strings.Replace(string(good), `"leafIndex":`, `"leafindex":`, 1),
		"null":           strings.Replace(string(b.good), `"references":`, `"inclusion":null,"references":`, 1),
		"a member twice": strings.Replace(string(good), `"leafIndex":4`, `"leafIndex":4,"leafIndex":4`, 1),
	} {
		b.add("inclusion: "+name, []byte(receipt), refused)
	}
}

// inclusionNumbers adds proofs with invalid numbers, or with numbers that the checkpoint spells differently.
func (b *vectorBook) inclusionNumbers() {
	good := string(b.included(func(*Inclusion) {}))
	for name, number := range map[string]string{
		"below zero": "-1", "2^53": "9007199254740992", "as text": `"4"`, "a fraction": "4.0", "an exponent": "4e0",
		"a leading zero": "04", "minus zero": "-0", "null": "null",
	} {
		b.add("inclusion: leafIndex "+name, []byte(strings.Replace(good, `"leafIndex":4`, `"leafIndex":`+number, 1)), refused)
		b.add("inclusion: treeSize "+name, []byte(strings.Replace(good, `"treeSize":7`, `"treeSize":`+number, 1)), refused)
	}
	b.add("inclusion: treeSize zero", []byte(strings.Replace(good, `"treeSize":7`, `"treeSize":0`, 1)), refused)
	// The log itself signs these checkpoints, so only their form is wrong.
	for name, size := range map[string]string{
		"with a leading zero": "07", "with a sign": "+7", "of other digits": "７", "in hexadecimal": "0x7",
		"with white space": "7 ", "with a separator": "7_0", "below zero": "-7",
		"of 2^53": "9007199254740992", "of 2^53 and 7": "9007199254740999", "of 2^64 and 7": "18446744073709551623",
		"of zero": "0", "as a fraction": "7.0", "as nothing": "", "of another tree": "8",
	} {
		b.add("inclusion: checkpoint's size "+name, b.checkpointed(func(f *fixture, text string) string {
			return sign(b.t, strings.Replace(text, "\n7\n", "\n"+size+"\n", 1), f.logSigner)
		}), included(Invalid))
	}
	// A tree of that size cannot be built, but the length of its proof is known and does not match.
	b.add("inclusion: sizes of 2^53 less 1", b.included(func(i *Inclusion) {
		i.TreeSize = 1<<53 - 1
		i.Checkpoint = sign(b.t, checkpointText(testLogName, tlog.Tree{N: i.TreeSize}), b.f.logSigner)
	}), included(Invalid))
}

// leaves adds proofs of other texts that the log does contain.
func (b *vectorBook) leaves() {
	add := func(name, leaf string, finding Finding) {
		b.add("leaf: "+name, b.envelope(func(f *fixture, e *Envelope) {
			i := f.inclusion(b.t, leaf, 4, 7)
			e.Inclusion = &i
		}), included(finding))
	}
	changed := func(change func(l *Leaf)) string {
		l := b.f.leaf()
		change(&l)
		return string(l.AppendCanonical(nil))
	}
	canonical := changed(func(*Leaf) {})
	payload, body := b.f.leaf().PayloadSHA256.String(), b.f.leaf().BodySHA256.String()
	nonce := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xfc}, 16))
	add("another id and nonce", changed(func(l *Leaf) {
		l.ID, l.Nonce = "evt_7zzzzzzzzzzzzzzzzzzzzzzzzz", Nonce{}
	}), Valid)
	for name, change := range map[string]func(l *Leaf){
		"a healed record": func(l *Leaf) { l.Type = "integrity.healed" },
		"a revocation":    func(l *Leaf) { l.Type, l.PayloadSHA256 = "integrity.revoked", nil },
		"an unknown type": func(l *Leaf) { l.Type = "x" + strings.Repeat("y_1.", 15) + "zzz" },
	} {
		add(name, changed(change), NotChecked)
	}
	b.add("leaf: a healed record, inclusion required", b.envelope(func(f *fixture, e *Envelope) {
		i := f.inclusion(b.t, changed(func(l *Leaf) { l.Type = "integrity.healed" }), 4, 7)
		e.Inclusion = &i
	}), included(NotChecked), requireInclusion, exits(1))
	for name, change := range map[string]func(l *Leaf){
		"another healed record":     func(l *Leaf) { l.Type, l.PayloadSHA256 = "integrity.healed", &b.f.record.SHA256 },
		"a type of 65 characters":   func(l *Leaf) { l.Type = strings.Repeat("y", 65) },
		"an empty type":             func(l *Leaf) { l.Type = "" },
		"a type in upper case":      func(l *Leaf) { l.Type = "Integrity.registered" },
		"a type with a newline":     func(l *Leaf) { l.Type += "\n" },
		"no payload":                func(l *Leaf) { l.PayloadSHA256 = nil },
		"the document's hash":       func(l *Leaf) { l.PayloadSHA256 = &b.f.record.SHA256 },
		"an empty id":               func(l *Leaf) { l.ID = "" },
		"an id of another kind":     func(l *Leaf) { l.ID = "rec" + l.ID[3:] },
		"an id beyond 128 bits":     func(l *Leaf) { l.ID = "evt_8" + l.ID[5:] },
		"an id of other characters": func(l *Leaf) { l.ID = l.ID[:10] + "u" + l.ID[11:] },
		"an id in upper case":       func(l *Leaf) { l.ID = "evt_" + strings.ToUpper(l.ID[4:]) },
		"a time of nanoseconds":     func(l *Leaf) { l.OccurredAt = l.OccurredAt.Truncate(time.Second).Add(123456789) },
		"a time with an offset": func(l *Leaf) {
			l.OccurredAt = l.OccurredAt.Truncate(time.Second).In(time.FixedZone("", 3600))
		},
	} {
		add(name, changed(change), Invalid)
	}
	for name, leaf := range map[string]string{
		"nothing": "", "an object of nothing": "{}", "null": "null",
		"the record's payload":        string(b.f.record.AppendCanonical(nil)),
		"a payload in upper case":     strings.Replace(canonical, payload, strings.ToUpper(payload), 1),
		"a body of 63 characters":     strings.Replace(canonical, body, body[1:], 1),
		"a nonce of 15 bytes":         strings.Replace(canonical, nonce, strings.Repeat("A", 20), 1),
		"a nonce of another spelling": strings.Replace(canonical, nonce, respell(b.t, nonce), 1),
		"a nonce in standard base64": strings.Replace(
			canonical, nonce, strings.NewReplacer("-", "+", "_", "/").Replace(nonce), 1,
		),
		"a nonce with its own padding": strings.Replace(canonical, nonce, nonce+"==", 1),
		"another contract":             strings.Replace(canonical, LeafContract, "integrity-leaf-v2", 1),
		"no contract":                  strings.Replace(canonical, `"contract":"`+LeafContract+`",`, "", 1),
		"a member more":                strings.Replace(canonical, `,"type"`, `,"sequence":1,"type"`, 1),
		"a member less":                strings.Replace(canonical, `"bodySha256":"`+body+`",`, "", 1),
		"a member twice":               strings.Replace(canonical, `,"type"`, `,"type":"integrity.registered","type"`, 1),
		"a case variant":               strings.Replace(canonical, `"payloadSha256"`, `"payloadsha256"`, 1),
		"white space":                  strings.Replace(canonical, `,"`, `, "`, 1),
		"another order": `{"type":"integrity.registered",` + strings.Replace(
			strings.TrimPrefix(canonical, "{"), `,"type":"integrity.registered"`, "", 1,
		),
		"a needless escape":    strings.Replace(canonical, "integrity.registered", `integrity\u002eregistered`, 1),
		"a newline at its end": canonical + "\n",
		"a byte order mark":    "\ufeff" + canonical,
		"a second value":       canonical + "{}",
		"a healed record without payloadSha256": strings.Replace(
			strings.Replace(canonical, "integrity.registered", "integrity.healed", 1), `,"payloadSha256":"`+payload+`"`, "", 1,
		),
		"a null type":            strings.Replace(canonical, `"integrity.registered"`, "null", 1),
		"text of a lone half":    strings.Replace(canonical, `integrity.registered`, `\ud800`, 1),
		"more than it can mean":  strings.Repeat("[", 9) + strings.Repeat("]", 9),
		"a list of one leaf":     "[" + canonical + "]",
		"its own leaf as a text": strconv.Quote(canonical),
	} {
		add(name, leaf, Invalid)
	}
}

// checkpointed returns the export with another checkpoint over the same tree. text is the text that the log signs.
func (b *vectorBook) checkpointed(write func(f *fixture, text string) string) []byte {
	return b.envelope(func(f *fixture, e *Envelope) {
		i := f.goodInclusion(b.t)
		i.Checkpoint = write(f, i.Checkpoint[:strings.Index(i.Checkpoint, "\n\n")+1])
		e.Inclusion = &i
	})
}

// checkpoints adds checkpoints that are signed or written in other ways.
func (b *vectorBook) checkpoints() {
	cosignature := append([]byte{1, 2, 3, 4}, bytes.Repeat([]byte{7}, 72)...)
	witness := noteLine("witness.example/w1", cosignature)
	elsewhere := testLogSigner(b.t, "other.example/log", 14)
	add := func(finding Finding, name string, checkpoint func(f *fixture, text string) string, expect ...func(*vector)) {
		b.add("checkpoint: "+name, b.checkpointed(checkpoint), append([]func(*vector){included(finding)}, expect...)...)
	}
	signed := func(f *fixture, text string) string { return sign(b.t, text, f.logSigner) }
	// edited changes the valid note without signing it again.
	edited := func(change func(note string) string) func(*fixture, string) string {
		return func(f *fixture, text string) string { return change(signed(f, text)) }
	}
	appended := func(line string) func(*fixture, string) string {
		return edited(func(note string) string { return note + line })
	}
	raw := func(note string) []byte { // the log's key hash and signature
		line := strings.TrimSuffix(note[strings.LastIndex(note, " ")+1:], "\n")
		return decoded(b.t, line)
	}
	add(Valid, "by a retired log key", func(f *fixture, text string) string { return sign(b.t, text, f.retiredLog) })
	add(Valid, "by two log keys", func(f *fixture, text string) string {
		return sign(b.t, text, f.retiredLog, f.logSigner)
	})
	add(Valid, "with cosignatures", appended(witness+noteLine("witness.example/w2", cosignature)))
	add(Valid, "with a cosignature in front", func(f *fixture, text string) string {
		return strings.Replace(signed(f, text), "\n\n", "\n\n"+witness, 1)
	})
	add(Valid, "with the same cosignature twice", appended(witness+witness))
	add(Valid, "with a line of the log's name and another key", appended(noteLine(testLogName, cosignature[:68])))
	add(Valid, "with a line of an unknown algorithm", appended(noteLine("witness.example/w3", cosignature[:5])))
	add(Valid, "with a witness beyond ASCII", appended(noteLine("wítness.example/😀", cosignature)))
	add(Valid, "with a zero-width space in a name", appended(noteLine("witness\u200b\ufeff.example", cosignature)))
	add(Valid, "with 99 cosignatures", appended(strings.Repeat(witness, 99)))
	add(Untrusted, "by a foreign key of the log's name", func(f *fixture, text string) string {
		return sign(b.t, text, f.foreignLog)
	})
	add(Untrusted, "of another origin by its own key", func(_ *fixture, text string) string {
		return sign(b.t, strings.Replace(text, testLogName, "other.example/log", 1), elsewhere)
	})
	add(Untrusted, "of another origin by the log's key", func(f *fixture, text string) string {
		return sign(b.t, strings.Replace(text, testLogName, "other.example/log", 1), f.logSigner)
	})
	add(Untrusted, "of an origin in upper case", func(f *fixture, text string) string {
		return sign(b.t, strings.Replace(text, testLogName, strings.ToUpper(testLogName), 1), f.logSigner)
	})
	add(Untrusted, "of an origin with white space at its end", func(f *fixture, text string) string {
		return sign(b.t, strings.Replace(text, testLogName, testLogName+" ", 1), f.logSigner)
	})
	add(Untrusted, "with a cosignature only", func(_ *fixture, text string) string { return text + "\n" + witness })
	add(Untrusted, "by a pinned key of another log", func(_ *fixture, text string) string {
		return sign(b.t, text, elsewhere)
	}, trusting("two logs"))
	b.trust["two logs"] = `{"keys":[` + string(marshal(b.t, b.f.signer.Key())) + `],"logKeys":[` + string(
		marshal(b.t, b.f.logSigner.key),
	) + `,` + string(marshal(b.t, elsewhere.key)) + `]}`
	b.add("trusted keys: two logs", b.good, trusting("two logs"))
	add(Valid, "by both pinned logs, of the first one's origin", func(f *fixture, text string) string {
		return sign(b.t, text, f.logSigner, elsewhere)
	}, trusting("two logs"))
	add(Untrusted, "with a byte order mark", edited(func(note string) string { return "\ufeff" + note }))
	for name, checkpoint := range map[string]func(*fixture, string) string{
		"empty":                func(*fixture, string) string { return "" },
		"without signatures":   func(_ *fixture, text string) string { return text + "\n" },
		"without a blank line": edited(func(note string) string { return strings.Replace(note, "\n\n", "\n", 1) }),
		"with two blank lines": edited(func(note string) string {
			return strings.Replace(note, "\n\n", "\n\n\n", 1)
		}),
		"with a blank line at its end": appended("\n"),
		"with a blank line between":    appended("\n" + witness),
		"without a newline at its end": edited(func(note string) string { return strings.TrimSuffix(note, "\n") }),
		"with CRLF":                    edited(func(note string) string { return strings.ReplaceAll(note, "\n", "\r\n") }),
		"with CRLF, signed so": func(f *fixture, text string) string {
			return sign(b.t, strings.ReplaceAll(text, "\n", "\r\n"), f.logSigner)
		},
		"with a tab":             appended(noteLine("a\tb", cosignature)),
		"with an extension line": func(f *fixture, text string) string { return sign(b.t, text+"extension\n", f.logSigner) },
		"of two lines": func(f *fixture, text string) string {
			return sign(b.t, text[:strings.LastIndex(text[:len(text)-1], "\n")+1], f.logSigner)
		},
		"with an empty origin": func(f *fixture, text string) string {
			return sign(b.t, strings.TrimPrefix(text, testLogName), f.logSigner)
		},
		"with another root, not signed": edited(func(note string) string {
			return note[:len(testLogName)+3] + tweak(note[len(testLogName)+3:])
		}),
		"with another root, signed": func(f *fixture, text string) string {
			return sign(b.t, text[:len(testLogName)+3]+tweak(text[len(testLogName)+3:]), f.logSigner)
		},
		"with a root of another spelling": b.rootSpelled(func(root string) string { return respellPadded(b.t, root) }),
		"with a root without padding":     b.rootSpelled(func(root string) string { return strings.TrimRight(root, "=") }),
		"with a root of 31 bytes": b.rootSpelled(func(string) string {
			return base64.StdEncoding.EncodeToString(make([]byte, 31))
		}),
		"with a root in base64url": b.rootSpelled(func(string) string { return strings.Repeat("-_", 21) + "8=" }),
		"with its signature twice": edited(func(note string) string {
			return note + note[strings.Index(note, "\n\n")+2:]
		}),
		"with two signatures of one key": edited(func(note string) string {
			return note + noteLine(testLogName, tampered(raw(note), 40))
		}),
		"with an altered signature": edited(func(note string) string {
			return note[:strings.Index(note, "\n\n")+2] + noteLine(testLogName, tampered(raw(note), 40))
		}),
		"with a signature of 63 bytes": edited(func(note string) string {
			return note[:strings.Index(note, "\n\n")+2] + noteLine(testLogName, raw(note)[:67])
		}),
		"with a signature of 65 bytes": edited(func(note string) string {
			return note[:strings.Index(note, "\n\n")+2] + noteLine(testLogName, append(raw(note), 0))
		}),
		"with a wrong one beside its own": func(f *fixture, text string) string {
			n := signed(f, text)
			return n + noteLine(testLogName, append(keyHashOf(b.t, f.retiredLog), raw(n)[4:]...))
		},
		"signed in another role": func(f *fixture, text string) string {
			n := signed(f, text)
			return n[:strings.Index(n, "\n\n")+2] + noteLine(
				testLogName, append(keyHashOf(b.t, f.logSigner), decodedURL(b.t, must(f.signer.Sign([]byte(text))))...),
			)
		},
		"with S plus L": edited(func(note string) string {
			r := raw(note)
			return note[:strings.Index(note, "\n\n")+2] + noteLine(
				testLogName, append(r[:4:4], decodedURL(b.t, plusL(b.t, base64.RawURLEncoding.EncodeToString(r[4:])))...),
			)
		}),
		"with a signature in base64url":   appended("— witness.example " + strings.Repeat("-_", 10) + "\n"),
		"with set bits after a signature": appended("— witness.example AQIDBAX=\n"),
		"with a padding more":             appended(strings.TrimSuffix(witness, "\n") + "=\n"),
		"with a line of four bytes":       appended(noteLine("witness.example", cosignature[:4])),
		"with a line of no bytes":         appended("— witness.example \n"),
		"with a line of two spaces": appended(strings.Replace(
			witness, "— witness.example/w1 ", "— witness.example/w1  ", 1,
		)),
		"with a space at a line's end":    appended(strings.TrimSuffix(witness, "\n") + " \n"),
		"with a plus in a name":           appended(noteLine("a+b", cosignature)),
		"with no name":                    appended(noteLine("", cosignature)),
		"with a no-break space in a name": appended(noteLine("a\u00a0b", cosignature)),
		"with a next line in a name":      appended(noteLine("a\u0085b", cosignature)),
		"with a line separator in a name": appended(noteLine("a\u2028b", cosignature)),
		"with an ideographic space":       appended(noteLine("a\u3000b", cosignature)),
		"with a hyphen for the dash":      appended(strings.Replace(witness, "—", "-", 1)),
		"with an en dash":                 appended(strings.Replace(witness, "—", "–", 1)),
		"with 100 cosignatures":           appended(strings.Repeat(witness, 100)),
		"with text after the signatures":  appended("end\n"),
		"with text in front":              edited(func(note string) string { return "\n" + note }),
	} {
		add(Invalid, name, checkpoint)
	}
}

// rootSpelled signs a checkpoint whose root is spelled differently.
func (b *vectorBook) rootSpelled(spell func(root string) string) func(*fixture, string) string {
	return func(f *fixture, text string) string {
		at := len(testLogName) + len("\n7\n")
		return sign(b.t, text[:at]+spell(strings.TrimSuffix(text[at:], "\n"))+"\n", f.logSigner)
	}
}

func keyHashOf(t testing.TB, s logSigner) []byte {
	t.Helper()
	var hash [4]byte
	if _, err := fmt.Sscanf(s.key.KeyHash, "%02x%02x%02x%02x", &hash[0], &hash[1], &hash[2], &hash[3]); err != nil {
		t.Fatal(err)
	}
	return hash[:]
}

func decodedURL(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func tampered(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

// respellPadded is respell for standard base64 of 32 bytes.
func respellPadded(t testing.TB, s string) string {
	t.Helper()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := strings.IndexByte(alphabet, s[42])
	return s[:42] + string(alphabet[last^1]) + "="
}
