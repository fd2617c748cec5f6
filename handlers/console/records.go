package console

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// endpoints adds the pages of records.
func (s recordPages) endpoints(both addition) {
	see := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.IntegrityRead}
	revoke := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.IntegrityRevoke}
	both(edge.Get, "/records", s.recordsPage, see)
	both(edge.Get, "/records/{publicId}", s.recordPage, see)
	both(edge.Get, "/records/{publicId}/evidence", s.evidenceFile, see)
	both(edge.Get, "/records/{publicId}/report", s.report, see)
	both(edge.Get, "/records/{publicId}/tlog-proof", edge.Do(action.ReadProofNow, s.Proof), see)
	both(edge.Get, "/records/{publicId}/revoke", s.revokePage, revoke)
	revoke.Body = edge.BodyLongForm
	both(edge.Post, "/records/{publicId}/revoke", s.revokeByHand, revoke)
}

// Numbers of records on a page, and of companies to choose from.
const (
	recordRows      = 50
	choiceCompanies = 100
)

// recordsPage shows the result of a search, or otherwise the records of a company.
func (s recordPages) recordsPage(r *http.Request) (any, error) {
	shown := web.Records{
		Console: s.frameOf(r, "records"), Find: strings.TrimSpace(r.URL.Query().Get("find")),
		MayAdd: edge.CallOf(r).Session.Role.Allows(domain.IntegrityWrite),
	}
	if shown.Find != "" {
		return s.foundPage(r, shown)
	}
	return s.recordsOfCompanyPage(r, shown)
}

// foundPage shows the records that a text names: by public id or link, by hash, or by document reference. If there is
// exactly one, it redirects to the record.
func (s recordPages) foundPage(r *http.Request, shown web.Records) (any, error) {
	ctx, access := r.Context(), edge.CallOf(r).Access
	after, _ := domain.ParseID[domain.RecordID](r.URL.Query().Get("after"))
	var found []domain.Record
	var more bool
	shown.Whole = true
	named := web.ReadMention(shown.Find)
	if named.PublicID != nil {
		record, err := s.Store.Record(ctx, access, *named.PublicID)
		if refused := edge.Refusal(err); err != nil && (refused == nil || refused.Code != domain.RecordNotFound) {
			return nil, err
		}
		if err == nil {
			found = []domain.Record{record}
		}
	}
	var err error
	byHash := ""
	if named.SHA256 != nil && len(found) == 0 {
		if found, more, err = s.Store.Search(ctx, access, *named.SHA256, after, recordRows); err != nil {
			return nil, err
		}
		byHash = "?sha256=" + hex.EncodeToString(named.SHA256[:])
	}
	if len(found) == 0 && domain.ValidReference(shown.Find) {
		if found, more, shown.Whole, err = s.Store.Referenced(ctx, access, shown.Find, after, recordRows); err != nil {
			return nil, err
		}
	}
	if len(found) == 1 && after.IsZero() {
		return onward(r, "/records/"+found[0].PublicID.String()+byHash), nil
	}
	shown.Records = wire.Each(found, viewRow)
	if len(found) == 0 && shown.MayAdd {
		if shown.Waiting, err = s.reservationsNamed(r, shown.Find, named.PublicID); err != nil {
			return nil, err
		}
	}
	if more {
		shown.Older = s.consoleQuery(r, url.Values{"find": {shown.Find}, "after": {found[len(found)-1].ID.String()}})
	}
	return consolePageOf(s.site.Records(shown))
}

// reservationsNamed returns the reservations with a public id, or the pending ones of a document reference among those
// that expire last.
func (s *Console) reservationsNamed(r *http.Request, reference string, id *domain.PublicID) ([]web.Waiting, error) {
	c := edge.CallOf(r)
	if id != nil {
		reserved, err := s.Store.ReservedVersion(r.Context(), c.Access, *id, c.Start)
		if refused := edge.Refusal(err); refused != nil && refused.Code == domain.ErrUnknownReservation.Code {
			return nil, nil
		}
		return []web.Waiting{s.viewWaiting(reserved)}, err
	}
	list, _, err := s.Store.Pending(r.Context(), c.Access, "", c.Start, waitingRows)
	return wire.Each(slices.DeleteFunc(list, func(v domain.ReservedVersion) bool {
		return v.DocumentReference != reference
	}), s.viewWaiting), err
}

// consoleQuery returns the address of the page with another query.
func (s *Console) consoleQuery(r *http.Request, q url.Values) string {
	return r.URL.EscapedPath() + "?" + q.Encode()
}

func viewRow(record domain.Record) web.RecordRow {
	return web.RecordRow{
		PublicID: record.PublicID.String(), Company: record.CompanyReference, Source: record.Source,
		Document: record.DocumentReference,
		Version:  record.Version, Status: string(record.Status), ReceivedAt: record.ReceivedAt,
	}
}

// recordFilters are the parameters of the API's list that have fields on the page.
func recordFilters() []string {
	return []string{"companyReference", "source", "documentReference", "status", "receivedFrom", "receivedTo"}
}

