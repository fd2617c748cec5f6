package action

import (
	"context"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
	"integrityledger/projections/queue/publishers"
)

// viewPublisher returns what the public sees of an organization, nil for nothing.
func viewPublisher(p query.Publisher) *wire.Publisher {
	if len(p.Domains) == 0 {
		return nil
	}
	view := &wire.Publisher{Domains: wire.Each(p.Domains, func(d query.CheckedDomain) wire.PublisherDomain {
		return wire.PublisherDomain{
			Domain: d.Domain.Body, Method: d.Method, CheckedAt: evidence.FormatTime(*d.CheckedAt),
		}
	})}
	if p.Name != nil {
		view.Name, view.StatedAt = &p.Name.Name.Body, wire.TimeOrNull(&p.Name.StatedAt)
	}
	return view
}

// PublisherStatement answers a signed statement of what the organization of a record has proven and said about itself.
// It is about the present: it says nothing about the time of the registration.
func (s *Comparisons) PublisherStatement(
	ctx context.Context, _ *edge.Call, id domain.PublicID,
) (edge.Response, error) {
	// Read the time before the state: a state must not be dated later than it was read.
	observedAt, err := (&Proofs{s.Service}).observationTime(ctx)
	if err != nil {
		return edge.Response{}, err
	}
	stored, err := s.Store.Comparison(ctx, id)
	if err == nil && stored.Pending {
		err = query.ErrUnknownPublicID
	}
	if err != nil {
		return edge.Response{}, err
	}
	_, finding := s.records.verify(s.Keys().Trusted, stored.SignedID(id), stored.Event.Data)
	if finding == evidence.Invalid {
		return edge.Response{}, errTampered
	}
	found, err := s.Store.PublisherOf(ctx, stored, observedAt)
	if err != nil {
		return edge.Response{}, err
	}
	signer, err := s.signer()
	if err != nil {
		return edge.Response{}, err
	}
	micros := func(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
	payload := evidence.PublisherPayload{
		Issuer: s.Installation.Issuer, PublicID: id.String(), Domains: []evidence.PublisherDomain{},
		ObservedAt: micros(observedAt),
	}
	for _, d := range found.Domains {
		payload.Domains = append(payload.Domains, evidence.PublisherDomain{
			Domain: d.Domain.Body, Method: string(d.Method), CheckedAt: micros(*d.CheckedAt),
		})
	}
	if found.Name != nil {
		payload.Name, payload.StatedAt = &found.Name.Name.Body, new(micros(found.Name.StatedAt))
	}
	signature, err := signed(signer, payload.AppendCanonical(nil))
	if err != nil {
		return edge.Response{}, err
	}
	raw, err := edge.Encode(evidence.PublisherStatement{Contract: evidence.PublisherContract, Signed: *signature})
	return edge.Response{Raw: raw, ContentType: edge.JSONType, Cache: edge.NoStore}, err
}

// Publisher shows the organization's statements about itself to its members.
func (s *Administration) Publisher(ctx context.Context, c *edge.Call) (query.Publisher, error) {
	return s.Store.Publisher(ctx, c.Access.Organization)
}

// ReadDomain reads a domain to add.
func ReadDomain(o *strictjson.Object) string {
	text := o.String("domain", strictjson.Required)
	name, ok := domain.ParseDomain(text)
	if o.OK("domain") && !ok {
		o.Problem("domain", strictjson.CodeFormat, domain.DomainRule)
	}
	return name
}

// AddDomain adds a domain that the organization says it controls.
func (s *Administration) AddDomain(ctx context.Context, c *edge.Call, name string) error {
	return s.execute(ctx, &domain.AddDomain{Origin: c.Origin(), Domain: name})
}

// RemoveDomain removes a domain.
func (s *Administration) RemoveDomain(ctx context.Context, c *edge.Call, id domain.StatementID) error {
	return s.execute(ctx, &domain.RemoveDomain{Origin: c.Origin(), Domain: id})
}

// CheckDomain checks a domain at once, for an owner.
func (s *Administration) CheckDomain(
	ctx context.Context, c *edge.Call, id domain.StatementID,
) (found publishers.Sighting, err error) {
	if c.Session == nil || c.Session.Role != domain.Owner { // before a look, which costs the owners one of theirs
		return found, domain.ErrNotOwner
	}
	all, err := s.Publisher(ctx, c)
	if err != nil {
		return found, err
	}
	for _, d := range all.Domains {
		if d.ID != id {
			continue
		}
		return s.Publishers.Ask(ctx, d.PublisherDomain, func(method domain.ProofMethod) error {
			return s.execute(ctx, &domain.RecordDomainCheck{Origin: c.Origin(), Domain: id, Method: method})
		})
	}
	return found, domain.Refuse(domain.NotFound, "This organization has no such domain.")
}

// ReadPublisherName reads a name with the declaration that it names no private person.
func ReadPublisherName(o *strictjson.Object) domain.DeclareName {
	name := o.Sized("name", strictjson.Required, 1, domain.MaxOrganizationName)
	if o.OK("name") && !domain.ValidPublisherName(name) {
		o.Problem("name", strictjson.CodeFormat, domain.PublisherNameRule)
	}
	return domain.DeclareName{Name: name, NoPrivatePerson: o.Bool("noPrivatePerson", strictjson.Optional)}
}

// DeclareName declares the name that the organization gives itself.
func (s *Administration) DeclareName(ctx context.Context, c *edge.Call, declare domain.DeclareName) error {
	declare.Origin = c.Origin()
	return s.execute(ctx, &declare)
}

// WithdrawName withdraws it.
func (s *Administration) WithdrawName(ctx context.Context, c *edge.Call) error {
	return s.execute(ctx, &domain.WithdrawName{Origin: c.Origin()})
}
