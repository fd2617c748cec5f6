package evidence

// Signed is a payload with its signature and the names of the key. The key's names are a convenience: a verifier
// compares them with its pinned set and never takes a key from here.
type Signed struct {
	Payload           string `json:"payload"`   // canonical JSON, exactly the signed bytes
	Signature         string `json:"signature"` // base64url, 86 characters
	KeyID             string `json:"keyId"`
	PublicKeyJWK      JWK    `json:"publicKeyJwk"`
	FingerprintSHA256 string `json:"fingerprintSha256"`
}

// NewSigned puts stored signed bytes beside their stored signature.
func NewSigned(payload []byte, signature string, key PublicKey) Signed {
	return Signed{
		Payload: string(payload), Signature: signature,
		KeyID: key.KeyID, PublicKeyJWK: key.JWK, FingerprintSHA256: key.FingerprintSHA256,
	}
}

// Envelope is the portable evidence of one version (contract, section 4). The public receipt holds none of the last
// four members. An export holds an observation of the present or, where a moment was asked for, the state as of then:
// history, which has a place of its own so that it cannot pass for the present.
type Envelope struct {
	Contract string `json:"contract"` // EnvelopeContract
	Signed
	References        *References `json:"references,omitempty"`
	StatusObservation *Signed     `json:"statusObservation,omitempty"`
	StatusAsOf        *Signed     `json:"statusAsOf,omitempty"`
	Inclusion         *Inclusion  `json:"inclusion,omitempty"`
}

// NewEnvelope makes the public receipt of a record; the private export adds to it.
func NewEnvelope(record Signed) Envelope {
	return Envelope{Contract: EnvelopeContract, Signed: record}
}

// Inclusion proves that the record's event is in the transparency log (contract, section 4.3). It is no timestamp.
type Inclusion struct {
	Leaf       string   `json:"leaf"`       // Leaf, canonical
	LeafIndex  int64    `json:"leafIndex"`  // from 0
	TreeSize   int64    `json:"treeSize"`   // the checkpoint's
	Hashes     []string `json:"hashes"`     // the audit path of RFC 6962, section 2.1.1; standard base64 of 32 bytes each
	Checkpoint string   `json:"checkpoint"` // the signed note, whole
}
