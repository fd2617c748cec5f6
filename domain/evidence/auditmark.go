package evidence

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// AuditMarkContract is the contract of the marks of auditors.
const AuditMarkContract = "integrity-audit-mark-v1"

// AuditMarkPayload says how far an auditor has found a ledger correct. The next audit goes on from there. It is signed
// with the auditor's own key.
type AuditMarkPayload struct {
	Issuer      string           `json:"issuer"`
	CreatedAt   time.Time        `json:"createdAt"` // UTC, microseconds; by the auditor's clock
	Program     string           `json:"program"`   // version of the program that audited
	Events      int64            `json:"events"`    // in all shards
	TreeSize    int64            `json:"treeSize"`  // leaves of the transparency log that are audited events
	TreeRoot    Hash             `json:"treeRoot"`  // at that size; zeros if it is 0
	Shards      []AuditMarkShard `json:"shards"`    // by number, from 0
	StateSHA256 Hash             `json:"stateSha256"`
	// TrustedKeysSHA256 is the digest of the trusted keys that judged all these events. It is zeros if the keys changed
	// since the last whole audit, so that some judged the earlier events and others the later ones.
	TrustedKeysSHA256 Hash `json:"trustedKeysSha256"`
	// Since is the mark that the audit went on from; nil if it has read the whole log.
	Since   *FormerAuditMark `json:"since,omitempty"`
	WholeAt time.Time        `json:"wholeAt"` // CreatedAt of the last whole audit
}

// AuditMarkShard is how far the log of a shard was audited. A chain is audit.Head over the hashes of its events.
type AuditMarkShard struct {
	Position     int64 `json:"position"`
	Chain        Hash  `json:"chain"`
	TreePosition int64 `json:"treePosition"` // the part of it that is in the tree of TreeSize leaves
	TreeChain    Hash  `json:"treeChain"`
}

// FormerAuditMark names a mark.
type FormerAuditMark struct {
	CreatedAt     time.Time `json:"createdAt"`
	Events        int64     `json:"events"`
	PayloadSHA256 Hash      `json:"payloadSha256"`
}

// AppendCanonical appends the RFC 8785 form, which is the signed form.
func (p AuditMarkPayload) AppendCanonical(dst []byte) []byte {
	return append(dst, canonical(struct {
		Contract string `json:"contract"`
		AuditMarkPayload
	}{AuditMarkContract, p})...)
}

// auditMark is the file.
type auditMark struct {
	Contract string `json:"contract"` // AuditMarkContract
	Signed
}

// SignAuditMark returns a mark as a file.
func SignAuditMark(p AuditMarkPayload, key *Signer) ([]byte, error) {
	signed, err := key.SignPayload(p.AppendCanonical(nil))
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	e := json.NewEncoder(&file)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(auditMark{AuditMarkContract, signed})
	return file.Bytes(), err
}

// OpenAuditMark reads a mark that the key with this keyId has signed. The keyId is a digest of the key, so the key can
// be taken from the file. sum is the SHA-256 of the payload.
func OpenAuditMark(file []byte, keyID string) (p AuditMarkPayload, sum Hash, err error) {
	v, err := strictjson.Parse(file, maxDepth)
	if err != nil {
		return p, sum, say.Errorf("mark: %w", err)
	}
	o := strictjson.Decode(v)
	constant(o, "contract", AuditMarkContract)
	s := readSigned(o)
	if err := refusal(o.Problems()); err != nil {
		return p, sum, say.Errorf("mark: %w", err)
	}
	if s.KeyID != keyID {
		return p, sum, say.Errorf("it is signed by the key %q, not by yours, %s", s.KeyID, keyID)
	}
	x, _ := decodeBase64URL(s.JWK.X, ed25519.PublicKeySize)
	key, err := NewPublicKey(x)
	if err != nil || key.KeyNames != s.KeyNames {
		return p, sum, errOtherKey
	}
	trust, err := NewTrustedKeys([]TrustedKey{{PublicKey: key}}, nil, nil)
	if err != nil {
		return p, sum, err
	}
	if _, _, err := checkSignature(trust, keyID, []byte(s.Payload), s.Signature); err != nil {
		return p, sum, err
	}
	p, err = ParseAuditMarkPayload([]byte(s.Payload))
	return p, sha256.Sum256([]byte(s.Payload)), err
}

// maxAuditMarkShards keeps a mark within the number of values that strictjson reads.
const maxAuditMarkShards = 1 << 15

// ParseAuditMarkPayload reads the signed bytes of a mark as strictly as ParseRecordPayload.
func ParseAuditMarkPayload(payload []byte) (AuditMarkPayload, error) {
	return parsePayload(payload, AuditMarkContract, func(o *strictjson.Object) AuditMarkPayload {
		number := func(o *strictjson.Object, name string) int64 {
			return o.Int(name, 0, strictjson.MaxInteger, strictjson.Required)
		}
		p := AuditMarkPayload{
			Issuer:            o.Match("issuer", strictjson.Required, issuerPattern.MatchString, issuerRule),
			CreatedAt:         readInstant(o, "createdAt"),
			Program:           o.String("program", strictjson.Required),
			Events:            number(o, "events"),
			TreeSize:          number(o, "treeSize"),
			TreeRoot:          readHash(o, "treeRoot"),
			Shards:            []AuditMarkShard{},
			StateSHA256:       readHash(o, "stateSha256"),
			TrustedKeysSHA256: readHash(o, "trustedKeysSha256"),
			WholeAt:           readInstant(o, "wholeAt"),
		}
		for _, s := range o.Objects("shards", strictjson.Required, 0, maxAuditMarkShards) {
			p.Shards = append(p.Shards, AuditMarkShard{
				number(s, "position"), readHash(s, "chain"), number(s, "treePosition"), readHash(s, "treeChain"),
			})
		}
		if o.Has("since") {
			s := o.Object("since", strictjson.Required)
			p.Since = &FormerAuditMark{readInstant(s, "createdAt"), number(s, "events"), readHash(s, "payloadSha256")}
		}
		return p
	})
}
