package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/projections"
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
		VerificationURL:     s.BaseURL + "/integrity/" + id,
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

// register answers 201 for a new version and 200 for a replay, which shows the
// record as it is now.
func (s *server) register(r *http.Request) (response, error) {
	var declaration domain.Declaration
	if err := decode(r, func(o *strictjson.Object) { declaration = domain.ReadDeclaration(o) }); err != nil {
		return response{}, err
	}
	signer, err := s.signer()
	if err != nil {
		return response{}, err
	}
	c := callOf(r)
	registrar := domain.Registrar{Issuer: s.Installation.Issuer, Secret: s.Installation.Secret, Signer: signer, Random: s.Random}
	command, err := registrar.Prepare(cause(r), c.access.Key, c.access.Limits, declaration, c.receivedAt)
	if err != nil {
		return response{}, err
	}
	if err := s.Ledger.Do(r.Context(), command); err != nil {
		return response{}, err
	}
	outcome := command.Outcome
	var answer struct {
		recordView
		Replayed            bool             `json:"replayed"`
		Consumption         consumption      `json:"consumption"`
		Usage               usageView        `json:"usage"`
		CompanyContribution companyUsageView `json:"companyContribution"`
	}
	answer.recordView, answer.Replayed, answer.Usage = s.viewRecord(outcome.Record), outcome.Replayed, viewUsage(outcome.Usage)
	answer.CompanyContribution = companyUsageView{outcome.Record.CompanyReference, outcome.CompanyUsed}
	if !outcome.Replayed {
		answer.Consumption.Applied = 1
	}
	return response{status: created(outcome.Replayed), data: answer}, nil
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
	identity := projections.VersionIdentity{
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
	return response{data: struct {
		recordView
		Replayed bool `json:"replayed"`
	}{s.viewRecord(command.Outcome.Record), command.Outcome.Replayed}}, nil
}
