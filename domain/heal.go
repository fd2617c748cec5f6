package domain

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// HealedRecords is the rule that lets records be healed: a program that does not know the events would refuse the whole
// history.
const HealedRecords Rule = "healed-records"

// HealProof says what a healed record rests on.
type HealProof string

// A receipt is proof; a declaration is the word of an origin.
const (
	ByReceipt     HealProof = "receipt"
	ByDeclaration HealProof = "declaration"
)

// Lost is what a client holds of a record that the ledger may have lost.
type Lost struct {
	PublicID    PublicID // zero if nobody knows it
	Declaration Declaration
	// Receipt is nil if there is only the declaration. Its signature, trust and references have been verified.
	Receipt *SignedRecord
	// Revoked is set if a signed observation says so.
	Revoked bool
	// PreviousUnknown is set if only a receipt was found, which does not contain previousVersion.
	PreviousUnknown bool
}

// HealState is what the ledger does, or would do, with a lost record.
type HealState string

// The states of an item.
const (
	HealPresent    HealState = "present"    // nothing is missing
	HealProvable   HealState = "provable"   // a receipt proves the record
	HealDeclared   HealState = "declared"   // an origin declares it
	HealAlias      HealState = "alias"      // the version was registered anew meanwhile
	HealRevocation HealState = "revocation" // only the record's revocation is missing
	HealRefused    HealState = "refused"
)

// HealReason is the reason why an item is refused.
type HealReason string

// The reasons of the ledger.
const (
	HealUnknownCompany HealReason = "UNKNOWN_COMPANY"   // the organization has no company of this reference
	HealTakenID        HealReason = "PUBLIC_ID_TAKEN"   // by another version, a certificate or an alias
	HealOtherVersion   HealReason = "VERSION_DIFFERS"   // the ledger has other data of this version
	HealOtherReceipt   HealReason = "RECEIPT_DIFFERS"   // the record has another receipt
	HealReserved       HealReason = "VERSION_RESERVED"  // under another public id
	HealUnknownID      HealReason = "PUBLIC_ID_UNKNOWN" // no input names the lost public id
	HealOtherShard     HealReason = "OTHER_ORGANIZATION"
)

// Healing is the outcome of Heal.
type Healing struct {
	State  HealState
	Reason HealReason // of HealRefused
	Kept   PublicID   // of HealAlias: the record that stays
}

// Heal restores one lost record, or one alias or revocation. Repeating it changes nothing.
type Heal struct {
	Origin
	Lost Lost

	prepared time.Time
	recordID RecordID
	issuer   string
	salt     string // for a declaration
	shard    bool   // the public id belongs to the organization's shard
	signer   *evidence.Signer

	statement []byte // what Decide has needed signed
	signature string // of statement; if empty, Decide signs, or refuses with ErrUnsigned

	Outcome Healing
}

// PrepareHeal returns a command for a lost record of the origin's organization.
func (r Registrar) PrepareHeal(origin Origin, lost Lost, now time.Time) *Heal {
	now = now.UTC().Truncate(time.Microsecond)
	received := now
	if lost.Receipt != nil {
		if payload, err := evidence.ParseRecordPayload(lost.Receipt.Payload); err == nil {
			received = payload.ReceivedAt
		}
	}
	var salt [16]byte
	rand.Read(salt[:])
	return &Heal{
		Origin: origin, Lost: lost, prepared: now, recordID: NewID[RecordID](received), issuer: r.Issuer,
		salt: base64.RawURLEncoding.EncodeToString(salt[:]), signer: r.Signer,
		shard: lost.PublicID.Shard(r.Secret) == origin.Organization.Shard(),
	}
}

// sign returns the signature of the only payload that the command needs signed. A key that another program keeps signs
// in Presign only, because waiting for that program in Decide would stop the whole shard.
func (c *Heal) sign(payload []byte) (string, error) {
	if c.signature != "" && bytes.Equal(payload, c.statement) {
		return c.signature, nil
	}
	c.statement, c.signature = payload, ""
	if c.signer.Kept() {
		return "", ErrUnsigned
	}
	err := c.Presign()
	return c.signature, err
}

