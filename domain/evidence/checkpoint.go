package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Reasons why a checkpoint was not opened. Any other error concerns the signature of a pinned key.
var (
	// ErrMalformedCheckpoint means that the text is not a checkpoint.
	ErrMalformedCheckpoint = say.Errorf("not a checkpoint")
	ErrUnknownLogKey       = say.Errorf("no pinned log key of its origin signed the checkpoint")
	ErrRevokedLogKey       = say.Errorf("the log key that signed the checkpoint has been revoked")
)

// Checkpoint is the log's signed statement of its size and root (C2SP tlog-checkpoint).
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash // RFC 6962, section 2.1
	// SignedBy lists the key hashes of the pinned log keys that signed it, at least one.
	SignedBy []string
	// Witnesses are the names on cosignatures. The cosignatures are not checked here (see TrustedKeys.Cosigned).
	Witnesses []string
}

// A note as this service writes it: three lines, a blank line, signatures. A name must not contain white space: the
// class lists the characters with Unicode's property White_Space.
var (
	noteSignaturePattern = regexp.MustCompile(
		`^— ([^+ \x{0085}\x{00a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+) ([A-Za-z0-9+/]+=*)$`,
	)
	checkpointSizePattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,15})$`)
)

const (
	maxNoteSignatures = 100
	keyHashSize       = 4
	cosignatureSize   = keyHashSize + 8 + ed25519.SignatureSize // C2SP tlog-cosignature, cosignature/v1
)

// noteSignature is one signature line of a note: the name it claims, and the bytes after the key hash.
type noteSignature struct {
	name, keyHash string
	signature     []byte
}

// OpenCheckpoint reads a checkpoint without extension lines and checks the log's own signature. Every line by a pinned
// key of the checkpoint's origin must verify, and no line may appear twice. Without such a line the error is
// ErrUnknownLogKey; if the keys of all such lines are revoked, it is ErrRevokedLogKey. With these two errors the parsed
// checkpoint is returned, with any other error the zero Checkpoint.
func OpenCheckpoint(note string, trust *TrustedKeys) (Checkpoint, error) {
	c, since, err := openCheckpoint(note, trust)
	if err == nil && since != nil {
		err = ErrRevokedLogKey
	}
	return c, err
}

// openCheckpoint is OpenCheckpoint. since is the time at which the last of the signing keys was revoked, nil if one of
// them is not revoked.
func openCheckpoint(note string, trust *TrustedKeys) (c Checkpoint, since *time.Time, err error) {
	c, signed, signatures, err := readCheckpoint(note)
	if err != nil {
		return Checkpoint{}, nil, say.Errorf("%w: %w", ErrMalformedCheckpoint, err)
	}
	var seen []LogKey
	var latest time.Time
	good := false
	for _, s := range signatures {
		key, pinned := trust.logKey(s.name, s.keyHash)
		switch {
		case !pinned || s.name != c.Origin:
			if len(s.signature) == cosignatureSize-keyHashSize && logNamePattern.MatchString(s.name) {
				c.Witnesses = append(c.Witnesses, s.name)
			}
			continue
		case slices.Contains(seen, key):
			return Checkpoint{}, nil, say.Errorf("checkpoint: a signature of the log stands twice")
		case !key.Verify([]byte(signed), s.signature):
			return Checkpoint{}, nil, say.Errorf("checkpoint: the log's signature does not belong to it")
		}
		seen, c.SignedBy = append(seen, key), append(c.SignedBy, key.KeyHash)
		if r, revoked := trust.LogKeyRevocation(key); !revoked {
			good = true
		} else if r.since().After(latest) {
			latest = r.since()
		}
	}
	switch {
	case len(seen) == 0:
		return c, nil, ErrUnknownLogKey
	case !good:
		return c, &latest, nil
	}
	return c, nil, nil
}

// Cosigned lists the pinned witnesses with a valid cosignature of the checkpoint dated before the given time, each
// once, in the order of the set. The times are the witnesses' own claims.
func (t *TrustedKeys) Cosigned(note string, before time.Time) (names []string) {
	_, signed, signatures, err := readCheckpoint(note)
	if err != nil || t == nil {
		return nil
	}
	for _, w := range t.witnesses {
		if !slices.Contains(names, w.Name) && slices.ContainsFunc(signatures, func(s noteSignature) bool {
			if s.name != w.Name || s.keyHash != w.KeyHash {
				return false
			}
			at, ok := w.Verify([]byte(signed), s.signature)
			return ok && at.Before(before)
		}) {
			names = append(names, w.Name)
		}
	}
	return names
}

func (t *TrustedKeys) logKey(name, keyHash string) (LogKey, bool) {
	if t != nil {
		for _, k := range t.logKeys {
			if k.Name == name && k.KeyHash == keyHash {
				return k, true
			}
		}
	}
	return LogKey{}, false
}

// readCheckpoint parses a note. signed is the signed text, including its final newline.
func readCheckpoint(note string) (c Checkpoint, signed string, signatures []noteSignature, err error) {
	if !utf8.ValidString(note) || strings.ContainsFunc(note, func(r rune) bool { return r < ' ' && r != '\n' }) {
		return c, "", nil, say.Errorf("must be UTF-8 without controls but newlines")
	}
	lines := strings.Split(note, "\n")
	last := len(lines) - 1
	if last < 5 || lines[0] == "" || lines[3] != "" || lines[last] != "" || last-4 > maxNoteSignatures {
		return c, "", nil, say.Errorf(
			"must be three lines, a blank one and 1 to %d signatures, each ended by a newline", maxNoteSignatures,
		)
	}
	c.Origin = lines[0]
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || !checkpointSizePattern.MatchString(lines[1]) || size > strictjson.MaxInteger {
		return c, "", nil, say.Errorf("its size must be digits without a leading zero, within 2^53-1")
	}
	root, ok := decodeHash(lines[2])
	if !ok {
		return c, "", nil, say.Errorf("its root must be 32 bytes in the one spelling of base64")
	}
	c.Size, c.Root = size, root
	for _, line := range lines[4:last] {
		found := noteSignaturePattern.FindStringSubmatch(line)
		if found == nil {
			return c, "", nil, say.Errorf("a signature line is not of the form of a signed note")
		}
		raw, ok := decodeOneSpelling(base64.StdEncoding, found[2])
		if !ok || len(raw) <= keyHashSize {
			return c, "", nil, say.Errorf("a signature is not in the one spelling of base64")
		}
		signatures = append(signatures, noteSignature{found[1], hex.EncodeToString(raw[:keyHashSize]), raw[keyHashSize:]})
	}
	return c, strings.Join(lines[:3], "\n") + "\n", signatures, nil
}

// decodeHash decodes canonical standard base64 of exactly 32 bytes.
func decodeHash(text string) (h tlog.Hash, ok bool) {
	raw, ok := decodeOneSpelling(base64.StdEncoding, text)
	if !ok || len(raw) != tlog.HashSize {
		return tlog.Hash{}, false
	}
	return tlog.Hash(raw), true
}

// LeafContract is the contract of the transparency log's leaf texts.
const LeafContract = "integrity-leaf-v1"

const registeredType = "integrity.registered"

var (
	eventIDPattern   = regexp.MustCompile(`^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$`) // a TypeID
	eventTypePattern = regexp.MustCompile(`^[a-z][a-z0-9_.]{0,63}$`)
)

// Leaf is the text of one event in the transparency log (contract, section 4.3). It commits to the event and, because
// of the nonce, reveals nothing about it.
type Leaf struct {
	ID            string    `json:"id"`
	Type          string    `json:"type"`
	OccurredAt    time.Time `json:"occurredAt"`    // UTC, microseconds
	PayloadSHA256 *Hash     `json:"payloadSha256"` // of a registration's record; nil for events of other types
	BodySHA256    Hash      `json:"bodySha256"`
	Nonce         Nonce     `json:"nonce"`
}

// Nonce is 16 random bytes, in text 22 characters of base64url.
type Nonce [16]byte

// AppendText appends the 22 characters.
func (n Nonce) AppendText(dst []byte) ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(dst, n[:]), nil
}

// MarshalText writes the 22 characters.
func (n Nonce) MarshalText() ([]byte, error) { return n.AppendText(nil) }

// UnmarshalText reads the 22 characters of the canonical encoding.
func (n *Nonce) UnmarshalText(text []byte) error {
	raw, ok := decodeBase64URL(string(text), len(n))
	if !ok {
		return say.Errorf("must be 22 base64url characters")
	}
	copy(n[:], raw)
	return nil
}

type leafMembers struct {
	Contract string `json:"contract"`
	Leaf
}

var leafForm = strictjson.FormOf[leafMembers]()

// AppendCanonical appends the RFC 8785 form. The log contains its RFC 6962 leaf hash.
func (l Leaf) AppendCanonical(dst []byte) []byte {
	return leafForm.Append(dst, &leafMembers{LeafContract, l})
}

// ErrOtherLeaf means that a leaf is of an event that is no registration, such as a healed record or an event of a type
// that this program does not know. Such a proof is neither valid nor invalid.
var ErrOtherLeaf = say.Errorf("the leaf in the transparency log is not that of a registration")

// ParseLeaf reads a leaf as strictly as ParseRecordPayload reads its payload. Only the leaf of a registration must have
// PayloadSHA256.
func ParseLeaf(text []byte) (Leaf, error) {
	l, err := parsePayload(text, LeafContract, func(o *strictjson.Object) Leaf {
		l := Leaf{
			ID:         o.Match("id", strictjson.Required, eventIDPattern.MatchString, "must be the id of an event"),
			Type:       o.Match("type", strictjson.Required, eventTypePattern.MatchString, "must be the type of an event"),
			OccurredAt: readInstant(o, "occurredAt"),
			BodySHA256: readHash(o, "bodySha256"),
		}
		if l.Type == registeredType || o.NullableString("payloadSha256", strictjson.Required) != nil {
			l.PayloadSHA256 = new(readHash(o, "payloadSha256"))
		}
		readChecked(o, "nonce", func(s string) error { return l.Nonce.UnmarshalText([]byte(s)) })
		return l
	})
	if err != nil {
		err = say.Errorf("leaf: %w", err)
	}
	return l, err
}

// Check verifies a proof (contract, section 4.3): a pinned log key signed the checkpoint, its tree of TreeSize entries
// holds the leaf at LeafIndex, and the leaf belongs to the registration of this payload. It returns the checkpoint. The
// error wraps ErrUnknownLogKey or ErrRevokedLogKey if no such key signed, and ErrOtherLeaf if all but the leaf's type
// holds.
func (i Inclusion) Check(payload []byte, trust *TrustedKeys) (Checkpoint, error) {
	c, since, err := i.check(payload, trust)
	if err == nil && since != nil {
		return Checkpoint{}, ErrRevokedLogKey
	}
	return c, err
}

func (i Inclusion) check(payload []byte, trust *TrustedKeys) (c Checkpoint, since *time.Time, err error) {
	if c, since, err = openCheckpoint(i.Checkpoint, trust); err != nil {
		return Checkpoint{}, nil, err
	}
	if err := c.holds(i.LeafIndex, i.TreeSize, i.Hashes, i.LeafHash()); err != nil {
		return Checkpoint{}, nil, err
	}
	if err := i.checkLeaf(payload); err != nil {
		return Checkpoint{}, nil, err
	}
	return c, since, nil
}

// holds verifies the audit path from the leaf to the checkpoint's root.
func (c Checkpoint) holds(index, size int64, hashes []string, leaf tlog.Hash) error {
	if c.Size != size {
		return say.Errorf("treeSize is %d, the checkpoint's size %d", size, c.Size)
	}
	if index >= size {
		return say.Errorf("leafIndex lies beyond the tree")
	}
	proof := make(tlog.RecordProof, len(hashes))
	for n, text := range hashes {
		hash, ok := decodeHash(text)
		if !ok {
			return say.Errorf("hashes/%d: must be 32 bytes in the one spelling of base64", n)
		}
		proof[n] = hash
	}
	if tlog.CheckRecord(proof, c.Size, c.Root, index, leaf) != nil {
		return say.Errorf("the hashes do not lead from the leaf to the checkpoint's root")
	}
	return nil
}

// checkLeaf requires that the leaf belongs to the registration of this payload. A leaf of another type that names no
// other payload is ErrOtherLeaf.
func (i Inclusion) checkLeaf(payload []byte) error {
	leaf, err := ParseLeaf([]byte(i.Leaf))
	switch {
	case err != nil:
		return err
	case leaf.PayloadSHA256 != nil && *leaf.PayloadSHA256 != sha256.Sum256(payload):
		return say.Errorf("the leaf belongs to another record")
	case leaf.Type != registeredType:
		return ErrOtherLeaf
	}
	return nil
}

// LeafHash returns the tree's hash at LeafIndex (RFC 6962, section 2.1).
func (i Inclusion) LeafHash() tlog.Hash { return tlog.RecordHash([]byte(i.Leaf)) }

// verifyInclusion verifies the proof if one was supplied and log keys are pinned. It runs after the timestamps are
// verified, because a timestamp can still prove that a log whose key was revoked contained the record.
func (f *Findings) verifyInclusion(e Envelope, trust *TrustedKeys, opts Options) {
	if e.Inclusion == nil {
		return
	}
	if trust == nil || len(trust.logKeys) == 0 {
		f.note("The proof of inclusion in the transparency log was not checked: the trusted keys name no key of the log.")
		return
	}
	c, since, err := e.Inclusion.check([]byte(e.Payload), trust)
	if err == nil && since != nil {
		witnesses := trust.Cosigned(
			e.Inclusion.Checkpoint, slices.MinFunc([]time.Time{*since, future(opts.Now)}, time.Time.Compare),
		)
		switch {
		case f.stampedBefore(*since):
			f.note(
				"The key of the log was revoked since %s; a pinned authority had stamped the record's entry in the log before.",
				FormatTime(*since),
			)
		case opts.RequireWitnesses > 0 && len(witnesses) >= opts.RequireWitnesses:
			f.note(
				"The key of the log was revoked since %s; pinned witnesses say that they had cosigned the checkpoint before: %s",
				FormatTime(*since), strings.Join(witnesses, ", "),
			)
		default:
			err = ErrRevokedLogKey
		}
	}
	if errors.Is(err, ErrOtherLeaf) {
		f.note(
			"The proof of inclusion was not checked: its leaf is not that of a registration. The record may have been healed.",
		)
		return
	}
	if err != nil {
		f.Inclusion = Invalid
		if errors.Is(err, ErrUnknownLogKey) || errors.Is(err, ErrRevokedLogKey) {
			f.Inclusion = Untrusted
		}
		f.fail("inclusion", "%s", err)
		return
	}
	f.Inclusion, f.Checkpoint = Valid, e.Inclusion.Checkpoint
	f.note(
		"The log %s of %d entries holds the record as its entry %d. That is no independent timestamp, and does not show "+
			"that every reader sees the same log.",
		c.Origin, c.Size, e.Inclusion.LeafIndex,
	)
	f.countWitnesses(c, e.Inclusion.Checkpoint, trust, opts.Now)
}

// countWitnesses reports the witnesses that cosigned the checkpoint, and the witnesses whose cosignatures could not be
// counted.
func (f *Findings) countWitnesses(c Checkpoint, note string, trust *TrustedKeys, now time.Time) {
	counted := trust.Cosigned(note, future(now))
	if n := len(trust.Witnesses()); n > 0 {
		f.Witnessed = new(len(counted))
		f.note(
			"Pinned witnesses that cosigned the checkpoint: %d of %d%s. Cosignatures are no trusted timestamps.", len(counted), n,
			listed(", ", counted),
		)
	}
	if rest := slices.DeleteFunc(c.Witnesses, func(name string) bool {
		return slices.Contains(counted, name)
	}); len(rest) > 0 {
		f.note(
			"Cosignatures that are not by a pinned witness, or do not hold, were not counted: %s", strings.Join(rest, ", "),
		)
	}
}

// future returns the earliest time that a verifier with this clock considers to be in the future.
func future(now time.Time) time.Time { return now.Add(clockTolerance + 1) }

func listed(before string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return before + strings.Join(names, ", ")
}
