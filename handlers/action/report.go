package action

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// An evidence report takes a processor for about 30 milliseconds, and 20 MB. Organizations take turns, and so do
// networks of readers without a key. These have places of their own and never delay an organization.
const (
	reportPatience   = 5 * time.Second
	reportLine       = 8 // waiting requests of an organization
	publicReportLine = 2 // of a network
	reportVersions   = 10
	pdfType          = "application/pdf"
)

func newReports(closing <-chan struct{}) *fair.Semaphore[domain.OrganizationID] {
	return fair.NewSemaphore[domain.OrganizationID](fair.Limits{
		Most: preparers(), Each: max(1, preparers()/2), Alone: preparers(), Line: reportLine, Patience: reportPatience,
		Closing: closing,
	})
}

func newPublicReports(closing <-chan struct{}) *fair.Semaphore[netip.Prefix] {
	return fair.NewSemaphore[netip.Prefix](fair.Limits{
		Most: max(1, preparers()/2), Each: 1, Line: publicReportLine, Patience: reportPatience, Closing: closing,
	})
}

func tooManyReports() error {
	return domain.Unavailable("The service is making as many evidence reports as it can. Send the request again.")
}

// ReportQuestion asks for the evidence report of a record.
type ReportQuestion struct {
	PublicID domain.PublicID
	Language evidence.Language // empty: the one that the reader prefers
}

// ReadReport reads the public id of a record and the language of the report.
func ReadReport(o *strictjson.Object) ReportQuestion {
	return ReportQuestion{edge.ReadPublicID(o), edge.Known(o, "lang", evidence.Spanish, evidence.English)}
}

// Report answers the organization's evidence report: a PDF with the evidence, as Evidence answers it with timestamps,
// its transparency log proof, and the versions of the document.
func (s *Proofs) Report(ctx context.Context, c *edge.Call, asked ReportQuestion) (edge.Response, error) {
	release, err := s.reports.Acquire(ctx, c.Access.Organization, 1)
	if err != nil {
		return edge.Response{}, tooManyReports()
	}
	defer release()
	observedAt, err := s.observationTime(ctx) // before the state is read, as in Export
	if err != nil {
		return edge.Response{}, err
	}
	stored, err := s.Store.Evidence(ctx, c.Access, asked.PublicID)
	if err != nil {
		return edge.Response{}, err
	}
	record := &export{id: asked.PublicID, stored: stored}
	s.prove(ctx, record, true)
	proven, err := s.seal(record, observedAt)
	if err != nil {
		return edge.Response{}, err
	}
	versions, err := s.Store.Records(ctx, c.Access, query.RecordQuestion{
		Company: stored.Record.CompanyReference, Source: stored.Record.Source, Document: stored.Record.DocumentReference,
		Limit: reportVersions,
	})
	if err != nil {
		return edge.Response{}, err
	}
	shown, err := s.Store.Record(ctx, c.Access, asked.PublicID)
	if err != nil {
		return edge.Response{}, err
	}
	if shown.Status != stored.Status { // changed between the reads
		return edge.Response{}, domain.Unavailable("The record changed while its report was made. Send the request again.")
	}
	own := &web.OwnReport{
		References: stored.Record.References, RevokedAt: shown.RevokedAt, More: versions.Next != nil,
	}
	for _, v := range versions.Entries {
		own.Versions = append(own.Versions, web.RecordRow{
			PublicID: v.PublicID.String(), Version: v.Version, Status: string(v.Status), ReceivedAt: v.ReceivedAt,
		})
	}
	return s.report(ctx, c, asked, record, proven, own, observedAt)
}

// PublicReport answers the public evidence report: a PDF with the public receipt and the public transparency log proof.
// It says nothing of references, other versions or people. It is not cached, because it states the version's state.
func (s *Proofs) PublicReport(r *http.Request) (edge.Response, error) {
	asked, err := edge.Read(r, ReadReport)
	if err != nil {
		return edge.Response{}, err
	}
	ctx := r.Context()
	release, err := s.publicReports.Acquire(ctx, s.ClientNetwork(r), 1)
	if err != nil {
		return edge.Response{}, tooManyReports()
	}
	defer release()
	observedAt := s.Now()
	stored, err := s.Store.Published(ctx, asked.PublicID)
	if err == nil && stored.Pending {
		err = query.ErrUnknownPublicID
	}
	if err != nil {
		return edge.Response{}, err
	}
	record := &export{id: asked.PublicID, stored: stored}
	s.prove(ctx, record, true)
	proven, err := s.receiptOf(s.Keys().Trusted, stored.SignedID(asked.PublicID), stored)
	if err != nil {
		return edge.Response{}, err
	}
	if proven.Inclusion = record.proof; record.proof != nil {
		proven.Timestamps = record.stamps
		fitTimestamps(&proven)
	}
	return s.report(ctx, edge.CallOf(r), asked, record, proven, nil, observedAt)
}

// report renders a report. It makes none of a record that verifiers do not accept: its hash must not be used.
func (s *Proofs) report(
	ctx context.Context, c *edge.Call, asked ReportQuestion, record *export, proven evidence.Envelope, own *web.OwnReport,
	at time.Time,
) (edge.Response, error) {
	trusted, id := s.Keys().Trusted, asked.PublicID.String()
	payload, finding := evidence.VerifyRecord(
		trusted, record.stored.Record.KeyID, record.stored.Record.Payload, record.stored.Record.Signature,
	)
	if finding != evidence.Valid {
		return edge.Response{}, domain.Refuse(
			domain.InvalidState,
			"The signature of this record is not trusted, so there is no evidence report of it. Its receipt can still be read.",
		)
	}
	content := evidence.ReportContent{
		Private: own != nil, Proven: proven, Timestamps: proven.Timestamps, Trusted: trusted,
	}
	var err error
	if content.Published, err = s.PublishedKeys(); err != nil {
		return edge.Response{}, err
	}
	if proven.Inclusion != nil {
		content.Proof = proven.AppendProof(nil)
	}
	attached := proven
	if own == nil {
		attached = evidence.NewEnvelope(proven.Signed)
	}
	if content.Evidence, err = edge.Encode(wire.Evidence{Envelope: attached}); err != nil {
		return edge.Response{}, err
	}
	language := asked.Language
	if language == "" {
		language = c.Language()
	}
	report := web.Report{
		Language: language, PublicID: id, URL: (&Records{s.Service}).VerificationURL(id),
		MadeAt: at.UTC().Truncate(time.Second),
		Record: payload, KeyID: proven.KeyID, FingerprintSHA256: proven.FingerprintSHA256,
		State: string(record.stored.Status), Vouching: web.Vouching(s.Vouchers(ctx, asked.PublicID)),
		Files: evidence.ReportFiles(id, content), Own: own,
	}
	raw, err := s.Pages.Report(report)
	return edge.Response{Raw: raw, ContentType: pdfType, Header: http.Header{
		"Content-Disposition": {`attachment; filename="` + report.FileName() + `"`}, "Content-Language": {string(language)},
		"Vary": {"Accept-Language"},
	}}, err
}

// PublishedKeys returns the published file of trusted keys.
func (s *Service) PublishedKeys() ([]byte, error) {
	trusted := s.Keys().Trusted
	if trusted == nil {
		return nil, NoTrustedKeys()
	}
	published, err := trusted.Published()
	if err != nil {
		return nil, err
	}
	return published.Marshal()
}
