package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// Event is a stored event, possibly damaged.
type Event struct {
	domain.Event
	// Fault says why the row or line could not be read completely, zero if it could.
	Fault say.Sentence
	// Stored holds the texts named by the event that still exist.
	Stored []Text
}

// Text is a stored erasable text.
type Text struct {
	ID   domain.TextID
	Salt []byte
	Body *string // nil: erased
}

// verdict is the result of checking an event by itself.
type verdict struct {
	findings    findings
	sums        Sums
	erased      []domain.TextID
	certificate string // the hash and size that a certificate was signed for
}

func (c *Checker) inspect(e *Event) (v verdict) {
	fail := func(check Check, expected, found say.Sentence) {
		v.findings.add(finding(e, check, expected, found))
	}
	if e.Fault.Format != "" {
		fail(CheckReadable, say.Sentencef("an event"), e.Fault)
		return v
	}
	body, err := domain.DecodeBody(e.Type, e.V, e.Data)
	if err != nil {
		fail(CheckReadable, say.Sentencef("data of a known type and version"), say.Sentencef("%v", err))
		return v
	}
	e.Body = body
	if hash := domain.LeafHash(e.Leaf()); hash != e.Hash {
		fail(CheckHash, say.Sentencef("%x, recomputed from the stored members", hash), say.Sentencef("%x", e.Hash))
	}
	if canonical, err := e.Canonical(); err != nil || !bytes.Equal(canonical, e.Data) {
		fail(
			CheckCanonical, say.Sentencef("data in the canonical form of what it says"), say.Sentencef("other bytes"),
		)
	}
	if e.Shard != e.Organization.Shard() && c.Whole {
		fail(
			CheckBinding, say.Sentencef("the organization's shard %d", e.Organization.Shard()),
			say.Sentencef("shard %d", e.Shard),
		)
	}
	c.inspectTexts(e, &v, fail)
	c.inspectBody(e, &v, fail)
	return v
}

type failing func(check Check, expected, found say.Sentence)

// agree adds a finding unless two members that must agree do.
func (fail failing) agree(what say.Phrase, expected, found string) {
	if expected != found {
		fail(CheckBinding, say.Sentencef("%s %q", what, expected), say.Sentencef("%q", found))
	}
}

func (c *Checker) inspectBody(e *Event, v *verdict, fail failing) {
	month := domain.PeriodOf(e.OccurredAt).String()
	switch b := e.Body.(type) {
	case *domain.RecordRegisteredBody:
		c.inspectRegistration(e, v, fail, b, e.OccurredAt)
	case *domain.RecordHealedBody:
		c.inspectRegistration(e, v, fail, &b.RecordRegisteredBody, b.Record.ReceivedAt)
		if b.Proof != domain.ByReceipt && b.Proof != domain.ByDeclaration {
			fail(CheckBinding, say.Sentencef("a proof of a healed record"), say.Sentencef("%q", b.Proof))
		}
	case *domain.RecordAliasedBody:
		c.inspectAlias(e, v, fail, b)
	case *domain.VersionReservedBody:
		fail.agree(say.Word("the reserved publicId as subject"), b.PublicID.String(), e.Subject)
		fail.agree(
			say.Word("seven days after occurredAt"), evidence.FormatTime(e.OccurredAt.Add(domain.ReservationLife)),
			evidence.FormatTime(b.ExpiresAt),
		)
	case *domain.RecordSupersededBody:
		if b.ByVersion <= b.Version {
			fail(CheckBinding, say.Sentencef("a version above %d", b.Version), say.Sentencef("%d", b.ByVersion))
		}
	case *domain.QuotaWarningReachedBody:
		// A threshold reached at the end of a month may be reported in the next.
		if !slices.Contains(domain.MeteredAllowances(), b.Allowance) || b.Period > domain.PeriodOf(e.OccurredAt) {
			fail.agree(say.Word("the month of occurredAt"), month, b.Period.String())
		}
	case *domain.CompanyCreatedBody:
		fail.agree(say.Word("the company as subject"), e.Company.String(), e.Subject)
	case *domain.ArtifactVersionRegisteredBody:
		fail.agree(say.Word("the month of occurredAt"), month, b.Period.String())
	case *domain.CertificateIssuedBody:
		fail.agree(say.Word("the certificate's publicId as subject"), b.PublicID.String(), e.Subject)
		c.inspectCertificate(e, v, fail, b)
	case *domain.KeysPublishedBody:
		c.inspectKeySet(e, fail)
	}
}

