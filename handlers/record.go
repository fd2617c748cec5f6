package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

func (s *server) viewRecord(r domain.Record) wire.Record {
	id := r.PublicID.String()
	v := wire.Record{
		ID: r.ID.String(), PublicID: id, SHA256: r.SHA256, CompanyReference: r.CompanyReference, Source: r.Source,
		DocumentReference: r.DocumentReference, Version: r.Version, PreviousVersion: r.PreviousVersion, SizeBytes: r.SizeBytes,
		MimeType: r.MimeType, GeneratedAt: r.GeneratedAt, ReceivedAt: evidence.FormatTime(r.ReceivedAt), Status: r.Status,
		SupersededByVersion: r.SupersededByVersion,
		VerificationURL:     s.verificationURL(id),
		EvidenceURL:         s.BaseURL + "/api/v1/integrity/records/" + id + "/evidence",
	}
	if r.RevokedAt != nil {
		at := evidence.FormatTime(*r.RevokedAt)
		v.RevokedAt = &at
	}
	return v
}

func viewUsage(u domain.Usage) wire.Usage {
	return wire.Usage{
		Period: u.Period, Limit: u.Limit, Used: u.Used, Remaining: u.Remaining(), ResetsAt: evidence.FormatTime(u.Period.End()),
	}
}

func (s *server) viewRegistration(outcome domain.Registration) wire.Registration {
	v := wire.Registration{
		Record: s.viewRecord(outcome.Record), Replayed: outcome.Replayed, Usage: viewUsage(outcome.Usage),
		CompanyContribution: wire.CompanyUsage{CompanyReference: outcome.Record.CompanyReference, Used: outcome.CompanyUsed},
	}
	if !outcome.Replayed {
		v.Consumption.Applied = 1
	}
	return v
}

func (s *server) registrar() (domain.Registrar, error) {
	signer, err := s.signer()
	return domain.Registrar{Issuer: s.Installation.Issuer, Secret: s.Installation.Secret, Signer: signer, Random: s.Random}, err
}

// register answers 201 for a new version and 200 for a replay, which shows the
// record as it is now.
func (s *server) register(r *http.Request) (response, error) {
	var declaration domain.Declaration
	if err := decode(r, func(o *strictjson.Object) { declaration = domain.ReadDeclaration(o) }); err != nil {
		return response{}, err
	}
	registrar, err := s.registrar()
	if err != nil {
		return response{}, err
	}
	c := callOf(r)
	command, err := registrar.Prepare(cause(r), c.access.Key, c.access.Limits, declaration, c.receivedAt)
	if err != nil {
		return response{}, err
	}
	if err := s.Ledger.Do(r.Context(), command); err != nil {
		return response{}, err
	}
	return response{status: created(command.Outcome.Replayed), data: s.viewRegistration(command.Outcome)}, nil
}

// publicID reads the path. What is no public id is an unknown one.
func publicID(r *http.Request) (domain.PublicID, bool) {
	return domain.ParsePublicID(variable(r, "publicId"))
}

func (s *server) record(r *http.Request) (response, error) {
	if err := newQuery(r).refusal(); err != nil {
		return response{}, err
	}
	id, ok := publicID(r)
	if !ok {
		return response{}, domain.UnknownRecord()
	}
	found, err := s.Store.Record(r.Context(), callOf(r).access, id)
	if err != nil {
		return response{}, err
	}
	return response{data: s.viewRecord(found)}, nil
}

func (s *server) lookup(r *http.Request) (response, error) {
	q := newQuery(r)
	identity := domain.VersionReference{
		CompanyReference:  q.reference("companyReference"),
		Source:            q.reference("source"),
		DocumentReference: q.reference("documentReference"),
		Version:           int32(q.integer("version", 1, domain.MaxVersion, 0, strictjson.Required)),
	}
	if err := q.refusal(); err != nil {
		return response{}, err
	}
	found, err := s.Store.Lookup(r.Context(), callOf(r).access, identity)
	if err != nil {
		return response{}, err
	}
	return response{data: s.viewRecord(found)}, nil
}

// maxReason is the length of a reason in characters.
const maxReason = 500

// revoke withdraws a version. The reason is never answered.
func (s *server) revoke(r *http.Request) (response, error) {
	var reason string
	if err := decode(r, func(o *strictjson.Object) { reason = o.Sized("reason", strictjson.Optional, 0, maxReason) }); err != nil {
		return response{}, err
	}
	id, ok := publicID(r)
	if !ok {
		return response{}, domain.UnknownRecord()
	}
	command, err := domain.NewRevoke(cause(r), callOf(r).access.Key, id, reason, s.Now(), s.Random)
	if err != nil {
		return response{}, err
	}
	if err := s.Ledger.Do(r.Context(), command); err != nil {
		return response{}, err
	}
	return response{data: wire.Withdrawal{Record: s.viewRecord(command.Outcome.Record), Replayed: command.Outcome.Replayed}}, nil
}
