package handlers

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func (s *server) viewRecord(r domain.Record) wire.Record {
	id := r.PublicID.String()
	return wire.Record{
		ID: r.ID.String(), PublicID: id, SHA256: r.SHA256, VersionReference: wire.VersionReference{
			CompanyReference: r.CompanyReference, Source: r.Source, DocumentReference: r.DocumentReference, Version: r.Version,
		},
		PreviousVersion: r.PreviousVersion, SizeBytes: r.SizeBytes,
		MimeType: r.MimeType, GeneratedAt: string(r.GeneratedAt), ReceivedAt: evidence.FormatTime(r.ReceivedAt), Status: r.Status,
		SupersededByVersion: r.SupersededByVersion, RevokedAt: timeOrNull(r.RevokedAt),
		VerificationURL: s.verificationURL(id),
		EvidenceURL:     s.BaseURL + "/api/v1/integrity/records/" + id + "/evidence",
	}
}

func viewUsage(u domain.Usage) wire.Usage {
	return wire.Usage{Period: u.Period, Quota: viewAllowance(u), ResetsAt: evidence.FormatTime(u.Period.End())}
}

func (s *server) viewRegistration(c *domain.Register) wire.Registration {
	v := wire.Registration{
		Record: s.viewRecord(c.Outcome), Replayed: c.Replayed, Usage: viewUsage(c.Usage),
		CompanyContribution: wire.CompanyUsage{CompanyReference: c.Outcome.CompanyReference, Used: c.CompanyUsed},
	}
	if !c.Replayed {
		v.Consumption.Applied = 1
	}
	return v
}

// register answers 201 for a new version and 200 for a replay, which shows the record as it is now.
func (s *server) register(ctx context.Context, c *call, declaration domain.Declaration) (any, error) {
	errs := make([]error, 1)
	commands, err := s.registerAll(ctx, c, []domain.Declaration{declaration}, errs)
	if err = cmp.Or(err, errs[0]); err != nil {
		return nil, err
	}
	registered := s.viewRegistration(commands[0])
	return response{status: createdStatus(registered.Replayed), data: registered}, nil
}

// registerAll registers the declarations that have no error in errs, each as if it had been sent alone, and puts the
// errors of these there. Those that the queue has no place for, the last ones, are refused before anything is spent on
// them, and what the month's allowance cannot hold is not signed here.
func (s *server) registerAll(ctx context.Context, c *call, declarations []domain.Declaration, errs []error) ([]*domain.Register, error) {
	signer, err := s.signer()
	if err != nil {
		return nil, err
	}
	var sent []int // which declarations
	for i, err := range errs {
		if err == nil {
			sent = append(sent, i)
		}
	}
	registrar := domain.Registrar{Issuer: s.Installation.Issuer, Secret: s.Installation.Secret, Signer: signer}
	admission, err := s.Ledger.Admit(c.access.Organization, len(sent))
	if err != nil {
		return nil, err
	}
	defer admission.Release()
	admitted := admission.Places()
	limit := s.Store.Plans.Of(c.access.Plan, c.access.Internal).VersionsPerMonth
	signed := s.used.remaining(c.access.Organization, limit, domain.PeriodOf(s.Now()), admitted)
	registrations := make([]*domain.Register, len(declarations))
	prepare := func(k int) {
		i := sent[k]
		errs[i] = edge.Contain(func() error {
			prepared := registrar.Prepare
			if k >= signed {
				prepared = registrar.PrepareUnsigned
			}
			registrations[i] = prepared(c.origin(), c.access.Key, c.access.Limits, declarations[i], c.receivedAt)
			return nil
		})
	}
	if admitted == 1 {
		prepare(0)
	} else if err := s.inTurns(ctx, c.access.Organization, admitted, prepare); err != nil {
		return nil, err
	}
	for _, i := range sent[admitted:] {
		errs[i] = eventstore.QueueFull()
	}
	sent = slices.DeleteFunc(sent, func(i int) bool { return errs[i] != nil })
	commands := each(sent, func(i int) domain.Command { return registrations[i] })
	for k, answer := range admission.Execute(ctx, commands...) {
		i := sent[k]
		s.reach(c, answer)
		errs[i] = answer.Err
		// Otherwise the command may still be under way.
		if refused := refusal(answer.Err); answer.Err == nil || refused != nil && (refused.Code == domain.RegistrationQuotaExhausted || refused.Code == domain.PlanRequired) {
			usage := registrations[i].Usage
			s.used.note(c.access.Organization, usage)
			if (usage.Limit == nil) != (limit == nil) || limit != nil && *usage.Limit != *limit {
				s.callers.known.Remove(c.caller) // the plan is not what is remembered
			}
		}
	}
	return registrations, nil
}