// inspectRegistration checks a new or healed record. It counts in the month of at.
func (c *Checker) inspectRegistration(
	e *Event, v *verdict, fail failing, b *domain.RecordRegisteredBody, at time.Time,
) {
	fail.agree(say.Word("the payload's publicId as subject"), b.Record.PublicID, e.Subject)
	fail.agree(
		say.Word("the payload's referencesSha256 of the event's references"), b.References().SHA256().String(),
		b.Record.ReferencesSHA256.String(),
	)
	fail.agree(say.Word("the ledger's issuer"), c.Issuer, b.Record.Issuer)
	fail.agree(say.Sentencef("the month of %s", evidence.FormatTime(at)), domain.PeriodOf(at).String(), b.Period.String())
	if b.Version < 1 || b.PreviousVersion != nil && (*b.PreviousVersion < 1 || *b.PreviousVersion >= b.Version) {
		fail(
			CheckBinding, say.Sentencef("a positive version above its previousVersion"), say.Sentencef("%d", b.Version),
		)
	}
	v.sums.Records++
	c.inspectSignature(v, fail, "record", b.KeyID, b.Payload, b.Signature)
}

// inspectAlias checks the signed statement of an alias and the former receipt.
func (c *Checker) inspectAlias(e *Event, v *verdict, fail failing, b *domain.RecordAliasedBody) {
	fail.agree(say.Word("the former publicId as subject"), b.PublicID.String(), e.Subject)
	c.inspectSignature(v, fail, "alias", b.Statement.KeyID, b.Statement.Payload, b.Statement.Signature)
	p, err := evidence.ParseAliasPayload(b.Statement.Payload)
	if err != nil {
		fail(CheckSignature, say.Sentencef("an alias's payload"), say.Sentencef("%v", err))
		return
	}
	fail.agree(say.Word("the ledger's issuer"), c.Issuer, p.Issuer)
	fail.agree(say.Word("the former publicId in the statement"), b.PublicID.String(), p.PublicID)
	fail.agree(say.Word("the kept publicId in the statement"), b.AliasOf.String(), p.AliasOf)
	if (b.Proof == domain.ByReceipt) != (p.ReceiptSHA256 != nil) || (b.Payload != nil) != (p.ReceiptSHA256 != nil) {
		fail(
			CheckBinding, say.Sentencef("the former receipt exactly if the alias rests on it"), say.Sentencef("%q", b.Proof),
		)
		return
	}
	if p.ReceiptSHA256 == nil {
		return
	}
	fail.agree(
		say.Word("the receipt's hash in the statement"), evidence.Hash(sha256.Sum256(b.Payload)).String(),
		p.ReceiptSHA256.String(),
	)
	c.inspectSignature(v, fail, "former record", b.KeyID, b.Payload, b.Signature)
	record, err := evidence.ParseRecordPayload(b.Payload)
	if err != nil {
		fail(CheckSignature, say.Sentencef("a record's payload"), say.Sentencef("%v", err))
		return
	}
	fail.agree(say.Word("the former publicId in the receipt"), b.PublicID.String(), record.PublicID)
	fail.agree(
		say.Word("the receipt's referencesSha256 of the event's references"), b.References().SHA256().String(),
		record.ReferencesSHA256.String(),
	)
	fail.agree(say.Word("the ledger's issuer"), c.Issuer, record.Issuer)
}

