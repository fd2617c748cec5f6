package evidence

import (
	"time"

	"integrityledger/domain/strictjson"
)

// AliasContract is the contract of statements about former public ids.
const AliasContract = "integrity-alias-v1"

// AliasPayload states that a former public id names the same version as a record that the ledger keeps. It states
// nothing about the time before AliasedAt: the former receipt, if there is one, proves that itself.
type AliasPayload struct {
	Issuer        string    `json:"issuer"`
	PublicID      string    `json:"publicId"`      // the former one
	AliasOf       string    `json:"aliasOf"`       // the public id of the record that is kept
	ReceiptSHA256 *Hash     `json:"receiptSha256"` // of the former record's signed bytes; nil if only an origin declares it
	AliasedAt     time.Time `json:"aliasedAt"`     // UTC, microseconds
}

// AppendCanonical appends the RFC 8785 form, which is the signed form.
func (p AliasPayload) AppendCanonical(dst []byte) []byte {
	return append(dst, canonical(struct {
		Contract string `json:"contract"`
		AliasPayload
	}{AliasContract, p})...)
}

// ParseAliasPayload reads the signed bytes of an alias as strictly as ParseRecordPayload.
func ParseAliasPayload(payload []byte) (AliasPayload, error) {
	return parsePayload(payload, AliasContract, func(o *strictjson.Object) AliasPayload {
		p := AliasPayload{
			Issuer:   o.Match("issuer", strictjson.Required, issuerPattern.MatchString, issuerRule),
			PublicID: readPublicID(o),
			AliasOf: o.Match(
				"aliasOf", strictjson.Required, publicIDPattern.MatchString, "must be 26 characters a-z and 2-7",
			),
			AliasedAt: readInstant(o, "aliasedAt"),
		}
		if o.NullableString("receiptSha256", strictjson.Required) != nil {
			p.ReceiptSHA256 = new(readHash(o, "receiptSha256"))
		}
		return p
	})
}
