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
	reportPlaces     = 16 // reports of all organizations that are admitted, and half as many of all networks
	reportLine       = 8  // waiting requests of an organization
	publicReportLine = 2  // of a network
	reportVersions   = 10
	pdfType          = "application/pdf"
)

// reportTurns bounds the reports in progress. Their number bounds what is read and kept. A report takes a processor
// only once its data is read, so that no report waits for the database or the log of another one.
type reportTurns[K comparable] struct{ admitted, rendering *fair.Semaphore[K] }

func newReports(closing <-chan struct{}) reportTurns[domain.OrganizationID] {
	return newReportTurns[domain.OrganizationID](
		fair.Limits{Most: reportPlaces, Each: reportPlaces / 2, Line: reportLine, Yields: true, Closing: closing},
		fair.Limits{Most: preparers(), Each: max(1, preparers()/2), Alone: preparers()},
	)
}

func newPublicReports(closing <-chan struct{}) reportTurns[netip.Prefix] {
	return newReportTurns[netip.Prefix](
		fair.Limits{Most: reportPlaces / 2, Each: 1, Line: publicReportLine, Closing: closing},
		fair.Limits{Most: max(1, preparers()/2), Each: 1},
	)
}

func newReportTurns[K comparable](admitted, rendering fair.Limits) reportTurns[K] {
	admitted.Patience, rendering.Patience = reportPatience, reportPatience
	rendering.Line, rendering.Closing = admitted.Most, admitted.Closing // nobody who was admitted is refused for a line
	return reportTurns[K]{fair.NewSemaphore[K](admitted), fair.NewSemaphore[K](rendering)}
}

// take admits a report, reads its data, and renders it in its turn.
func (t reportTurns[K]) take(
	ctx context.Context, key K, read func() (web.Report, error), render func(web.Report) (edge.Response, error),
) (edge.Response, error) {
	leave, err := t.admitted.Acquire(ctx, key, 1)
	if err != nil {
		return edge.Response{}, tooManyReports()
	}
	defer leave()
	report, err := read()
	if err != nil {
		return edge.Response{}, err
	}
	release, err := t.rendering.Acquire(ctx, key, 1)
	if err != nil {
		return edge.Response{}, tooManyReports()
	}
	defer release()
	return render(report)
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
	return s.reports.take(ctx, c.Access.Organization, func() (web.Report, error) {
		return s.readReport(ctx, c, asked)
	}, s.renderReport)
}

func (s *Proofs) readReport(ctx context.Context, c *edge.Call, asked ReportQuestion) (report web.Report, err error) {
	observedAt, err := s.observationTime(ctx) // before the state is read, as in Export
	if err != nil {
		return report, err
	}
	stored, err := s.Store.Evidence(ctx, c.Access, asked.PublicID)
	if err != nil {
		return report, err
	}
	record := &export{id: asked.PublicID, stored: stored}
	s.prove(ctx, record, true)
	proven, err := s.seal(record, observedAt)
	if err != nil {
		return report, err
	}
	versions, err := s.Store.Records(ctx, c.Access, query.RecordQuestion{
		Company: stored.Record.CompanyReference, Source: stored.Record.Source, Document: stored.Record.DocumentReference,
		Limit: reportVersions,
	})
	if err != nil {
		return report, err
	}
	shown, err := s.Store.Record(ctx, c.Access, asked.PublicID)
	if err != nil {
		return report, err
	}
	if shown.Status != stored.Status { // changed between the reads
		return report, domain.Unavailable("The record changed while its report was made. Send the request again.")
	}
	own := &web.OwnReport{
		References: stored.Record.References, RevokedAt: shown.RevokedAt, More: versions.Next != nil,
	}
	for _, v := range versions.Entries {
		own.Versions = append(own.Versions, web.RecordRow{
			PublicID: v.PublicID.String(), Version: v.Version, Status: string(v.Status), ReceivedAt: v.ReceivedAt,
		})
	}
	return s.report(c, asked, record, proven, own, observedAt)
}

// PublicReport answers the public evidence report: a PDF with the public receipt and the public transparency log proof.
// It says nothing of references, other versions or people. It is not cached, because it states the version's state.
func (s *Proofs) PublicReport(r *http.Request) (edge.Response, error) {
	asked, err := edge.Read(r, ReadReport)
	if err != nil {
		return edge.Response{}, err
	}
	ctx := r.Context()
	return s.publicReports.take(ctx, s.ClientNetwork(r), func() (web.Report, error) {
		return s.readPublicReport(ctx, edge.CallOf(r), asked)
	}, s.renderReport)
}

