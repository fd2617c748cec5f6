package audit_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
)

// former signs a receipt of the first version of a document, from an hour ago.
func (p *past) former(document, content string) (domain.Lost, domain.PublicID) {
	references := evidence.References{
		CompanyReference: "c-1", Source: "s", DocumentReference: document, Version: 1, Salt: "AAAAAAAAAAAAAAAAAAAAAA",
	}
	id := domain.NewPublicID(p.registrar.Secret, p.id.Shard())
	payload := evidence.RecordPayload{
		Issuer: p.registrar.Issuer, PublicID: id.String(), SHA256: sha256.Sum256([]byte(content)),
		MimeType: "application/pdf", GeneratedAt: "2026-11-01T10:00:00Z", ReceivedAt: p.now.Add(-time.Hour),
		ReferencesSHA256: references.SHA256(),
	}.AppendCanonical(nil)
	return domain.Lost{
		PublicID: id, PreviousUnknown: true,
		Declaration: domain.Declaration{
			VersionReference: domain.VersionReference{
				CompanyReference: "c-1", Source: "s", DocumentReference: document, Version: 1,
			},
			SHA256: sha256.Sum256([]byte(content)), MimeType: "application/pdf", GeneratedAt: "2026-11-01T10:00:00Z",
		},
		Receipt: &domain.SignedRecord{
			Payload: payload, KeyID: p.registrar.Signer.Key().KeyID, Signature: must(p.registrar.Signer.Sign(payload)),
			References: references,
		},
	}, id
}

// TestAliasOfOtherContent: a former public id leads to the same bytes, even if whoever holds the keys signs otherwise.
func TestAliasOfOtherContent(t *testing.T) {
	p := newPast(t)
	p.state.Follow(domain.HealedRecords)
	p.register("a", 1)
	lost, id := p.former("a", "a")
	c := p.registrar.PrepareHeal(p.operator(), lost, p.now)
	p.do(c)
	if c.Outcome.State != domain.HealAlias {
		t.Fatalf("%+v", c.Outcome)
	}
	if r := p.audit(); r.Count != 0 {
		t.Fatalf("an alias of the same content: %+v", r.Findings)
	}
	change(p, domain.RecordAliased, 1, func(b *domain.RecordAliasedBody) {
		other, _ := p.former("a", "other")
		payload, err := evidence.ParseRecordPayload(other.Receipt.Payload)
		if err != nil {
			t.Fatal(err)
		}
		payload.PublicID = id.String()
		b.Payload = payload.AppendCanonical(nil)
		b.Signature = must(p.registrar.Signer.Sign(b.Payload))
		statement, err := evidence.ParseAliasPayload(b.Statement.Payload)
		if err != nil {
			t.Fatal(err)
		}
		statement.ReceiptSHA256 = new(evidence.Hash(sha256.Sum256(b.Payload)))
		b.Statement.Payload = statement.AppendCanonical(nil)
		b.Statement.Signature = must(p.registrar.Signer.Sign(b.Statement.Payload))
	})
	p.forge(p.events)
	found := p.audit().Findings
	if len(found) != 1 || found[0].Check != audit.CheckHistory {
		t.Errorf("an alias of other content: %+v", found)
	}
}
