package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"github.com/gowebpki/jcs"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

const (
	// KeySetContract is the contract of a published key set: the data of an event keys.published.
	KeySetContract = "integrity-key-set-v1"
	// KeySetProofContract is the contract of the extra data in the transparency log proof of a published key set.
	KeySetProofContract = "integrity-key-set-proof-v1"

	// MaxKeySetBytes is the largest key set that can be published.
	MaxKeySetBytes = 256 << 10
	// MaxKeySetProofBytes is the largest proof of a key set that a verifier accepts.
	MaxKeySetProofBytes = 1 << 20

	keysPublishedType = "keys.published"
)

// KeySet is a set of trusted keys as a service has published it in its transparency log. The leaf of the event has the
// payload's SHA-256, so the log binds every key, status, revocation and certificate in the set.
type KeySet struct {
	Issuer  string
	Trusted *TrustedKeys
	Payload []byte // RFC 8785 form of the contract, the issuer and the published trusted-keys file
	file    []byte // the trusted-keys file in the payload
}

// keySetMembers are the members of the payload.
type keySetMembers struct {
	Contract    string          `json:"contract"`
	Issuer      string          `json:"issuer"`
	TrustedKeys json.RawMessage `json:"trustedKeys"`
}

func (m keySetMembers) canonical() ([]byte, error) {
	text, err := json.Marshal(m)
	if err == nil {
		text, err = jcs.Transform(text)
	}
	return text, err
}

// NewKeySet returns the published form of a set (TrustedKeys.Published) as a service with this issuer publishes it. It
// refuses a set of more than MaxKeySetBytes.
func NewKeySet(issuer string, trusted *TrustedKeys) (KeySet, error) {
	published, err := trusted.Published()
	if err != nil {
		return KeySet{}, err
	}
	file, err := published.Marshal()
	if err != nil {
		return KeySet{}, err
	}
	payload, err := keySetMembers{KeySetContract, issuer, file}.canonical()
	if err != nil {
		return KeySet{}, say.Errorf("key set: %w", err)
	}
	return ParseKeySet(payload)
}

// ParseKeySet reads the payload of a published key set: a closed object in its RFC 8785 form, whose trusted-keys file
// ParseTrustedKeys accepts.
func ParseKeySet(payload []byte) (KeySet, error) {
	set, err := parseKeySet(payload)
	if err != nil {
		return KeySet{}, say.Errorf("key set: %w", err)
	}
	return set, nil
}

func parseKeySet(payload []byte) (set KeySet, err error) {
	if len(payload) > MaxKeySetBytes {
		return set, say.Errorf("must be at most %d bytes", MaxKeySetBytes)
	}
	v, err := strictjson.Parse(payload, maxDepth+1)
	if err != nil {
		return set, err
	}
	o := strictjson.Decode(v)
	constant(o, "contract", KeySetContract)
	set.Issuer = o.Match("issuer", strictjson.Required, issuerPattern.MatchString, issuerRule)
	file := o.Value("trustedKeys", strictjson.Required)
	if o.OK("trustedKeys") && file.Kind() != strictjson.ObjectKind {
		o.Problem("trustedKeys", strictjson.CodeFormat, "must be a trusted-keys file")
	}
	if err := refusal(o.Problems()); err != nil {
		return set, err
	}
	set.Payload, set.file = payload, file.AppendJSON(nil)
	if set.Trusted, err = ParseTrustedKeys(set.file); err != nil {
		return set, err
	}
	again, err := keySetMembers{KeySetContract, set.Issuer, set.file}.canonical()
	if err != nil || !bytes.Equal(again, payload) {
		return set, say.Errorf("the text is not in the canonical form of RFC 8785")
	}
	return set, nil
}

// SHA256 returns the hash of the payload, which is the payloadSha256 of the leaf.
func (k KeySet) SHA256() Hash { return sha256.Sum256(k.Payload) }

