package action

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func (s *Records) viewRecord(r domain.Record) wire.Record {
	id := r.PublicID.String()
	return wire.Record{
		ID: r.ID.String(), PublicID: id, SHA256: r.SHA256.String(), VersionReference: wire.VersionReference{
			CompanyReference: r.CompanyReference, Source: r.Source, DocumentReference: r.DocumentReference, Version: r.Version,
		},
		PreviousVersion: r.PreviousVersion, SizeBytes: r.SizeBytes,
		MimeType: r.MimeType, GeneratedAt: string(r.GeneratedAt), ReceivedAt: evidence.FormatTime(r.ReceivedAt),
		Status:              r.Status,
		SupersededByVersion: r.SupersededByVersion, RevokedAt: wire.TimeOrNull(r.RevokedAt),
		VerificationURL: s.VerificationURL(id),
		EvidenceURL:     s.BaseURL + "/api/v1/integrity/records/" + id + "/evidence",
	}
}

func viewUsage(u domain.Usage) wire.Usage {
	return wire.Usage{Period: u.Period, Quota: viewAllowance(u), ResetsAt: evidence.FormatTime(u.Period.End())}
}

func (s *Records) viewRegistration(c *domain.Register) wire.Registration {
	v := wire.Registration{
		Record: s.viewRecord(c.Outcome), Replayed: c.Replayed, Usage: viewUsage(c.Usage),
		CompanyContribution: wire.CompanyUsage{CompanyReference: c.Outcome.CompanyReference, Used: c.CompanyUsed},
	}
	if !c.Replayed {
		v.Consumption.Applied = 1
	}
	return v
}

// Register registers a version. A declaration that was registered before is a replay, which consumes nothing and shows
// the record as it is now. A declaration that differs from the registered one is refused as a conflict.
func (s *Records) Register(
	ctx context.Context, c *edge.Call, declaration domain.Declaration,
) (wire.Registration, error) {
	errs := make([]error, 1)
	commands, err := s.registerAll(ctx, c, []domain.Declaration{declaration}, errs)
	if err = cmp.Or(err, errs[0]); err != nil {
		return wire.Registration{}, err
	}
	return s.viewRegistration(commands[0]), nil
}

// registerAll registers the declarations that have no error in errs, each as if it had been sent alone, and stores
// their errors in errs. If the queue has room for only some of them, the rest are refused before they are signed.
// Declarations beyond the month's allowance are not signed here either.
func (s *Records) registerAll(
	ctx context.Context, c *edge.Call, declarations []domain.Declaration, errs []error,
) ([]*domain.Register, error) {
	signer, err := s.signer()
	if err != nil {
		return nil, err
	}
	var sent []int // indexes of declarations
	for i, err := range errs {
		if err == nil {
			sent = append(sent, i)
		}
	}
	registrar := domain.Registrar{Issuer: s.Installation.Issuer, Secret: s.Installation.Secret, Signer: signer}
	admission, err := s.ledger.Admit(c.Access.Organization, len(sent))
	if err != nil {
		return nil, err
	}
	defer admission.Release()
	admitted := admission.Places()
	limit := s.Store.Plans.Of(c.Access.Plan, c.Access.Internal).VersionsPerMonth
	signed := s.used.remaining(c.Access.Organization, limit, domain.PeriodOf(s.Now()), admitted)
	registrations := make([]*domain.Register, len(declarations))
	prepare := func(k int) {
		i := sent[k]
		errs[i] = edge.Contain(func() error {
			registrations[i] = registrar.PrepareUnsigned(
				c.Origin(), c.Access.Key, c.Access.Limits, declarations[i], c.ReceivedAt,
			)
			if k < signed && !signer.Kept() {
				return registrations[i].Presign()
			}
			return nil
		})
	}
	if admitted == 1 {
		prepare(0)
	} else if err := s.inTurns(ctx, c.Access.Organization, admitted, prepare); err != nil {
		return nil, err
	}
	if signer.Kept() {
		presign(ctx, registrations, errs, sent[:min(signed, admitted)])
	}
	for _, i := range sent[admitted:] {
		errs[i] = eventstore.QueueFull()
	}
	failed := func(i int) bool { return errs[i] != nil }
	execute := func(sent []int, by func(context.Context, ...domain.Command) []eventstore.Answer) {
		commands := wire.Each(sent, func(i int) domain.Command { return registrations[i] })
		for k, answer := range by(ctx, commands...) {
			i := sent[k]
			s.Reach(c, answer)
			errs[i] = answer.Err
			// After any other error the command may still be in progress.
			if refused := edge.Refusal(answer.Err); answer.Err == nil ||
				refused != nil && (refused.Code == domain.RegistrationQuotaExhausted || refused.Code == domain.PlanRequired) {
				usage := registrations[i].Usage
				s.used.note(c.Access.Organization, usage, registrations[i].BackfillLeft)
				if (usage.Limit == nil) != (limit == nil) || limit != nil && *usage.Limit != *limit {
					s.Forget(c) // the cached plan is out of date
				}
			}
		}
	}
	sent = slices.DeleteFunc(sent, failed)
	execute(sent, admission.Execute)
	unsigned := slices.DeleteFunc(sent, func(i int) bool { return !errors.Is(errs[i], domain.ErrUnsigned) })
	for _, i := range unsigned {
		errs[i], registrations[i].Minute = nil, 0 // the request is counted
	}
	presign(ctx, registrations, errs, unsigned)
	execute(slices.DeleteFunc(unsigned, failed), s.ledger.Execute)
	return registrations, nil
}

