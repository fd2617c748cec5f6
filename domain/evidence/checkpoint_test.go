package evidence

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// TestInclusionProofs: every entry of a tree is proven only by its own path at its own index.
func TestInclusionProofs(t *testing.T) {
	f := newFixture(t)
	leaf := string(f.leaf().AppendCanonical(nil))
	payload := f.record.AppendCanonical(nil)
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.Int64Range(1, 70).Draw(r, "size")
		index := rapid.Int64Range(0, size-1).Draw(r, "index")
		i := f.inclusion(t, leaf, index, size)
		c, err := i.Check(payload, f.trust)
		if err != nil || c.Size != size || c.Origin != testLogName {
			r.Fatalf("entry %d of %d: %+v, %v", index, size, c, err)
		}
		other := i
		if other.LeafIndex = rapid.Int64Range(0, 1<<53-1).Draw(r, "other index"); other.LeafIndex != index {
			if _, err := other.Check(payload, f.trust); err == nil {
				r.Fatalf("entry %d of %d passes for entry %d", index, size, other.LeafIndex)
			}
		}
		if len(i.Hashes) == 0 {
			return
		}
		n := rapid.IntRange(0, len(i.Hashes)-1).Draw(r, "hash")
		changed := tlog.RecordHash([]byte(i.Hashes[n]))
		i.Hashes[n] = changed.String()
		if _, err := i.Check(payload, f.trust); err == nil {
			r.Fatalf("hash %d of entry %d of %d may be any", n, index, size)
		}
	})
}

// TestCheckpointsOfTheLibrary: a checkpoint that this package accepts is opened by Go's sumdb/note library too, with
// the same text and signer.
func TestCheckpointsOfTheLibrary(t *testing.T) {
	b := vectors(t)
	trust := make(map[string]*TrustedKeys)
	opened := 0
	for _, v := range b.list {
		if v.Receipt == nil || v.Expect.Findings == nil || v.Expect.Findings.Inclusion != Valid {
			continue
		}
		set := trust[v.TrustedKeys]
		if set == nil {
			var err error
			if set, err = ParseTrustedKeys([]byte(b.trust[v.TrustedKeys])); err != nil {
				t.Fatal(err)
			}
			trust[v.TrustedKeys] = set
		}
		parse := ParseEnvelope
		if isProof([]byte(*v.Receipt)) {
			parse = ParseProof
		}
		e, err := parse([]byte(*v.Receipt))
		if err != nil {
			t.Fatal(err)
		}
		ours, err := OpenCheckpoint(e.Inclusion.Checkpoint, set)
		if err != nil && !errors.Is(err, ErrRevokedLogKey) {
			t.Fatal(err)
		}
		var verifiers []note.Verifier
		for _, k := range set.LogKeys() {
			verifier, err := note.NewVerifier(k.VerifierKey)
			if err != nil {
				t.Fatal(err)
			}
			verifiers = append(verifiers, verifier)
		}
		theirs, err := note.Open([]byte(e.Inclusion.Checkpoint), note.VerifierList(verifiers...))
		if err != nil || theirs.Text != checkpointText(ours.Origin, tlog.Tree{N: ours.Size, Hash: ours.Root}) {
			t.Errorf("%s: %v", v.Name, err)
		}
		opened++
	}
	if opened < 20 {
		t.Errorf("%d checkpoints", opened)
	}
}

func TestOpenCheckpoint(t *testing.T) {
	f := newFixture(t)
	text := checkpointText(testLogName, tlog.Tree{N: 9})
	c, err := OpenCheckpoint(
		sign(t, text, f.logSigner)+noteLine("witness.example", make([]byte, 76))+noteLine(
			"no\u202ewitness", make([]byte, 76),
		),
		f.trust,
	)
	if err != nil || c.Size != 9 || len(c.Witnesses) != 1 || c.Witnesses[0] != "witness.example" ||
		!slices.Equal(c.SignedBy, []string{f.trust.LogKeys()[0].KeyHash}) {
		t.Errorf("%+v, %v", c, err)
	}
	// A checkpoint that no pinned key signed is reported as such, with its content.
	for name, set := range map[string]*TrustedKeys{"no keys": nil, "others": f.trust} {
		c, err := OpenCheckpoint(sign(t, text, f.foreignLog), set)
		if !errors.Is(err, ErrUnknownLogKey) || c.Size != 9 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	for name, note := range map[string]string{
		"no UTF-8": sign(t, text, f.logSigner) + "— a\xff AAAAAAA=\n", "cut": sign(t, text, f.logSigner)[:60],
	} {
		if c, err := OpenCheckpoint(note, f.trust); err == nil || errors.Is(err, ErrUnknownLogKey) || c.Size != 0 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func TestLogKey(t *testing.T) {
	// The verifier key of Go's checksum database, sum.golang.org.
	const known = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
	key, err := ParseLogKey(known)
	if err != nil || key.Name != "sum.golang.org" || key.KeyHash != "033de0ae" {
		t.Fatal(key, err)
	}
	if _, err := ParseLogKey(strings.Replace(known, "sum", "sun", 1)); err == nil {
		t.Error("the hash of another name was accepted")
	}
	if _, err := NewLogKey("a", make([]byte, 31)); err == nil {
		t.Error("31 bytes were accepted")
	}
	if (LogKey{}).Verify(nil, make([]byte, 64)) {
		t.Error("the zero key verifies")
	}
	if _, err := NewTrustedKeys(
		nil, nil, []LogKey{{Name: "a", KeyHash: key.KeyHash, VerifierKey: key.VerifierKey}},
	); err == nil {
		t.Error("a key that was not made by NewLogKey was accepted")
	}
}

// FuzzCheckpoint: no checkpoint causes a panic, and an accepted one has exactly one reading.
func FuzzCheckpoint(f *testing.F) {
	x := newFixture(f)
	text := checkpointText(testLogName, tlog.Tree{N: 9})
	f.Add(sign(f, text, x.logSigner))
	f.Add(sign(f, text, x.logSigner) + noteLine("w", make([]byte, 76)))
	f.Fuzz(func(t *testing.T, note string) {
		c, err := OpenCheckpoint(note, x.trust)
		if err == nil && !strings.HasPrefix(note, checkpointText(c.Origin, tlog.Tree{N: c.Size, Hash: c.Root})+"\n— ") {
			t.Fatalf("%q", note)
		}
	})
}