func (c *Checker) inspectCertificate(e *Event, v *verdict, fail failing, b *domain.CertificateIssuedBody) {
	text := e.text(b.Payload.ID)
	if text == nil || text.Body == nil {
		v.sums.Unsigned++
		return
	}
	payload := []byte(*text.Body)
	v.sums.Certificates++
	c.inspectSignature(v, fail, "certificate", b.KeyID, payload, b.Signature)
	p, err := evidence.ParseCertificatePayload(payload)
	if err != nil {
		fail(CheckSignature, say.Sentencef("a certificate's payload"), say.Sentencef("%v", err))
		return
	}
	fail.agree(say.Word("the event's publicId in the payload"), b.PublicID.String(), p.PublicID)
	fail.agree(
		say.Word("the event's issuedAt in the payload"), evidence.FormatTime(b.IssuedAt), evidence.FormatTime(p.IssuedAt),
	)
	fail.agree(say.Word("the ledger's issuer"), c.Issuer, p.Issuer)
	v.certificate = content(p.SHA256, p.SizeBytes)
}

// content names the content of a version by its hash and size.
func content(hash evidence.Hash, size int64) string {
	return hash.String() + "/" + strconv.FormatInt(size, 10)
}

// inspectKeySet checks that the event's data are a key set of this issuer, because verifiers rely on its leaf.
func (c *Checker) inspectKeySet(e *Event, fail failing) {
	set, err := evidence.ParseKeySet(e.Data)
	if err != nil {
		fail(CheckBinding, say.Sentencef("a key set"), say.Sentencef("%v", err))
		return
	}
	fail.agree(say.Word("the ledger's issuer"), c.Issuer, set.Issuer)
	fail.agree(
		say.Word("the organization of the installation"), domain.InstallationID.String(), e.Organization.String(),
	)
}

func (c *Checker) inspectSignature(
	v *verdict, fail failing, kind say.Word, keyID string, payload []byte, signature string,
) {
	expected := say.Sentencef("a signature by a trusted key")
	if evidence.CheckSignature(c.Trusted, keyID, payload, signature) == evidence.Valid {
		return
	}
	switch finding := evidence.CheckSignature(c.pinned, keyID, payload, signature); {
	case finding == evidence.Valid:
		v.sums.RevokedKeys = map[string]int64{keyID: 1}
	case finding == evidence.Untrusted && c.revoked[keyID]:
		v.sums.UnknownKeys++
	case finding == evidence.Untrusted:
		fail(CheckSignature, expected, say.Sentencef("one by %s, which is not among the trusted keys", keyID))
	default:
		fail(CheckSignature, expected, say.Sentencef("one that does not belong to the %s's payload", kind))
	}
}

func (c *Checker) inspectTexts(e *Event, v *verdict, fail failing) {
	refs := domain.TextRefs(e.Body)
	named, stored := map[domain.TextID]bool{}, make(map[domain.TextID]*Text, len(e.Stored))
	for _, ref := range refs {
		named[ref.ID] = true
	}
	for i := range e.Stored {
		t := &e.Stored[i]
		if !named[t.ID] || stored[t.ID] != nil {
			fail(CheckText, say.Sentencef("each text that the event names, once"), say.Sentencef("the text %s besides", t.ID))
		} else {
			stored[t.ID] = t
		}
	}
	if c.WithoutTexts {
		return
	}
	for _, ref := range refs {
		text := stored[ref.ID]
		switch {
		case text == nil:
			fail(CheckText, say.Sentencef("the text %s", ref.ID), say.Sentencef("none"))
		case text.Body == nil:
			v.erased = append(v.erased, ref.ID)
		default:
			v.sums.Texts++
			sum := sha256.Sum256(append(bytes.Clone(text.Salt), *text.Body...))
			if found := hex.EncodeToString(sum[:]); found != ref.SHA256 {
				fail(CheckText, say.Sentencef("salted hash %s of the text %s", ref.SHA256, ref.ID), say.Sentencef("%s", found))
			}
		}
	}
}

// text returns the stored text of an id that the event names, or nil.
func (e *Event) text(id domain.TextID) *Text {
	if i := slices.IndexFunc(e.Stored, func(t Text) bool { return t.ID == id }); i >= 0 {
		return &e.Stored[i]
	}
	return nil
}

func finding(e *Event, check Check, expected, found say.Sentence) Finding {
	f := Finding{
		Check: check, Organization: e.Organization.String(), Sequence: e.Sequence, Position: e.Position, Event: e.ID.String(),
		Expected: expected, Found: found,
	}
	if e.Position != 0 {
		f = f.InShard(e.Shard)
	}
	return f
}