// presignedAtOnce is how many signatures a request waits for at once, if another program keeps the signing key.
const presignedAtOnce = 4

// presign signs these registrations outside the organization's turns, because waiting for another program takes no
// processor.
func presign(ctx context.Context, registrations []*domain.Register, errs []error, these []int) {
	var waiting errgroup.Group
	waiting.SetLimit(presignedAtOnce)
	for _, i := range these {
		if errs[i] != nil {
			continue
		}
		waiting.Go(func() error {
			errs[i] = edge.Contain(func() error {
				if ctx.Err() != nil {
					return unprepared()
				}
				return registrations[i].Presign()
			})
			return nil
		})
	}
	_ = waiting.Wait() // the errors are in errs
}

// Record finds a record of a company that the key may use. Any other record is unknown.
func (s *Records) Record(ctx context.Context, c *edge.Call, id domain.PublicID) (wire.Record, error) {
	found, err := edge.Asked(&s.Identity, c, func(records query.RecordReader) (domain.Record, error) {
		return records.Record(ctx, c.Access, id)
	})
	return s.viewRecord(found), err
}

// The problem of a version's member next to a publicId.
const (
	codeConflict = "CONFLICT"
	besideLink   = "must be absent, because publicId names the record"
)

// versionMembers name a version if there is no public id.
var versionMembers = []string{"companyReference", "source", "documentReference", "version"}

// RecordName names a record: by its public id, or else by its version.
type RecordName struct {
	publicID *domain.PublicID
	version  domain.VersionReference
}

// ReadLookup reads a public id, or all four members of a version's name. It refuses a request with both.
func ReadLookup(o *strictjson.Object) RecordName {
	if !o.Has("publicId") {
		return RecordName{version: domain.ReadVersionReference(o)}
	}
	id := edge.ReadPublicID(o)
	for _, name := range versionMembers {
		if o.Has(name) {
			o.Problem(name, codeConflict, besideLink)
		}
	}
	return RecordName{publicID: &id}
}

// Lookup finds a record by its public id or its version.
func (s *Records) Lookup(ctx context.Context, c *edge.Call, name RecordName) (wire.Record, error) {
	if name.publicID != nil {
		return s.Record(ctx, c, *name.publicID)
	}
	found, err := edge.Asked(&s.Identity, c, func(records query.RecordReader) (domain.Record, error) {
		return records.Lookup(ctx, c.Access, name.version)
	})
	return s.viewRecord(found), err
}

// MaxReason is the largest number of characters in the reason of a revocation.
const MaxReason = 500

// ReadRevoke reads the public id of a record and an optional reason.
func ReadRevoke(o *strictjson.Object) domain.Revoke {
	return domain.Revoke{PublicID: edge.ReadPublicID(o), Reason: o.Sized("reason", strictjson.Optional, 0, MaxReason)}
}

// Revoke revokes a record for good. A revoked record does not change.
func (s *Records) Revoke(ctx context.Context, c *edge.Call, command domain.Revoke) (wire.Revocation, error) {
	command.Origin, command.Key = c.Origin(), c.Access.Key
	return done(ctx, s.Service, &command, func() wire.Revocation {
		return wire.Revocation{Record: s.viewRecord(command.Outcome), Replayed: command.Replayed}
	})
}

// RecordsQuestion asks for the records with a hash, or for the records of a company.
type RecordsQuestion struct {
	hash    *[32]byte
	page    edge.Paging[domain.RecordID] // of the search by hash
	company query.RecordQuestion
	list    string // of the search by company: the text that cursors of the same list begin with
}

