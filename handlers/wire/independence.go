package wire

// Independence is what parties besides the operator have signed about the transparency log, and the keys with which a
// reader can check it. A cosignature or token that does not verify is left out.
type Independence struct {
	State                LogState               `json:"state"`
	ObservedAt           string                 `json:"observedAt"`
	Checkpoint           *IndependentCheckpoint `json:"checkpoint"` // nil unless State is LogPublished
	Witnesses            []IndependentWitness   `json:"witnesses"`
	TimestampAuthorities []IndependentAuthority `json:"timestampAuthorities"`
	SigningKeys          []PublishedKey         `json:"signingKeys"`
	LogKeys              []PublishedLogKey      `json:"logKeys"`
	KeySet               *PublishedKeySet       `json:"keySet"` // nil unless KeySetState is KeySetPublished
	KeySetState          KeySetState            `json:"keySetState"`
	Custody              KeyCustody             `json:"custody"`
	Relationship         Disclosure             `json:"relationship"`
	Witness              *OwnWitness            `json:"witness"` // nil if this installation is not a witness of other logs
}

// LogState says what is known about the transparency log.
type LogState string

// The states.
const (
	LogPublished   LogState = "published"
	LogEmpty       LogState = "empty"       // no checkpoint has been signed yet
	LogOff         LogState = "off"         // the operator keeps no log
	LogUnavailable LogState = "unavailable" // nothing is known about cosignatures and tokens at the moment
)

// KeySetState says what is known about the trusted keys in the transparency log.
type KeySetState string

// The states.
const (
	KeySetPublished KeySetState = "published"
	KeySetNone      KeySetState = "none"
	KeySetDiffers   KeySetState = "differs" // the published keys are damaged, or are not the ones in the log
	KeySetUnknown   KeySetState = "unknown" // they cannot be read at the moment
)

// IndependentCheckpoint is the newest checkpoint.
type IndependentCheckpoint struct {
	TreeSize int64  `json:"treeSize"`
	SignedAt string `json:"signedAt"` // by the service's clock
	Note     string `json:"note"`     // with the cosignatures of its size
}

// IndependentWitness is a witness that the operator has configured, or whose key is pinned.
type IndependentWitness struct {
	Name              string       `json:"name"`
	KeyHash           string       `json:"keyHash"`
	VerifierKey       string       `json:"verifierKey"`
	FingerprintSHA256 string       `json:"fingerprintSha256"`
	Configured        bool         `json:"configured"` // the service asks it
	Pinned            bool         `json:"pinned"`     // the published trusted keys name it
	Own               bool         `json:"own"`        // it is this installation itself, so it does not count
	Cosignature       *Cosignature `json:"cosignature"`
	Refusal           *Refusal     `json:"refusal"`
}

// Counts reports whether the witness counts as a party besides the operator: the service asks it, readers find its key
// among the published trusted keys, and it is not this installation itself.
func (w IndependentWitness) Counts() bool { return w.Configured && w.Pinned && !w.Own }

// Cosignature is the newest valid cosignature of a witness.
type Cosignature struct {
	TreeSize   int64  `json:"treeSize"`
	CosignedAt string `json:"cosignedAt"` // the witness's own claim
	Newest     bool   `json:"newest"`     // of the newest checkpoint
	Note       string `json:"note"`       // the checkpoint of that size with the cosignature
}

// Refusal is the last failure of a witness since its newest cosignature.
type Refusal struct {
	Reason   string `json:"reason"` // a transparency.RefusalReason
	TreeSize int64  `json:"treeSize"`
	At       string `json:"at"`
}

// IndependentAuthority is a time-stamping authority that the operator has configured, or whose certificates are pinned.
type IndependentAuthority struct {
	Name              string       `json:"name"`
	Configured        bool         `json:"configured"`
	Pinned            bool         `json:"pinned"`
	CertificateSHA256 []string     `json:"certificateSha256"`
	Stamp             *NewestStamp `json:"stamp"`
}

// NewestStamp is the newest valid token of an authority.
type NewestStamp struct {
	TreeSize int64  `json:"treeSize"`
	GenTime  string `json:"genTime"` // in the token
	// ExistedBefore is GenTime with the accuracy that the token states: the checkpoint existed before it.
	ExistedBefore string `json:"existedBefore"`
	Newest        bool   `json:"newest"` // over the newest checkpoint
}

// PublishedKey is a signing key.
type PublishedKey struct {
	KeyID             string  `json:"keyId"`
	FingerprintSHA256 string  `json:"fingerprintSha256"`
	Status            string  `json:"status"` // active, retired, compromised or revoked
	Since             *string `json:"since"`
}

// PublishedLogKey is a log key.
type PublishedLogKey struct {
	Name              string `json:"name"`
	KeyHash           string `json:"keyHash"`
	VerifierKey       string `json:"verifierKey"`
	FingerprintSHA256 string `json:"fingerprintSha256"`
	Status            string `json:"status"` // trusted, compromised or revoked
}

// PublishedKeySet describes the trusted keys that were published last in the transparency log.
type PublishedKeySet struct {
	PayloadSHA256 string `json:"payloadSha256"`
	PublishedAt   string `json:"publishedAt"` // by the service's clock
	LeafIndex     *int64 `json:"leafIndex"`   // nil until a checkpoint covers it
	TreeSize      *int64 `json:"treeSize"`    // of the newest checkpoint, which covers it
	Newest        bool   `json:"newest"`      // the service serves the same keys now
}

// Custody says where a private key is kept.
type Custody string

// The places. CustodyNone means that this process has no such key.
const (
	CustodyFile     Custody = "file"
	CustodyVariable Custody = "variable"
	CustodyAgent    Custody = "agent"
	CustodyNone     Custody = "none"
)

// KeyCustody says where the private keys are kept.
type KeyCustody struct {
	SigningKey Custody `json:"signingKey"`
	LogKey     Custody `json:"logKey"`
}

// Disclosure is the operator's disclosure in both languages.
type Disclosure struct {
	ES string `json:"es"`
	EN string `json:"en"`
}

// OwnWitness is this installation as a witness of other logs.
type OwnWitness struct {
	Name              string  `json:"name"`
	VerifierKey       string  `json:"verifierKey"`
	FingerprintSHA256 string  `json:"fingerprintSha256"`
	Address           *string `json:"address"` // where logs submit checkpoints; nil if the operator has not published it
}