// Presign signs what Decide has refused with ErrUnsigned. It fails as Sign does.
func (c *Heal) Presign() (err error) {
	c.signature, err = Sign(c.signer, c.statement)
	return err
}

// DatedAt implements Dated: the time is signed in aliases and declared records.
func (c *Heal) DatedAt() time.Time { return c.prepared }

func (c *Heal) Need(n *Needs) {
	n.Declarations = append(n.Declarations, DeclarationNeed{
		Organization: c.Organization, VersionReference: c.Lost.Declaration.VersionReference,
	})
	if c.Lost.PublicID == (PublicID{}) {
		return
	}
	n.Records = append(n.Records, RecordNeed{PublicID: c.Lost.PublicID})
	n.Aliases = append(n.Aliases, c.Lost.PublicID)
	n.Certification.Certificates = append(n.Certification.Certificates, c.Lost.PublicID)
}

// Decide implements Command. An item that cannot be healed is an outcome, not an error: it must not stop the others.
func (c *Heal) Decide(s *State, now time.Time) ([]Draft, error) {
	if !s.Follows(HealedRecords) {
		return nil, Refuse(InvalidState,
			"Lost records are healed only once every process knows such events: run integrity upgrade finish first.")
	}
	if s.Organization(c.Organization) == nil {
		return nil, errUnknownOrganization
	}
	d := &c.Lost.Declaration
	if err := d.check(); err != nil {
		return nil, err
	}
	company := s.CompanyByReference(c.Organization, d.CompanyReference)
	named := c.Lost.PublicID != PublicID{}
	switch {
	case named && !c.shard:
		return c.refuse(HealOtherShard)
	case company == nil:
		return c.refuse(HealUnknownCompany)
	}
	document := s.Document(company.ID, d.Source, d.DocumentReference)
	var known *Version
	if document != nil {
		known = s.Version(document.ID, d.Version)
	}
	same := known != nil && known.PublicID == c.Lost.PublicID
	alias := s.aliases[c.Lost.PublicID]
	switch {
	case !named && (known == nil || !known.Registered()):
		return c.refuse(HealUnknownID)
	case !named && !c.differs(known):
		c.Outcome = Healing{State: HealPresent}
		return nil, nil
	case s.certificates[c.Lost.PublicID] != nil, !same && s.public[c.Lost.PublicID] != nil:
		return c.refuse(HealTakenID)
	case alias != nil && (known == nil || alias.AliasOf != known.PublicID):
		return c.refuse(HealTakenID)
	case known == nil || same && !known.Registered():
		return c.restore(s, company, document, known)
	case !known.Registered():
		return c.refuse(HealReserved)
	case c.differs(known):
		return c.refuse(HealOtherVersion)
	case !same:
		return c.alias(company, known, alias != nil)
	case c.Lost.Receipt != nil && !known.ReceivedAt.Equal(c.payload().ReceivedAt):
		return c.refuse(HealOtherReceipt)
	case c.Lost.Revoked && known.RevokedAt == nil:
		c.Outcome = Healing{State: HealRevocation}
		return []Draft{revocation(company, known.Document.ID, known.Version, known.PublicID)}, nil
	}
	c.Outcome = Healing{State: HealPresent}
	return nil, nil
}

func (c *Heal) refuse(reason HealReason) ([]Draft, error) {
	c.Outcome = Healing{State: HealRefused, Reason: reason}
	return nil, nil
}

// differs compares what is lost with a registered version.
func (c *Heal) differs(known *Version) bool {
	d := c.Lost.Declaration
	if c.Lost.PreviousUnknown {
		d.PreviousVersion = known.PreviousVersion
	}
	return d.conflict(known) != nil
}

// payload returns what the receipt states. The receipt was verified before.
func (c *Heal) payload() evidence.RecordPayload {
	p, _ := evidence.ParseRecordPayload(c.Lost.Receipt.Payload)
	return p
}