// recordsOfCompanyPage lists the records of the chosen company, or otherwise of the company with the newest
// registration.
func (s recordPages) recordsOfCompanyPage(r *http.Request, shown web.Records) (any, error) {
	q, c := r.URL.Query(), edge.CallOf(r)
	companies, _, err := s.Store.Companies(r.Context(), c.Access, true, "", "", choiceCompanies)
	if err != nil {
		return nil, err
	}
	shown.Companies = wire.Each(companies, func(c domain.Company) string { return c.Reference })
	shown.Filter = map[string]string{}
	for _, name := range recordFilters() {
		shown.Filter[name] = strings.TrimSpace(q.Get(name))
	}
	if shown.Filter["companyReference"] == "" {
		if len(companies) == 0 {
			return consolePageOf(s.site.Records(shown))
		}
		if shown.Filter["companyReference"], err = s.newestCompany(r, companies); err != nil {
			return nil, err
		}
	}
	asked := url.Values{"limit": {strconv.Itoa(recordRows)}}
	for name, value := range shown.Filter {
		if value != "" {
			asked.Set(name, value)
		}
	}
	filtered := len(asked) > 2 || q.Has("after") // more than limit and company
	fromDay(asked, "receivedFrom", 0)
	fromDay(asked, "receivedTo", 1) // includes the named day
	if after := q.Get("after"); after != "" {
		asked.Set("after", after)
	}
	found, err := edge.Submit(r, strictjson.Query(asked), action.ReadRecords, s.RecordsOfCompany)
	if refused := edge.Refusal(err); refused != nil && refused.Code == domain.CompanyNotAuthorized {
		err = domain.InvalidMember("/companyReference", edge.CodeUnknownValue, refused.Message)
	}
	refused := err
	problem, status, err := s.problem(r, refused)
	if err != nil {
		return nil, err
	}
	shown.Problem, shown.Records = problem, wire.Each(found.Records, viewRow)
	if found.Next != nil {
		shown.Older = s.consoleQuery(r, older(shown.Filter, *found.Next))
	}
	shown.Empty = !filtered && found.Next == nil && len(found.Records) == 0
	resp, err := consolePageOf(s.site.Records(shown))
	return afterForm(resp, status, edge.Refusal(refused)), err
}

// newestCompany returns the company with the newest registration if it is among companies, and otherwise the first of
// them.
func (s recordPages) newestCompany(r *http.Request, companies []domain.Company) (reference string, err error) {
	page, err := s.Store.AuditEvents(
		r.Context(), edge.CallOf(r).Access, query.AuditQuestion{Action: domain.RecordRegistered, Limit: 1},
	)
	for _, c := range companies {
		if len(page.Events) > 0 && page.Events[0].Company == c.ID {
			return c.Reference, err
		}
	}
	return companies[0].Reference, err
}