// ReadRecords reads a search by hash if there is a hash, otherwise by company. A cursor is valid only for the search
// that returned it.
func ReadRecords(o *strictjson.Object) RecordsQuestion {
	if o.Has("sha256") {
		return RecordsQuestion{
			hash: edge.ReadSHA256(o, strictjson.Required), page: edge.ReadPaging(o, domain.ParseID[domain.RecordID]),
		}
	}
	asked := query.RecordQuestion{
		Limit: edge.ReadLimit(o), From: edge.Instant(o, "receivedFrom"), To: edge.Instant(o, "receivedTo"),
	}
	asked.Company = domain.ReadReference(o, "companyReference")
	asked.Source, asked.Document = edge.OptionalReference(o, "source"), edge.OptionalReference(o, "documentReference")
	asked.Status = edge.Known(o, "status", domain.StatusCurrent, domain.StatusSuperseded, domain.StatusRevoked)
	if asked.Document != "" && !o.Has("source") {
		o.Problem("source", strictjson.CodeRequired,
			"the parameter is required with documentReference: a reference names a document of one source")
	}
	if asked.From != nil && asked.To != nil && !asked.From.Before(*asked.To) {
		o.Problem("receivedTo", strictjson.CodeRange, "must be later than receivedFrom")
	}
	same := edge.List(
		"records", asked.Company, asked.Source, asked.Document, string(asked.Status), instantText(asked.From),
		instantText(asked.To),
	)
	edge.ListCursor(o, same, func(place string) (ok bool) {
		asked.Before, ok = ParsePlace(place)
		return ok
	})
	return RecordsQuestion{company: asked, list: same}
}

// FindRecords lists the records with a hash, or the records of a company, newest first.
func (s *Records) FindRecords(ctx context.Context, c *edge.Call, asked RecordsQuestion) (wire.Records, error) {
	if asked.hash != nil {
		records, more, err := s.Store.Search(ctx, c.Access, *asked.hash, asked.page.After, asked.page.Limit)
		next := edge.NextPage(asked.page, records, more, func(record domain.Record) string { return record.ID.String() })
		return wire.Records{Records: wire.Each(records, s.viewRecord), Next: next}, err
	}
	found, err := s.RecordsOfCompany(ctx, c, asked)
	return wire.Records{Records: wire.Each(found.Records, s.viewRecord), Next: edge.BoundedPage(found.Next)}, err
}

// FoundRecords is a page of a bounded search and the cursor of the next page.
type FoundRecords struct {
	Records []domain.Record
	Next    *string
}

// RecordsOfCompany searches by company, like FindRecords, and returns the ledger's records.
func (s *Records) RecordsOfCompany(ctx context.Context, c *edge.Call, asked RecordsQuestion) (FoundRecords, error) {
	page, err := s.Store.Records(ctx, c.Access, asked.company)
	next := wire.ViewOrNull(page.Next, func(place int64) string {
		return edge.FormatListCursor(asked.list, strconv.FormatInt(place, 10))
	})
	return FoundRecords{page.Entries, next}, err
}

// instantText formats a bound of time in its only spelling.
func instantText(at *time.Time) string {
	if at == nil {
		return ""
	}
	return strconv.FormatInt(at.UnixMicro(), 10)
}

// ParsePlace parses a positive number and accepts only its canonical spelling.
func ParsePlace(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == text
}

// Reserve assigns a public id to a version. A version that already has one, reserved or registered, keeps it.
func (s *Records) Reserve(
	ctx context.Context, c *edge.Call, version domain.VersionReference,
) (wire.Reservation, error) {
	command := &domain.Reserve{
		Origin: c.Origin(), Key: c.Access.Key, Limits: c.Access.Limits, Version: version,
		PublicID: domain.NewPublicID(s.Installation.Secret, c.Access.Organization.Shard()),
	}
	return done(ctx, s.Service, command, func() wire.Reservation {
		reservation, id := command.Outcome, command.Outcome.PublicID.String()
		return wire.Reservation{
			PublicID: id, VerificationURL: s.VerificationURL(id), ExpiresAt: evidence.FormatTime(reservation.ExpiresAt),
			Status: reservation.Status, Replayed: command.Replayed,
		}
	})
}

func (s *Records) viewReserved(r domain.ReservedVersion) wire.ReservedVersion {
	id := r.PublicID.String()
	return wire.ReservedVersion{
		PublicID: id, VerificationURL: s.VerificationURL(id), VersionReference: wire.VersionReference(r.VersionReference),
		Status: r.Status, ExpiresAt: evidence.FormatTime(r.ExpiresAt),
	}
}

// Release cancels a pending reservation and frees its place. A reservation that is not pending does not change.
func (s *Records) Release(
	ctx context.Context, c *edge.Call, id domain.PublicID,
) (wire.ReleasedReservation, error) {
	command := &domain.ReleaseReservation{Origin: c.Origin(), Key: c.Access.Key, Limits: c.Access.Limits, PublicID: id}
	return done(ctx, s.Service, command, func() wire.ReleasedReservation {
		return wire.ReleasedReservation{ReservedVersion: s.viewReserved(command.Outcome), Replayed: command.Replayed}
	})
}