// publicID reads a public id. A malformed one is the zero one, which is answered as an unknown one.
func publicID(text string) domain.PublicID {
	if id, ok := domain.ParsePublicID(text); ok {
		return id
	}
	return domain.PublicID{}
}

func (s *server) record(r *http.Request) (any, error) {
	return s.recordOf(r.Context(), callOf(r), publicID(variable(r, "publicId")))
}

func (s *server) recordOf(ctx context.Context, c *call, id domain.PublicID) (any, error) {
	found, err := s.Store.Record(ctx, c.access, id)
	return s.viewRecord(found), err
}

// What is said of a part of a version's name beside a link.
const (
	codeConflict = "CONFLICT"
	besideLink   = "must be left out: publicId names the record"
)

// versionMembers name a version where no link does.
var versionMembers = []string{"companyReference", "source", "documentReference", "version"}

// lookup finds the record of a link, or of a version.
func (s *server) lookup(r *http.Request) (any, error) {
	find, err := queried(r, s.readLookup)
	if err != nil {
		return nil, err
	}
	return find(r.Context(), callOf(r))
}

func (s *server) lookUp(ctx context.Context, c *call, version domain.VersionReference) (any, error) {
	found, err := s.Store.Lookup(ctx, c.access, version)
	return s.viewRecord(found), err
}

// readLookup reads what names a record: its public id, or its version.
func (s *server) readLookup(o *strictjson.Object) toolCall {
	if !o.Has("publicId") {
		return called(domain.ReadVersionReference, s.lookUp)(o)
	}
	id := publicID(o.String("publicId", strictjson.Required))
	for _, name := range versionMembers {
		if o.Has(name) {
			o.Problem(name, codeConflict, besideLink)
		}
	}
	return func(ctx context.Context, c *call) (any, error) { return s.recordOf(ctx, c, id) }
}

const maxReason = 500

func readReason(o *strictjson.Object) string {
	return o.Sized("reason", strictjson.Optional, 0, maxReason)
}

func (s *server) revoke(r *http.Request) (any, error) {
	reason, err := bodyOf(r, readReason)
	if err != nil {
		return nil, err
	}
	return single(s, s.revokeRecord)(r.Context(), callOf(r), domain.Revoke{PublicID: publicID(variable(r, "publicId")), Reason: reason})
}

func (s *server) revokeRecord(ctx context.Context, c *call, command domain.Revoke) (any, error) {
	command.Origin, command.Key = c.origin(), c.access.Key
	return s.done(ctx, &command, func() any {
		return wire.Revocation{Record: s.viewRecord(command.Outcome), Replayed: command.Replayed}
	})
}

// findRecords lists the records of a hash, or those of a company.
func (s *server) findRecords(r *http.Request) (any, error) {
	if r.URL.Query().Has("sha256") {
		return s.search(r)
	}
	return s.listRecords(r)
}

// listRecords lists the records of a company, newest first, page by page of a bounded search.
func (s *server) listRecords(r *http.Request) (any, error) {
	records, next, err := s.recordsOfCompany(r, newQuery(r))
	return wire.Records{Records: each(records, s.viewRecord), Next: boundedPage(next)}, err
}