// restore registers the version under its former public id. reserved is its reservation, or nil.
func (c *Heal) restore(s *State, company *Company, document *Document, reserved *Version) ([]Draft, error) {
	if document == nil {
		document = &Document{
			ID: DocumentID(c.recordID), Source: c.Lost.Declaration.Source, Reference: c.Lost.Declaration.DocumentReference,
		}
	}
	b, err := c.body(document)
	if err != nil {
		return nil, err
	}
	b.Reserved = reserved != nil
	b.PublicID = c.Lost.PublicID
	c.Outcome = Healing{State: HealProvable}
	if b.Proof == ByDeclaration {
		c.Outcome.State = HealDeclared
	} else {
		b.FromBackfill = s.Backfill(c.Organization).Charged()
	}
	return append(supersede(company, document, &b.RecordRegisteredBody, b), c.revocations(company, b)...), nil
}

func (c *Heal) revocations(company *Company, b *RecordHealedBody) []Draft {
	if !c.Lost.Revoked {
		return nil
	}
	return []Draft{revocation(company, b.DocumentID, b.Version, b.PublicID)}
}

func revocation(company *Company, document DocumentID, version int32, id PublicID) Draft {
	return Draft{
		Company: company.ID, Subject: id.String(), Body: &RecordRevokedBody{DocumentID: document, Version: version},
	}
}

// body returns the healed record with the lost signature, or with a new one.
func (c *Heal) body(document *Document) (b *RecordHealedBody, err error) {
	d := &c.Lost.Declaration
	b = &RecordHealedBody{Proof: ByReceipt, RecordRegisteredBody: RecordRegisteredBody{
		RecordID: c.recordID, DocumentID: document.ID, VersionReference: d.VersionReference,
		PreviousVersion: d.PreviousVersion, Status: StatusCurrent,
	}}
	if r := c.Lost.Receipt; r != nil {
		b.Record, b.Payload, b.KeyID, b.Signature, b.Salt = c.payload(), r.Payload, r.KeyID, r.Signature, r.Salt
	} else {
		references := evidence.References{
			CompanyReference: d.CompanyReference, Source: d.Source, DocumentReference: d.DocumentReference,
			Version: int64(d.Version), Salt: c.salt,
		}
		b.Proof, b.Salt, b.KeyID = ByDeclaration, c.salt, c.signer.Key().KeyID
		b.Record = evidence.RecordPayload{
			Issuer: c.issuer, PublicID: c.Lost.PublicID.String(), SHA256: d.SHA256, SizeBytes: d.SizeBytes,
			MimeType: d.MimeType, GeneratedAt: d.GeneratedAt, ReceivedAt: c.prepared, ReferencesSHA256: references.SHA256(),
		}
		b.Payload = b.Record.AppendCanonical(nil)
		b.Signature, err = c.sign(b.Payload)
	}
	b.Period = PeriodOf(b.Record.ReceivedAt)
	return b, err
}

// alias makes the former public id an alias of the version's record.
func (c *Heal) alias(company *Company, known *Version, exists bool) (drafts []Draft, err error) {
	c.Outcome = Healing{State: HealAlias, Kept: known.PublicID}
	if exists {
		c.Outcome.State = HealPresent
	}
	if !exists {
		b := &RecordAliasedBody{
			DocumentID: known.Document.ID, VersionReference: c.Lost.Declaration.VersionReference,
			AliasOf: known.PublicID, PublicID: c.Lost.PublicID, Proof: ByDeclaration,
		}
		statement := evidence.AliasPayload{
			Issuer: c.issuer, PublicID: b.PublicID.String(), AliasOf: b.AliasOf.String(), AliasedAt: c.prepared,
		}
		if r := c.Lost.Receipt; r != nil {
			b.Proof, b.Payload, b.KeyID, b.Signature, b.Salt = ByReceipt, r.Payload, r.KeyID, r.Signature, r.Salt
			statement.ReceiptSHA256 = new(evidence.Hash(sha256.Sum256(r.Payload)))
		}
		b.Statement = AliasStatement{KeyID: c.signer.Key().KeyID, Payload: statement.AppendCanonical(nil)}
		if b.Statement.Signature, err = c.sign(b.Statement.Payload); err != nil {
			return nil, err
		}
		drafts = append(drafts, Draft{Company: company.ID, Subject: b.PublicID.String(), Body: b})
	}
	if c.Lost.Revoked && known.RevokedAt == nil {
		// The version was revoked under its former public id: the record that is kept must not say anything else.
		if exists {
			c.Outcome.State = HealRevocation
		}
		drafts = append(drafts, revocation(company, known.Document.ID, known.Version, known.PublicID))
	}
	return drafts, nil
}