// ReservationsQuestion asks for reserved versions of a company.
type ReservationsQuestion struct {
	query.ReservationQuestion
	list string
}

// ReadReservations reads which reservations of a company are wanted. A cursor is valid only for the question that
// returned it.
func ReadReservations(o *strictjson.Object) ReservationsQuestion {
	asked := query.ReservationQuestion{Company: domain.ReadReference(o, "companyReference"), Limit: edge.ReadLimit(o)}
	asked.Status = edge.Known(o, "status",
		domain.ReservationPending, domain.ReservationExpired, domain.ReservationReleased)
	same := edge.List("reservations", asked.Company, string(asked.Status))
	edge.ListCursor(o, same, func(place string) bool {
		micros, id, _ := strings.Cut(place, " ")
		at, timed := ParsePlace(micros)
		public, ok := domain.ParsePublicID(id)
		asked.After = &query.ReservationPlace{ExpiresAt: time.UnixMicro(at), PublicID: public}
		return timed && ok
	})
	return ReservationsQuestion{asked, same}
}

// ListReservations lists versions of a company that were reserved and are not registered. The first to expire comes
// first.
func (s *Records) ListReservations(
	ctx context.Context, c *edge.Call, asked ReservationsQuestion,
) (wire.Reservations, error) {
	asked.Now = c.Start
	page, err := s.Store.Reservations(ctx, c.Access, asked.ReservationQuestion)
	next := wire.ViewOrNull(page.Next, func(place query.ReservationPlace) string {
		at := strconv.FormatInt(place.ExpiresAt.UnixMicro(), 10)
		return edge.FormatListCursor(asked.list, at+" "+place.PublicID.String())
	})
	return wire.Reservations{Reservations: wire.Each(page.Entries, s.viewReserved), Next: edge.BoundedPage(next)}, err
}

// VerificationURL returns the link that may be printed in the document.
func (s *Records) VerificationURL(publicID string) string {
	return s.BaseURL + web.Record.Path(publicID)
}

// maxItemProblems is the number of problems listed for an item: more than a declaration has members, and few enough to
// keep the answer about as small as the largest body.
const maxItemProblems = 20

// RegisterBatch registers up to 500 declarations with one wait for the ledger. A refused item does not affect the
// others; pointers in its errors are relative to the item. It takes the request itself because the body is read in one
// of the organization's turns on a processor.
func (s *Records) RegisterBatch(r *http.Request) (wire.Results[wire.Registration], error) {
	c := edge.CallOf(r)
	items, err := s.readBatch(r)
	if err != nil {
		return wire.Results[wire.Registration]{}, err
	}
	results, errs := make([]wire.Result[wire.Registration], len(items)), make([]error, len(items))
	declarations := make([]domain.Declaration, len(items))
	if err := s.inTurns(r.Context(), c.Access.Organization, len(items), func(i int) {
		errs[i] = edge.Contain(func() error {
			object := c.Meter.Decode(items[i])
			declarations[i] = domain.ReadDeclaration(object)
			return edge.Invalid(strictjson.Listed(object.Problems(), maxItemProblems))
		})
	}); err != nil {
		return wire.Results[wire.Registration]{}, err
	}
	registrations, err := s.registerAll(r.Context(), c, declarations, errs)
	if err != nil {
		return wire.Results[wire.Registration]{}, err
	}
	for i, err := range errs {
		if err == nil {
			view := s.viewRegistration(registrations[i])
			results[i] = wire.Result[wire.Registration]{Status: edge.CreatedStatus(view.Existed()), Data: &view}
			continue
		}
		explained := s.itemFailure(r.Context(), c, i, err)
		results[i] = wire.Result[wire.Registration]{Status: explained.Status, Error: explained}
	}
	return wire.Results[wire.Registration]{Results: results}, nil
}

// itemFailure explains the failure of an item of the answer. An internal error is logged.
func (s *Service) itemFailure(ctx context.Context, c *edge.Call, item int, err error) *wire.Failure {
	if edge.Refusal(err) == nil {
		s.Log.ErrorContext(ctx, "batch item failed", "requestId", c.RequestID, "item", item, "error", err)
	}
	return s.ItemError(c, err)
}

func (s *Records) readBatch(r *http.Request) (items []strictjson.Value, err error) {
	release, err := s.preparing.Acquire(r.Context(), edge.CallOf(r).Access.Organization, 1)
	if err != nil {
		return nil, unprepared()
	}
	defer release()
	return edge.Read(r, func(o *strictjson.Object) []strictjson.Value {
		return o.Values("declarations", strictjson.Required, 1, edge.MaxDeclarations)
	})
}
