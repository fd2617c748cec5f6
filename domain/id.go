package domain

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
	"unicode"

	"integrityledger/domain/say"

	typeid "go.jetify.com/typeid/base32"
)

// Shard numbers one ordered log of the ledger, from 0.
type Shard uint16

// ID is a UUIDv7 (RFC 9562) of one kind of object, written as a TypeID: the kind's prefix, "_" and 26 characters of
// base32. The zero ID means a missing id and is written as the empty string.
type ID[K kind] [16]byte

type kind interface{ prefix() string }

type (
	organizationKind    struct{}
	memberKind          struct{}
	keyKind             struct{}
	companyKind         struct{}
	recordKind          struct{}
	documentKind        struct{}
	eventKind           struct{}
	textKind            struct{}
	webhookKind         struct{}
	deliveryKind        struct{}
	artifactKind        struct{}
	artifactVersionKind struct{}
	analysisKind        struct{}
	reviewKind          struct{}
	approvalKind        struct{}
	linkKind            struct{}
	passkeyKind         struct{}
	signInKind          struct{}
	sessionKind         struct{}
	statementKind       struct{}
)

func (organizationKind) prefix() string    { return "org" }
func (memberKind) prefix() string          { return "usr" }
func (keyKind) prefix() string             { return "key" }
func (companyKind) prefix() string         { return "com" }
func (recordKind) prefix() string          { return "rec" }
func (documentKind) prefix() string        { return "doc" }
func (eventKind) prefix() string           { return "evt" }
func (textKind) prefix() string            { return "txt" }
func (webhookKind) prefix() string         { return "whk" }
func (deliveryKind) prefix() string        { return "dlv" }
func (artifactKind) prefix() string        { return "art" }
func (artifactVersionKind) prefix() string { return "ver" }
func (analysisKind) prefix() string        { return "ana" }
func (reviewKind) prefix() string          { return "rvw" }
func (approvalKind) prefix() string        { return "apr" }
func (linkKind) prefix() string            { return "lnk" }
func (passkeyKind) prefix() string         { return "psk" }
func (signInKind) prefix() string          { return "sil" }
func (sessionKind) prefix() string         { return "ses" }
func (statementKind) prefix() string       { return "stm" }

// Ids by kind. OrganizationID, KeyID, LinkID and SignInID carry their shard in the last 16 bits.
type (
	OrganizationID    = ID[organizationKind]
	MemberID          = ID[memberKind]
	KeyID             = ID[keyKind]
	CompanyID         = ID[companyKind]
	RecordID          = ID[recordKind]
	DocumentID        = ID[documentKind]
	EventID           = ID[eventKind]
	TextID            = ID[textKind]
	WebhookID         = ID[webhookKind]
	DeliveryID        = ID[deliveryKind]
	ArtifactID        = ID[artifactKind]
	ArtifactVersionID = ID[artifactVersionKind]
	AnalysisID        = ID[analysisKind]
	ReviewID          = ID[reviewKind]
	ApprovalID        = ID[approvalKind]
	LinkID            = ID[linkKind]
	PasskeyID         = ID[passkeyKind]
	SignInID          = ID[signInKind]
	SessionID         = ID[sessionKind]
	StatementID       = ID[statementKind]
)

// NewID returns a new id whose first 48 bits are now in milliseconds.
func NewID[I ID[K], K kind](now time.Time) I {
	var id [16]byte
	rand.Read(id[6:])
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint16(id[:], uint16(ms>>32))
	binary.BigEndian.PutUint32(id[2:], uint32(ms))
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return I(id)
}

// draw generates a missing id once, so that a repeated decision gets the same id.
func (id *ID[K]) draw(now time.Time) ID[K] {
	if id.IsZero() {
		*id = NewID[ID[K]](now)
	}
	return *id
}

// NewOrganizationID returns a new organization id in the given shard.
func NewOrganizationID(now time.Time, shard Shard) OrganizationID {
	return newShardID[OrganizationID](now, shard)
}

// NewKeyID returns a new API key id in the given shard.
func NewKeyID(now time.Time, shard Shard) KeyID { return newShardID[KeyID](now, shard) }

