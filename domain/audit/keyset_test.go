package audit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
)

// TestKeySetsAreAudited: for verifiers the leaf of keys.published is a key set of this issuer. An event with other data,
// or in another history, is found although its hash is right.
func TestKeySetsAreAudited(t *testing.T) {
	for _, c := range []struct {
		name, says string
		in         func(p *past) domain.OrganizationID
		change     func(*domain.KeysPublishedBody)
	}{
		{"sound", "", nil, func(*domain.KeysPublishedBody) {}},
		{"another issuer", "the ledger's issuer", nil, func(b *domain.KeysPublishedBody) {
			b.Issuer = "https://other.example"
		}},
		{"another contract", "a key set", nil, func(b *domain.KeysPublishedBody) { b.Contract = "integrity-key-set-v2" }},
		{"keys without members", "a key set", nil, func(b *domain.KeysPublishedBody) {
			b.TrustedKeys = json.RawMessage(`{"keys":[{}]}`)
		}},
		{"of a tenant", "the organization of the installation", func(p *past) domain.OrganizationID {
			return p.id
		}, func(*domain.KeysPublishedBody) {}},
	} {
		p := newPast(t)
		p.state.Follow(domain.KeySets)
		command := &domain.PublishKeys{
			Origin: domain.Origin{Organization: domain.InstallationID, Actor: domain.OperatorActor, RequestID: "test"},
			Set:    must(evidence.NewKeySet(p.registrar.Issuer, p.trusted)),
		}
		drafts, err := command.Decide(p.state, p.now)
		if err != nil {
			t.Fatal(err)
		}
		c.change(drafts[1].Body.(*domain.KeysPublishedBody))
		if c.in != nil {
			command.Organization, drafts = c.in(p), drafts[1:]
		}
		p.append(command, drafts, nil)
		r := p.audit()
		switch {
		case c.says == "":
			if r.Count != 0 {
				t.Errorf("%s: %+v", c.name, r.Findings)
			}
		case len(r.Findings) != 1 || r.Findings[0].Check != audit.CheckBinding ||
			!strings.Contains(r.Findings[0].Expected.String(), c.says):
			t.Errorf("%s: %+v", c.name, r.Findings)
		}
	}
}