// recordsOfCompany is a page of them, and the cursor of the next one.
func (s *server) recordsOfCompany(r *http.Request, q *strictjson.Object) (records []domain.Record, next *string, err error) {
	asked := query.RecordQuestion{Limit: readLimit(q), From: instant(q, "receivedFrom"), To: instant(q, "receivedTo")}
	asked.Company, asked.Source, asked.Document = domain.ReadReference(q, "companyReference"), optionalReference(q, "source"), optionalReference(q, "documentReference")
	asked.Status = known(q, "status", domain.StatusCurrent, domain.StatusSuperseded, domain.StatusRevoked)
	if asked.Document != "" && !q.Has("source") {
		q.Problem("source", strictjson.CodeRequired, "the parameter is required with documentReference: a reference names a document of one source")
	}
	if asked.From != nil && asked.To != nil && !asked.From.Before(*asked.To) {
		q.Problem("receivedTo", strictjson.CodeRange, "must be later than receivedFrom")
	}
	same := list("records", asked.Company, asked.Source, asked.Document, string(asked.Status), instantText(asked.From), instantText(asked.To))
	listCursor(q, same, func(place string) (ok bool) {
		asked.Before, ok = parsePlace(place)
		return ok
	})
	if err := invalid(q.Problems()); err != nil {
		return nil, nil, err
	}
	page, err := s.Store.Records(r.Context(), callOf(r).access, asked)
	return page.Entries, viewOrNull(page.Next, func(place int64) string { return formatListCursor(same, strconv.FormatInt(place, 10)) }), err
}

// instantText is a bound of time in one spelling.
func instantText(at *time.Time) string {
	if at == nil {
		return ""
	}
	return strconv.FormatInt(at.UnixMicro(), 10)
}

// parsePlace reads a positive number in its one spelling.
func parsePlace(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == text
}

// search lists the records of a hash, newest first, of companies granted to the key.
func (s *server) search(r *http.Request) (any, error) {
	q := newQuery(r)
	sum, limit, before := readSHA256(q, strictjson.Required), readLimit(q), cursorID(q, domain.ParseID[domain.RecordID])
	if err := invalid(q.Problems()); err != nil {
		return nil, err
	}
	records, more, err := s.Store.Search(r.Context(), callOf(r).access, *sum, before, limit)
	next := nextPage(q, records, more, func(record domain.Record) string { return record.ID.String() })
	return wire.Records{Records: each(records, s.viewRecord), Next: next}, err
}

// reserve gives a version its public id: 201 for a new one, 200 again.
func (s *server) reserve(ctx context.Context, c *call, version domain.VersionReference) (any, error) {
	command := &domain.Reserve{
		Origin: c.origin(), Key: c.access.Key, Limits: c.access.Limits, Version: version,
		PublicID: domain.NewPublicID(s.Installation.Secret, c.access.Organization.Shard()),
	}
	return s.done(ctx, command, func() any {
		reservation, replayed := command.Outcome, command.Replayed
		id := reservation.PublicID.String()
		return response{status: createdStatus(replayed), data: wire.Reservation{
			PublicID: id, VerificationURL: s.verificationURL(id), ExpiresAt: evidence.FormatTime(reservation.ExpiresAt),
			Status: reservation.Status, Replayed: replayed,
		}}
	})
}

func (s *server) viewReserved(r domain.ReservedVersion) wire.ReservedVersion {
	id := r.PublicID.String()
	return wire.ReservedVersion{
		PublicID: id, VerificationURL: s.verificationURL(id), VersionReference: wire.VersionReference(r.VersionReference),
		Status: r.Status, ExpiresAt: evidence.FormatTime(r.ExpiresAt),
	}
}

// release gives the place of a pending reservation back. One that has none is left as it is.
func (s *server) release(r *http.Request) (any, error) {
	return single(s, s.releaseReservation)(r.Context(), callOf(r), publicID(variable(r, "publicId")))
}

