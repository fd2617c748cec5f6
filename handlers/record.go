package handlers

import (
	"context"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
)

// recordView has the members of contract section 3, all always present.
type recordView struct {
	ID                  string        `json:"id"`
	PublicID            string        `json:"publicId"`
	SHA256              string        `json:"sha256"`
	CompanyReference    string        `json:"companyReference"`
	Source              string        `json:"source"`
	DocumentReference   string        `json:"documentReference"`
	Version             int32         `json:"version"`
	PreviousVersion     *int32        `json:"previousVersion"`
	SizeBytes           int64         `json:"sizeBytes"`
	MimeType            string        `json:"mimeType"`
	GeneratedAt         string        `json:"generatedAt"`
	ReceivedAt          string        `json:"receivedAt"`
	Status              domain.Status `json:"status"`
	SupersededByVersion *int32        `json:"supersededByVersion"`
	RevokedAt           *string       `json:"revokedAt"`
	VerificationURL     string        `json:"verificationUrl"`
	EvidenceURL         string        `json:"evidenceUrl"`
}

func (s *server) viewRecord(r domain.Record) recordView {
	id := r.PublicID.String()
	v := recordView{
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

// consumption says how many registrations of the month the request took.
type consumption struct {
	Applied int `json:"applied"`
}

type usageView struct {
	Period    domain.Period `json:"period"`
	Limit     *int64        `json:"limit"`
	Used      int64         `json:"used"`
	Remaining *int64        `json:"remaining"`
	ResetsAt  string        `json:"resetsAt"`
}

func viewUsage(u domain.Usage) usageView {
	return usageView{u.Period, u.Limit, u.Used, u.Remaining(), evidence.FormatTime(u.Period.End())}
}

// registrationView is a record with what its registration cost.
type registrationView struct {
	recordView
	Replayed            bool             `json:"replayed"`
	Consumption         consumption      `json:"consumption"`
	Usage               usageView        `json:"usage"`
	CompanyContribution companyUsageView `json:"companyContribution"`
}

func (s *server) viewRegistration(outcome domain.Registration) registrationView {
	v := registrationView{
		recordView: s.viewRecord(outcome.Record), Replayed: outcome.Replayed, Usage: viewUsage(outcome.Usage),
		CompanyContribution: companyUsageView{outcome.Record.CompanyReference, outcome.CompanyUsed},
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
	registered, err := s.registerVersion(r.Context(), callOf(r), declaration)
	return response{status: created(registered.Replayed), data: registered}, err
}

func (s *server) registerVersion(ctx context.Context, c *call, declaration domain.Declaration) (registrationView, error) {
	registrar, err := s.registrar()
	if err != nil {
		return registrationView{}, err
	}
	command, err := registrar.Prepare(c.cause(), c.access.Key, c.access.Limits, declaration, c.receivedAt)
	if err != nil {
		return registrationView{}, err
	}
	if err := s.Ledger.Do(ctx, command); err != nil {
		return registrationView{}, err
	}
	return s.viewRegistration(command.Outcome), nil
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
	found, err := s.lookUp(r.Context(), callOf(r), identity)
	return response{data: found}, err
}

func (s *server) lookUp(ctx context.Context, c *call, identity domain.VersionReference) (recordView, error) {
	found, err := s.Store.Lookup(ctx, c.access, identity)
	if err != nil {
		return recordView{}, err
	}
	return s.viewRecord(found), nil
}

// maxReason is the length of a reason in characters.
const maxReason = 500

// readReason reads what is optional in a revocation.
func readReason(o *strictjson.Object) string {
	return o.Sized("reason", strictjson.Optional, 0, maxReason)
}

// revocationView is a withdrawn record. The reason is never answered.
type revocationView struct {
	recordView
	Replayed bool `json:"replayed"`
}

func (s *server) revoke(r *http.Request) (response, error) {
	var reason string
	if err := decode(r, func(o *strictjson.Object) { reason = readReason(o) }); err != nil {
		return response{}, err
	}
	revoked, err := s.revokeRecord(r.Context(), callOf(r), variable(r, "publicId"), reason)
	return response{data: revoked}, err
}

// revokeRecord withdraws the version with this public id. What is none is an unknown one.
func (s *server) revokeRecord(ctx context.Context, c *call, publicID, reason string) (revocationView, error) {
	id, ok := domain.ParsePublicID(publicID)
	if !ok {
		return revocationView{}, domain.UnknownRecord()
	}
	command, err := domain.NewRevoke(c.cause(), c.access.Key, id, reason, s.Now(), s.Random)
	if err != nil {
		return revocationView{}, err
	}
	if err := s.Ledger.Do(ctx, command); err != nil {
		return revocationView{}, err
	}
	return revocationView{s.viewRecord(command.Outcome.Record), command.Outcome.Replayed}, nil
}