// older returns the parameters of the next page.
func older(filter map[string]string, after string) url.Values {
	q := url.Values{"after": {after}}
	for name, value := range filter {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// fromDay replaces a date by the time at which it begins in UTC, plus a number of days. Any other text stays, and is
// refused as a time.
func fromDay(q url.Values, name string, later int) {
	if at, err := time.Parse(time.DateOnly, q.Get(name)); err == nil {
		q.Set(name, at.AddDate(0, 0, later).Format(time.RFC3339))
	}
}

// recordPage shows a record with the versions of its document.
func (s recordPages) recordPage(r *http.Request) (any, error) {
	ctx, access := r.Context(), edge.CallOf(r).Access
	record, err := s.Store.Record(ctx, access, edge.PublicID(edge.Variable(r, "publicId")))
	if err != nil {
		return nil, err
	}
	before, _ := action.ParsePlace(r.URL.Query().Get("before"))
	versions, err := s.Store.Records(ctx, access, query.RecordQuestion{
		Company: record.CompanyReference, Source: record.Source, Document: record.DocumentReference, Before: before,
		Limit: recordRows,
	})
	if err != nil {
		return nil, err
	}
	shown := s.viewRecordPage(r, "record", record)
	if shown.Reason, err = s.reasonOf(r, record); err != nil {
		return nil, err
	}
	if _, shown.ByHand, err = s.registration(r, record); err != nil {
		return nil, err
	}
	shown.YourFile = r.URL.Query().Get("sha256") == record.SHA256.String()
	shown.Link = s.VerificationURL(record.PublicID.String())
	shown.Versions = wire.Each(versions.Entries, viewRow)
	if versions.Next != nil {
		shown.Older = s.consoleQuery(r, url.Values{"before": {strconv.FormatInt(*versions.Next, 10)}})
	}
	return consolePageOf(s.site.Record(shown))
}

// reasonOf returns the reason of a record's revocation, if there is one, it was not erased, and the person may read the
// history.
func (s recordPages) reasonOf(r *http.Request, record domain.Record) (string, error) {
	c := edge.CallOf(r)
	if record.RevokedAt == nil || !c.Session.Role.Allows(domain.AuditRead) {
		return "", nil
	}
	page, err := s.Store.AuditEvents(r.Context(), c.Access, query.AuditQuestion{
		Action: domain.RecordRevoked, Target: record.PublicID.String(), Limit: 1,
	})
	if len(page.Events) == 0 || page.Events[0].Reason == nil {
		return "", err
	}
	return *page.Events[0].Reason, err
}

// registration reports whether a record's version was reserved before, and whether a person registered it in the
// console.
func (s *Console) registration(r *http.Request, record domain.Record) (reserved, byHand bool, err error) {
	page, err := s.Store.AuditEvents(r.Context(), edge.CallOf(r).Access, query.AuditQuestion{
		Action: domain.RecordRegistered, Target: record.PublicID.String(), Limit: 1,
	})
	if err != nil || len(page.Events) == 0 {
		return false, false, err
	}
	var details struct{ Reserved bool }
	text, err := page.Events[0].Details()
	if err == nil {
		err = json.Unmarshal(text, &details)
	}
	member, _ := domain.ParseID[domain.MemberID](page.Events[0].Actor.String())
	return details.Reserved, !member.IsZero(), err
}

func (s recordPages) viewRecordPage(r *http.Request, name string, record domain.Record) web.RecordPage {
	generated, _ := edge.ParseInstant(string(record.GeneratedAt)) // stored timestamps are valid
	return web.RecordPage{
		Console: s.frameOf(r, name), Row: viewRow(record), SHA256: record.SHA256.String(), SizeBytes: record.SizeBytes,
		MimeType: record.MimeType, GeneratedAt: generated,
		PreviousVersion: record.PreviousVersion, SupersededBy: record.SupersededByVersion, RevokedAt: record.RevokedAt,
		Timestamps: len(s.Keys().Trusted.Authorities()) > 0, Log: s.Transparency != nil,
		MayRevoke: edge.CallOf(r).Session.Role.Allows(domain.IntegrityRevoke), MaxReason: action.MaxReason,
		MayAdd: edge.CallOf(r).Session.Role.Allows(domain.IntegrityWrite),
	}
}

// evidenceFile answers the private export of the API as a file to save.
func (s recordPages) evidenceFile(r *http.Request) (any, error) {
	exported, err := edge.Submit(r, edge.NewQuery(r), action.ReadExport, s.Evidence)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("evidence-%s-v%d.json", exported.References.DocumentReference, exported.References.Version)
	return edge.Response{Data: exported, Bare: true, Header: http.Header{
		"Content-Disposition": {mime.FormatMediaType("attachment", map[string]string{"filename": fileName(name)})},
	}}, nil
}

// fileName returns a name that every file system accepts: what is neither a letter nor a digit becomes a hyphen.
func fileName(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._", r) {
			return r
		}
		return '-'
	}, text)
}

// report answers the organization's evidence report in the language of the page.
func (s recordPages) report(r *http.Request) (any, error) {
	asked, err := edge.Read(r, action.ReadReport)
	if err != nil {
		return nil, err
	}
	asked.Language = edge.Language(r)
	return s.Report(r.Context(), edge.CallOf(r), asked)
}

// revokePage asks for the reason and explains the effect of a revocation.
func (s recordPages) revokePage(r *http.Request) (any, error) {
	record, err := s.Store.Record(r.Context(), edge.CallOf(r).Access, edge.PublicID(edge.Variable(r, "publicId")))
	if err == nil && record.RevokedAt == nil { // for a revoked one nothing is left to do
		err = s.recentlyProved(r)
	}
	if err != nil {
		return nil, err
	}
	return s.showRevocation(r, "", nil)
}

// showRevocation shows the page, also after its input was refused. For a revoked record it redirects to the record.
func (s recordPages) showRevocation(r *http.Request, reason string, refused error) (any, error) {
	problem, status, err := s.problem(r, refused)
	if err != nil {
		return nil, err
	}
	record, err := s.Store.Record(r.Context(), edge.CallOf(r).Access, edge.PublicID(edge.Variable(r, "publicId")))
	if err != nil {
		return nil, err
	}
	if record.RevokedAt != nil {
		return onward(r, "/records/"+record.PublicID.String()), nil
	}
	shown := s.viewRecordPage(r, "revoke", record)
	shown.Reason, shown.Problem = reason, problem
	resp, err := consolePageOf(s.site.Revoke(shown))
	return afterForm(resp, status, edge.Refusal(refused)), err
}

// revokeByHand revokes a record for good.
func (s recordPages) revokeByHand(r *http.Request) (any, error) {
	reason := textOf(edge.Form(r), "reason")
	if err := s.recentlyProved(r); err != nil {
		return s.showRevocation(r, reason, err)
	}
	if _, err := edge.Submit(r, strictjson.Fields(edge.Form(r)), action.ReadRevoke, s.Revoke); err != nil {
		return s.showRevocation(r, reason, err)
	}
	return onward(r, saying("/records/"+edge.Variable(r, "publicId"), "revoked")), nil
}
