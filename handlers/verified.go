package handlers

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	lru "github.com/hashicorp/golang-lru/v2"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// verifier judges what the log holds of records, and remembers which bytes a signature belongs to: those never change,
// and checking them anew is most of a comparison. It is remembered by the hash of key id, payload and signature, so
// other bytes are other checks. Trust, state and binding are never remembered. It is safe for concurrent use.
type verifier struct {
	valid *lru.Cache[[sha256.Size]byte, evidence.RecordPayload]
}

// remembered is the most records whose check is remembered, of about 1 KiB each.
const remembered = 16 << 10

func newVerifier() *verifier {
	valid, _ := lru.New[[sha256.Size]byte, evidence.RecordPayload](remembered) // fails for a size below 1 only
	return &verifier{valid}
}

// verify judges a stored record: signature, trust, and binding to the public id asked for and to the event's
// references. The payload may be used only if the finding is Valid (contract sections 4.1 and 4.2).
func (v *verifier) verify(trust *evidence.TrustedKeys, id domain.PublicID, stored domain.SignedRecord) (evidence.RecordPayload, evidence.Finding) {
	payload, finding := v.signature(trust, stored)
	if finding == evidence.Valid && !bound(payload, id, stored) {
		return evidence.RecordPayload{}, evidence.Invalid
	}
	return payload, finding
}

func (v *verifier) signature(trust *evidence.TrustedKeys, stored domain.SignedRecord) (evidence.RecordPayload, evidence.Finding) {
	name := checkName(stored)
	if _, trusted := trust.Lookup(stored.KeyID); trusted {
		if payload, ok := v.valid.Get(name); ok {
			return payload, evidence.Valid
		}
	}
	payload, finding := evidence.VerifyRecord(trust, stored.KeyID, stored.Payload, stored.Signature)
	if finding == evidence.Valid {
		v.valid.Add(name, payload)
	}
	return payload, finding
}

// checkName names a check. A key id is computed from the key (RFC 7638), so it stands for the key itself.
func checkName(stored domain.SignedRecord) (name [sha256.Size]byte) {
	h := sha256.New()
	part(h, stored.KeyID)
	part(h, stored.Signature)
	h.Write(stored.Payload)
	h.Sum(name[:0])
	return name
}

// part adds a text that cannot be taken for a piece of what follows.
func part(h hash.Hash, text string) {
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
	h.Write([]byte(text))
}

func bound(payload evidence.RecordPayload, id domain.PublicID, stored domain.SignedRecord) bool {
	return payload.PublicID == id.String() && payload.ReferencesSHA256 == stored.References.SHA256()
}