func (s *server) releaseReservation(ctx context.Context, c *call, id domain.PublicID) (any, error) {
	command := &domain.ReleaseReservation{Origin: c.origin(), Key: c.access.Key, Limits: c.access.Limits, PublicID: id}
	return s.done(ctx, command, func() any {
		return wire.ReleasedReservation{ReservedVersion: s.viewReserved(command.Outcome), Replayed: command.Replayed}
	})
}

// listReservations lists versions of a company that were reserved and are not registered, the first to expire first.
func (s *server) listReservations(r *http.Request) (any, error) {
	q := newQuery(r)
	asked := query.ReservationQuestion{Company: domain.ReadReference(q, "companyReference"), Limit: readLimit(q), Now: callOf(r).start}
	asked.Status = known(q, "status", domain.ReservationPending, domain.ReservationExpired, domain.ReservationReleased)
	same := list("reservations", asked.Company, string(asked.Status))
	listCursor(q, same, func(place string) bool {
		micros, id, _ := strings.Cut(place, " ")
		at, timed := parsePlace(micros)
		public, ok := domain.ParsePublicID(id)
		asked.After = &query.ReservationPlace{ExpiresAt: time.UnixMicro(at), PublicID: public}
		return timed && ok
	})
	if err := invalid(q.Problems()); err != nil {
		return nil, err
	}
	page, err := s.Store.Reservations(r.Context(), callOf(r).access, asked)
	next := viewOrNull(page.Next, func(place query.ReservationPlace) string {
		return formatListCursor(same, strconv.FormatInt(place.ExpiresAt.UnixMicro(), 10)+" "+place.PublicID.String())
	})
	return wire.Reservations{Reservations: each(page.Entries, s.viewReserved), Next: boundedPage(next)}, err
}

// verificationURL is the link that may stand in the document.
func (s *server) verificationURL(publicID string) string {
	return s.BaseURL + web.Record.Path(publicID)
}

// maxDeclarations is the most items of a batch (contract section 3).
const maxDeclarations = 500

// maxItemProblems is how many problems of an item are listed: more than a declaration has members, and so few that the
// answer stays about as large as the largest body.
const maxItemProblems = 20

// registerBatch registers up to 500 declarations with one wait for the ledger. An item that is refused costs the others
// nothing; pointers of its errors begin at the item.
func (s *server) registerBatch(r *http.Request) (any, error) {
	c := callOf(r)
	items, err := s.readBatch(r)
	if err != nil {
		return nil, err
	}
	results, errs := make([]wire.BatchResult, len(items)), make([]error, len(items))
	declarations := make([]domain.Declaration, len(items))
	if err := s.inTurns(r.Context(), c.access.Organization, len(items), func(i int) {
		errs[i] = edge.Contain(func() error {
			object := c.meter.Decode(items[i])
			declarations[i] = domain.ReadDeclaration(object)
			return invalid(strictjson.Listed(object.Problems(), maxItemProblems))
		})
	}); err != nil {
		return response{}, err
	}
	registrations, err := s.registerAll(r.Context(), c, declarations, errs)
	if err != nil {
		return response{}, err
	}
	for i, err := range errs {
		if err == nil {
			view := s.viewRegistration(registrations[i])
			results[i] = wire.BatchResult{Status: createdStatus(view.Replayed), Data: &view}
			continue
		}
		if refusal(err) == nil {
			s.Log.ErrorContext(r.Context(), "item of a batch", "requestId", c.requestID, "item", i, "error", err)
		}
		explained := s.itemError(c, err)
		results[i] = wire.BatchResult{Status: explained.Status, Error: explained}
	}
	return wire.Batch{Results: results}, nil
}

func (s *server) readBatch(r *http.Request) (items []strictjson.Value, err error) {
	release, err := s.preparing.acquire(r.Context(), callOf(r).access.Organization, 1)
	if err != nil {
		return nil, unprepared()
	}
	defer release()
	err = decode(r, func(o *strictjson.Object) {
		items = o.Values("declarations", strictjson.Required, 1, maxDeclarations)
	})
	return items, err
}