// newShardID puts the shard into the last 16 bits.
func newShardID[I ID[K], K kind](now time.Time, shard Shard) I {
	id := [16]byte(NewID[I, K](now))
	binary.BigEndian.PutUint16(id[14:], uint16(shard))
	return I(id)
}

// ParseID parses a TypeID of the given kind in its canonical form.
func ParseID[I ID[K], K kind](s string) (I, error) {
	var k K
	suffix, ok := strings.CutPrefix(s, k.prefix()+"_")
	raw, err := typeid.Decode(suffix)
	if !ok || err != nil || typeid.Encode([16]byte(raw)) != suffix {
		return I{}, say.Errorf("must be an id of the form %s_ and 26 characters", k.prefix())
	}
	return I(raw), nil
}

// String writes the TypeID, or "" for the zero ID.
func (id ID[K]) String() string {
	text, _ := id.AppendText(make([]byte, 0, 32))
	return string(text)
}

// IsZero reports whether the id is missing.
func (id ID[K]) IsZero() bool { return id == ID[K]{} }

// Shard returns the last 16 bits. It is only meaningful for OrganizationID, KeyID, LinkID and SignInID.
func (id ID[K]) Shard() Shard { return Shard(binary.BigEndian.Uint16(id[14:])) }

// AppendText appends the TypeID.
func (id ID[K]) AppendText(dst []byte) ([]byte, error) {
	if id.IsZero() {
		return dst, nil
	}
	var k K
	return append(append(append(dst, k.prefix()...), '_'), typeid.Encode(id)...), nil
}

// MarshalText writes the TypeID.
func (id ID[K]) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads a TypeID; empty text is the zero ID.
func (id *ID[K]) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID[K]{}
		return nil
	}
	parsed, err := ParseID[ID[K]](string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// PublicID names a version in links: 112 random bits and the shard, which is masked so that it reveals nothing but
// lookups can find it. It is written as 26 characters [a-z2-7] (RFC 4648 base32, lower case, no padding), in only one
// spelling.
type PublicID [16]byte

// LedgerSecret masks the shard inside public ids, and keys the digests of OAuth subjects and of known browsers and the
// cookies that bind challenges of passkeys and OAuth sign-ins to a browser. If it leaks, shard numbers are revealed, a
// holder of the log can test whether it contains a guessed OAuth subject, and a stranger can use up more of an hour's
// sign-in mails and make such cookies. They sign nobody in: that takes the passkey's signature, or the provider's.
type LedgerSecret []byte

const publicIDLength = 26

// NewPublicID generates an unpredictable public id in a shard.
func NewPublicID(secret LedgerSecret, shard Shard) PublicID {
	var id PublicID
	rand.Read(id[:14])
	binary.BigEndian.PutUint16(id[14:], uint16(shard)^id.mask(secret))
	return id
}

// ParsePublicID parses the canonical spelling. ok is false for anything else.
func ParsePublicID(s string) (PublicID, bool) {
	var id PublicID
	if len(s) != publicIDLength {
		return id, false
	}
	raw, err := lowerBase32.DecodeString(s)
	if err != nil || len(raw) != len(id) {
		return id, false
	}
	copy(id[:], raw)
	return id, id.String() == s
}

// StraightenLink repairs a link that was changed in transit: it lowers capitals, for example from a printed code, and
// removes the marks, spaces and invisible characters that mail and word processors append.
func StraightenLink(text string) string {
	return strings.ToLower(strings.TrimRightFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}))
}

// Shard recovers the shard. It is arbitrary for an id that this ledger has not assigned.
func (id PublicID) Shard(secret LedgerSecret) Shard {
	return Shard(binary.BigEndian.Uint16(id[14:]) ^ id.mask(secret))
}

func (id PublicID) String() string { return lowerBase32.EncodeToString(id[:]) }

// MarshalText writes the 26 characters.
func (id PublicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the 26 characters.
func (id *PublicID) UnmarshalText(text []byte) error {
	parsed, ok := ParsePublicID(string(text))
	if !ok {
		return say.Errorf("must be a publicId: %d characters a-z and 2-7", publicIDLength)
	}
	*id = parsed
	return nil
}

func (id PublicID) mask(secret LedgerSecret) uint16 {
	mac := hmac.New(sha256.New, secret)
	mac.Write(id[:14])
	return binary.BigEndian.Uint16(mac.Sum(nil))
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