// RecordHealedBody restores a lost registration; its members are those of the registration. See Heal.
type RecordHealedBody struct {
	RecordRegisteredBody
	Proof HealProof `json:"proof"`
}

var healedForm = strictjson.FormOf[RecordHealedBody]()

func (b *RecordHealedBody) appendCanonical(dst []byte) []byte { return healedForm.Append(dst, b) }

func (b *RecordHealedBody) apply(s *State, e *Event) error { return b.register(s, e, b.Charged()) }

// Charged returns the month in which the record counts, 0 for none. A receipt proves the month in which the record was
// registered. Without a receipt that month is unknown, and the month of healing would be charged twice.
func (b *RecordHealedBody) Charged() Period {
	if b.Proof == ByDeclaration {
		return 0
	}
	return b.RecordRegisteredBody.Charged()
}

// Registration returns the registration in an event's body, whether it is new or healed, or nil.
func Registration(b Body) *RecordRegisteredBody {
	switch b := b.(type) {
	case *RecordRegisteredBody:
		return b
	case *RecordHealedBody:
		return &b.RecordRegisteredBody
	}
	return nil
}

// Alias is a former public id of a version.
type Alias struct {
	PublicID PublicID
	AliasOf  PublicID // of the record that is kept
}

// AliasStatement is the signed statement of an alias, contract integrity-alias-v1.
type AliasStatement struct {
	KeyID     string          `json:"keyId"`
	Payload   json.RawMessage `json:"payload"`
	Signature string          `json:"signature"`
}

// RecordAliasedBody makes a former public id an alias of the record of the same version. See Heal.
type RecordAliasedBody struct {
	DocumentID DocumentID `json:"documentId"`
	VersionReference
	PublicID  PublicID       `json:"publicId"`
	AliasOf   PublicID       `json:"aliasOf"`
	Proof     HealProof      `json:"proof"`
	Statement AliasStatement `json:"statement"`

	// The former receipt, for ByReceipt: its signed text and the salt of its references.

	Salt      string          `json:"salt,omitzero"`
	KeyID     string          `json:"keyId,omitzero"`
	Signature string          `json:"signature,omitzero"`
	Payload   json.RawMessage `json:"payload,omitzero"`
}

// References returns the references that the former receipt commits to.
func (b *RecordAliasedBody) References() evidence.References {
	return evidence.References{
		CompanyReference: b.CompanyReference, Source: b.Source, DocumentReference: b.DocumentReference,
		Version: int64(b.Version), Salt: b.Salt,
	}
}

func (b *RecordAliasedBody) apply(s *State, e *Event) error {
	v := s.versions[versionKey{b.DocumentID, b.Version}]
	if v == nil || !v.Registered() || v.PublicID != b.AliasOf {
		return say.Errorf("event %s makes an alias of a record that the version does not have", e.ID)
	}
	if s.public[b.PublicID] != nil || s.aliases[b.PublicID] != nil {
		return say.Errorf("event %s makes an alias of a public id that is taken", e.ID)
	}
	s.AddAlias(Alias{b.PublicID, b.AliasOf})
	return nil
}

// AddAlias loads a former public id.
func (s *Loaded) AddAlias(a Alias) { addOnce(&s.aliases, a.PublicID, a) }
