package evidence

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/strictjson"
)

// LeafContract is the contract of the texts that the transparency log is made of.
const LeafContract = "integrity-leaf-v1"

const registeredType = "integrity.registered"

var eventIDPattern = regexp.MustCompile(`^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$`) // a TypeID

// Leaf is the text of one event in the transparency log (contract, section 4.3). It
// commits to the event and, by its nonce, gives nothing of it away.
type Leaf struct {
	ID            string
	Type          string
	OccurredAt    string  // written by FormatTime
	PayloadSHA256 *string // of a registration's record; nil for events of other types
	BodySHA256    string
	Nonce         string // base64url of 16 random bytes
}

// AppendCanonical appends the RFC 8785 form, of which the log holds the RFC 6962 leaf hash.
func (l Leaf) AppendCanonical(dst []byte) []byte {
	dst = appendText(dst, `{"bodySha256":`, l.BodySHA256)
	dst = append(dst, `,"contract":"`+LeafContract+`"`...)
	dst = appendText(dst, `,"id":`, l.ID)
	dst = appendText(dst, `,"nonce":`, l.Nonce)
	dst = appendText(dst, `,"occurredAt":`, l.OccurredAt)
	if l.PayloadSHA256 == nil {
		dst = append(dst, `,"payloadSha256":null`...)
	} else {
		dst = appendText(dst, `,"payloadSha256":`, *l.PayloadSHA256)
	}
	return append(appendText(dst, `,"type":`, l.Type), '}')
}

// ParseLeaf reads the leaf of a registration, as strictly as ParseRecordPayload reads its payload.
func ParseLeaf(text []byte) (Leaf, error) {
	l, err := parsePayload(text, LeafContract, readLeaf)
	if err != nil {
		err = fmt.Errorf("leaf: %w", err)
	}
	return l, err
}

func readLeaf(o *strictjson.Object) Leaf {
	constant(o, "type", registeredType)
	payload := o.Match("payloadSha256", strictjson.Required, sha256Pattern.MatchString, sha256Rule)
	return Leaf{
		ID:            o.Match("id", strictjson.Required, eventIDPattern.MatchString, "must be the id of an event"),
		Type:          registeredType,
		OccurredAt:    readTime(o, "occurredAt"),
		PayloadSHA256: &payload,
		BodySHA256:    o.Match("bodySha256", strictjson.Required, sha256Pattern.MatchString, sha256Rule),
		Nonce: o.Match("nonce", strictjson.Required, func(s string) bool {
			_, ok := decodeBase64URL(s, 16)
			return ok
		}, "must be 22 base64url characters"),
	}
}

// Check is the verification of a proof (contract, section 4.3): a pinned log key signed the checkpoint, its tree of
// TreeSize entries holds the leaf at LeafIndex, and the leaf is that of the registration of this payload. The error
// wraps ErrUnknownLogKey where no pinned key signed. It answers the checkpoint.
func (i Inclusion) Check(payload []byte, trust *TrustedKeys) (Checkpoint, error) {
	c, err := OpenCheckpoint(i.Checkpoint, trust)
	if err != nil {
		return Checkpoint{}, err
	}
	if c.Size != i.TreeSize {
		return Checkpoint{}, fmt.Errorf("treeSize is %d, the checkpoint's size %d", i.TreeSize, c.Size)
	}
	if i.LeafIndex >= i.TreeSize {
		return Checkpoint{}, errors.New("leafIndex lies beyond the tree")
	}
	proof := make(tlog.RecordProof, len(i.Hashes))
	for n, text := range i.Hashes {
		hash, ok := decodeHash(text)
		if !ok {
			return Checkpoint{}, fmt.Errorf("hashes/%d: must be 32 bytes in the one spelling of base64", n)
		}
		proof[n] = hash
	}
	if tlog.CheckRecord(proof, c.Size, c.Root, i.LeafIndex, i.LeafHash()) != nil {
		return Checkpoint{}, errors.New("the hashes do not lead from the leaf to the checkpoint's root")
	}
	leaf, err := ParseLeaf([]byte(i.Leaf))
	if err != nil {
		return Checkpoint{}, err
	}
	if *leaf.PayloadSHA256 != hexSHA256(payload) {
		return Checkpoint{}, errors.New("the leaf is that of another record")
	}
	return c, nil
}

// LeafHash is what the tree holds at LeafIndex (RFC 6962, section 2.1).
func (i Inclusion) LeafHash() tlog.Hash { return tlog.RecordHash([]byte(i.Leaf)) }

// verifyInclusion judges the proof where one was supplied and log keys are pinned.
func (f *Findings) verifyInclusion(e Envelope, trust *TrustedKeys) {
	if e.Inclusion == nil {
		return
	}
	if trust == nil || len(trust.logKeys) == 0 {
		f.note("The proof of inclusion in the transparency log was not checked: the trusted keys name no key of the log.")
		return
	}
	c, err := e.Inclusion.Check([]byte(e.Payload), trust)
	switch {
	case errors.Is(err, ErrUnknownLogKey):
		f.Inclusion = Untrusted
		f.fail("inclusion", err.Error())
		return
	case err != nil:
		f.Inclusion = Invalid
		f.fail("inclusion", err.Error())
		return
	}
	f.Inclusion = Valid
	f.note(fmt.Sprintf("The log %s of %d entries holds the record as its entry %d. That is no independent timestamp, and does not show that everybody is shown the same log.",
		c.Origin, c.Size, e.Inclusion.LeafIndex))
	if len(c.Witnesses) > 0 {
		f.note("Cosignatures of the checkpoint were not checked; they are no trusted timestamps: " + strings.Join(c.Witnesses, ", "))
	}
}