// File returns the published trusted-keys file: the same bytes as the service serves, if a program of this version has
// published the set, and the same members in any case.
func (k KeySet) File() ([]byte, error) {
	if file, err := k.Trusted.Marshal(); err == nil {
		if same, err := jcs.Transform(file); err == nil && bytes.Equal(same, k.file) {
			return file, nil
		}
	}
	var b bytes.Buffer
	if err := json.Indent(&b, k.file, "", "  "); err != nil {
		return nil, say.Errorf("key set: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// Contains reports whether a trusted-keys file has the same content as the set: in its published form, or with the
// revoked keys that only the operator's own file lists. The error says why the file cannot be read.
func (k KeySet) Contains(file []byte) (bool, error) {
	trusted, err := ParseTrustedKeys(file)
	if err != nil {
		return false, err
	}
	if same, err := jcs.Transform(file); err == nil && bytes.Equal(same, k.file) {
		return true, nil
	}
	if trusted.Ignored() != nil { // what this program does not know might differ
		return false, nil
	}
	other, err := NewKeySet(k.Issuer, trusted)
	return err == nil && bytes.Equal(other.Payload, k.Payload), err
}

// keySetProofData is the extra data of a proof.
type keySetProofData struct {
	Contract string `json:"contract"` // KeySetProofContract
	Leaf     string `json:"leaf"`
	Payload  string `json:"payload"`
}

// AppendProof appends the transparency log proof (C2SP tlog-proof@v1) of the set, with the leaf and the payload as
// extra data. The inclusion proves the event that published the set.
func (k KeySet) AppendProof(dst []byte, i Inclusion) []byte {
	return i.appendProof(dst, canonical(keySetProofData{KeySetProofContract, i.Leaf, string(k.Payload)}))
}

// ParseKeySetProof reads a proof of at most MaxKeySetProofBytes bytes as AppendProof writes it; every other text is
// refused. It proves nothing: it checks no signature and no hash.
func ParseKeySetProof(text []byte) (set KeySet, i Inclusion, err error) {
	extra, i, err := readProof(text, MaxKeySetProofBytes)
	if err != nil {
		return set, i, err
	}
	v, err := strictjson.Parse(extra, maxDepth)
	if err != nil {
		return set, i, say.Errorf("proof: extra data: %w", err)
	}
	o := strictjson.Decode(v)
	constant(o, "contract", KeySetProofContract)
	i.Leaf = o.String("leaf", strictjson.Required)
	payload := o.String("payload", strictjson.Required)
	if err = refusal(o.Problems()); err == nil &&
		!bytes.Equal(canonical(keySetProofData{KeySetProofContract, i.Leaf, payload}), extra) {
		err = say.Errorf("the text is not in the canonical form of RFC 8785")
	}
	if err != nil {
		return set, i, say.Errorf("proof: extra data: %w", err)
	}
	set, err = ParseKeySet([]byte(payload))
	return set, i, err
}

// KeySetPins are what a reader of a proof already trusts: at least one log key, or witnesses and the origin of the log.
// Nothing in the proof itself is trusted.
type KeySetPins struct {
	// Trusted has the pinned log keys and witness keys, and the revocations of log keys. Its signing keys do not matter.
	Trusted *TrustedKeys
	// Origin, if not empty, must be the origin of the checkpoint. Without a log key it is required, because a witness
	// cosigns many logs.
	Origin string
	// Issuer, if not empty, must be the issuer of the key set. Otherwise the log must be named after the issuer (LogName),
	// so that nobody can publish keys in one log for the issuer of another.
	Issuer string
	// Witnesses is the number of pinned witnesses that must have cosigned the checkpoint. Without a log key it is at least
	// one.
	Witnesses int
	Now       time.Time // the verifier's clock: a cosignature from the future does not count
}

// ProvenKeySet is a key set with what its proof shows: everyone who sees this log under the pinned keys sees that the
// service published the set. It does not show that the keys are good, or that no later set was published.
type ProvenKeySet struct {
	KeySet
	PublishedAt time.Time // by the service's clock
	LeafIndex   int64
	Checkpoint  Checkpoint
	// LogKeyPinned is false if the proof rests on witnesses alone.
	LogKeyPinned bool
	Witnesses    []string // pinned ones that cosigned the checkpoint
	// CosignedAt is the latest time at which one of them says that it did, nil without one. A set that was published later
	// is not in the checkpoint.
	CosignedAt *time.Time
	// LogKeyListed is false if no log key in the set signed the checkpoint: the log key was rotated since.
	LogKeyListed bool
}

// VerifyKeySet verifies the proof of a published key set. It needs no signing key, so it is how a reader who pins a log
// key or witnesses obtains the signing keys. It refuses a checkpoint whose log key the set itself revokes.
func VerifyKeySet(proof []byte, pins KeySetPins) (found ProvenKeySet, err error) {
	set, i, err := ParseKeySetProof(proof)
	if err != nil {
		return found, err
	}
	found = ProvenKeySet{KeySet: set, LeafIndex: i.LeafIndex}
	if found.Checkpoint, err = pins.open(i.Checkpoint, &found); err != nil {
		return ProvenKeySet{}, err
	}
	if err := found.Checkpoint.holds(i.LeafIndex, i.TreeSize, i.Hashes, i.LeafHash()); err != nil {
		return ProvenKeySet{}, err
	}
	leaf, err := ParseLeaf([]byte(i.Leaf))
	switch {
	case err != nil:
		return ProvenKeySet{}, err
	case leaf.Type != keysPublishedType:
		return ProvenKeySet{}, say.Errorf(
			"the leaf in the transparency log is of type %s, not %s", leaf.Type, keysPublishedType,
		)
	case leaf.PayloadSHA256 == nil || *leaf.PayloadSHA256 != set.SHA256():
		return ProvenKeySet{}, say.Errorf("the leaf belongs to another key set")
	case pins.Issuer != "" && pins.Issuer != set.Issuer:
		return ProvenKeySet{}, say.Errorf("the keys belong to the issuer %s, not to %s", set.Issuer, pins.Issuer)
	case pins.Issuer == "" && !isNamedAfter(found.Checkpoint.Origin, set.Issuer):
		return ProvenKeySet{}, say.Errorf(
			"the log %s is not named after the issuer of the keys, %s: name that issuer if you expect its keys in this log",
			found.Checkpoint.Origin, set.Issuer,
		)
	}
	found.PublishedAt = leaf.OccurredAt
	_, since, err := openCheckpoint(i.Checkpoint, set.Trusted)
	if found.LogKeyListed = err == nil; errors.Is(err, ErrUnknownLogKey) {
		err = nil
	}
	if err == nil && since != nil {
		err = say.Errorf(
			"the key set revokes the log key that signed the checkpoint (since %s): pin the new log key", FormatTime(*since),
		)
	}
	if err != nil {
		return ProvenKeySet{}, err
	}
	return found, nil
}

// open checks the signatures of a checkpoint against the pins, and notes what they show.
func (p KeySetPins) open(note string, found *ProvenKeySet) (c Checkpoint, err error) {
	need := p.Witnesses
	if need < 0 {
		return c, say.Errorf("the number of required witnesses must be 0 or more")
	}
	if found.LogKeyPinned = len(p.Trusted.LogKeys()) > 0; found.LogKeyPinned {
		c, err = OpenCheckpoint(note, p.Trusted)
	} else {
		need = max(1, need)
		switch c, _, _, err = readCheckpoint(note); {
		case len(p.Trusted.WitnessKeys()) == 0:
			err = say.Errorf("pin a log key or a witness key: a proof without one shows nothing")
		case p.Origin == "":
			err = say.Errorf("give the origin of the log: a witness cosigns many logs")
		}
	}
	switch {
	case err != nil:
		return c, err
	case p.Origin != "" && c.Origin != p.Origin:
		return c, say.Errorf("the log %s signed the checkpoint, not %s", c.Origin, p.Origin)
	}
	found.Witnesses = p.Trusted.Cosigned(note, future(p.Now))
	for _, w := range p.Trusted.WitnessKeys() {
		if at, ok := w.CosignedAt(note, p.Now); ok && (found.CosignedAt == nil || at.After(*found.CosignedAt)) {
			found.CosignedAt = &at
		}
	}
	if len(found.Witnesses) < need {
		return c, say.Errorf(
			"the checkpoint needs cosignatures of pinned witnesses: %d, and has %d", need, len(found.Witnesses),
		)
	}
	return c, nil
}