func (s *Proofs) readPublicReport(
	ctx context.Context, c *edge.Call, asked ReportQuestion,
) (report web.Report, err error) {
	observedAt := s.Now()
	stored, err := s.Store.Published(ctx, asked.PublicID)
	if err == nil && stored.Pending {
		err = query.ErrUnknownPublicID
	}
	if err != nil {
		return report, err
	}
	record := &export{id: asked.PublicID, stored: stored}
	s.prove(ctx, record, true)
	proven, err := s.receiptOf(s.Keys().Trusted, stored.SignedID(asked.PublicID), stored)
	if err != nil {
		return report, err
	}
	if proven.Inclusion = record.proof; record.proof != nil {
		proven.Timestamps = record.stamps
		fitTimestamps(&proven)
	}
	return s.report(c, asked, record, proven, nil, observedAt)
}

// report makes the content of a report. It makes none of a record that verifiers do not accept: its hash must not be
// used.
func (s *Proofs) report(
	c *edge.Call, asked ReportQuestion, record *export, proven evidence.Envelope, own *web.OwnReport, at time.Time,
) (report web.Report, err error) {
	trusted, id := s.Keys().Trusted, asked.PublicID.String()
	payload, finding := evidence.VerifyRecord(
		trusted, record.stored.Record.KeyID, record.stored.Record.Payload, record.stored.Record.Signature,
	)
	if finding != evidence.Valid {
		return report, domain.Refuse(
			domain.InvalidState,
			"The signature of this record is not trusted, so there is no evidence report of it. Its receipt can still be read.",
		)
	}
	content := evidence.ReportContent{
		Private: own != nil, Proven: proven, Timestamps: proven.Timestamps, Trusted: trusted,
	}
	if content.Published, err = s.PublishedKeys(); err != nil {
		return report, err
	}
	if proven.Inclusion != nil {
		content.Proof = proven.AppendProof(nil)
	}
	attached := proven
	if own == nil {
		attached = evidence.NewEnvelope(proven.Signed)
	}
	if content.Evidence, err = edge.Encode(wire.Evidence{Envelope: attached}); err != nil {
		return report, err
	}
	language := asked.Language
	if language == "" {
		language = c.Language()
	}
	return web.Report{
		Language: language, PublicID: id, URL: (&Records{s.Service}).VerificationURL(id),
		MadeAt: at.UTC().Truncate(time.Second),
		Record: payload, KeyID: proven.KeyID, FingerprintSHA256: proven.FingerprintSHA256,
		State: string(record.stored.Status), Vouching: web.Vouching(s.attached(record, proven, payload)),
		Files: evidence.ReportFiles(id, content), Own: own,
	}, nil
}

func (s *Proofs) renderReport(report web.Report) (edge.Response, error) {
	raw, err := s.Pages.Report(report)
	return edge.Response{Raw: raw, ContentType: pdfType, Header: http.Header{
		"Content-Disposition": {`attachment; filename="` + report.FileName() + `"`},
		"Content-Language":    {string(report.Language)}, "Vary": {"Accept-Language"},
	}}, err
}

// attached counts the parties besides the operator that bind a record by what the files of its report prove: the
// cosignatures in the attached proof of witnesses that count, and the attached tokens. Nothing is known while the proof
// is pending.
func (s *Proofs) attached(record *export, proven evidence.Envelope, payload evidence.RecordPayload) Vouchers {
	found := Vouchers{Known: s.inclusionOf(record) != Pending}
	if proven.Inclusion == nil {
		return found
	}
	trusted, now := s.Keys().Trusted, s.Now()
	if _, err := proven.Inclusion.Check([]byte(proven.Payload), trusted); err == nil {
		counted := map[string]bool{} // by name, as verifiers count
		for _, w := range s.Parties.witnesses(trusted) {
			if _, ok := w.key.CosignedAt(proven.Inclusion.Checkpoint, now); ok && w.Counts() {
				counted[w.Name] = true
			}
		}
		found.Witnesses = len(counted)
	}
	found.Authority, found.Before, _ = proven.ExistedBefore(trusted, payload.ReceivedAt, now)
	return found
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
