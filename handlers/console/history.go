package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/fair"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// historyRows is the number of events on a page of the history.
const historyRows = 50

// endpoints adds the page of the history, its new events and its export.
func (s historyPages) endpoints(both addition) {
	both(
		edge.Get, "/history", s.history,
		edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.AuditRead},
	)
	both(
		edge.Get, "/history/export", s.exportHistory,
		edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: exportScope},
	)
	both(
		edge.Get, "/history/new", s.newEvents,
		edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Scope: domain.AuditRead, Unattended: true},
	)
}

// exportScope is stricter than the scope of the history page, because a bundle has more: addresses of members, titles,
// statements and reasons, encrypted secrets of webhooks and hashes of keys.
const exportScope = domain.OrganizationAdmin

// An export may wait in line. Its patience is longer than crowdedWindow, after which slow readers give up their places
// and the rate required of readers has doubled.
const (
	exportsAtOnce  = 2 // in a process; one of an organization
	exportPatience = 30 * time.Second
	exportPage     = 500 // events
)

// newExports makes the places of exports. One more export of each organization may wait.
func newExports(closing <-chan struct{}) *fair.Semaphore[domain.OrganizationID] {
	return fair.NewSemaphore[domain.OrganizationID](fair.Limits{
		Most: exportsAtOnce, Each: 1, Line: 1, Patience: exportPatience, Closing: closing,
	})
}

// history lists the events of the organization, newest first.
func (s historyPages) history(r *http.Request) (any, error) {
	q := edge.NewQuery(r) // malformed parameters are ignored
	question := query.AuditQuestion{Limit: historyRows, Before: edge.Integer(q, "before", 1, strictjson.MaxInteger, 0)}
	question.Action, question.Target = action.ReadAuditFilter(q)
	shown := web.History{
		Console: s.frameOf(r, "history"), Action: string(question.Action),
		Target: strings.TrimSpace(r.URL.Query().Get("target")), Author: strings.TrimSpace(r.URL.Query().Get("author")),
	}
	var err error
	if question.Actors, err = s.actorsNamed(r, shown.Author); err != nil {
		return nil, err
	}
	shown.UnknownAuthor = shown.Author != "" && question.Actors == nil
	if shown.Target != "" && question.Target == "" {
		if question.Target, err = s.targetNamed(r, shown.Target); err != nil {
			return nil, err
		}
		if question.Target == "" {
			if shown.Versions, err = s.versionsNamed(r, shown.Target); err != nil {
				return nil, err
			}
		}
		if len(shown.Versions) == 1 {
			question.Target, shown.Versions = shown.Versions[0].PublicID, nil
		}
		shown.Unknown = question.Target == "" && shown.Versions == nil
	}
	var page query.AuditPage // empty for words that name nothing: all events would look like the answer
	if !shown.Unknown && !shown.UnknownAuthor && shown.Versions == nil {
		if page, err = s.Store.AuditEvents(r.Context(), edge.CallOf(r).Access, question); err != nil {
			return nil, err
		}
	}
	if shown.Events, err = s.happened(r.Context(), edge.CallOf(r), page.Events); err != nil {
		return nil, err
	}
	for _, t := range domain.EventTypes() {
		if t != domain.KeysPublished { // no tenant has such events
			shown.Actions = append(shown.Actions, string(t))
		}
	}
	filter := url.Values{}
	for name, value := range map[string]string{
		"action": shown.Action, "target": question.Target, "author": shown.Author,
	} {
		if value != "" && (name != "author" || !shown.UnknownAuthor) {
			filter.Set(name, value)
		}
	}
	address := func(path, bound string, sequence int64) string {
		filter := maps.Clone(filter)
		filter.Set(bound, strconv.FormatInt(sequence, 10))
		return web.Path(edge.Language(r), web.ConsoleRoot+path) + "?" + filter.Encode()
	}
	if session := edge.CallOf(r).Session; session.Role.Allows(exportScope) {
		shown.Export, shown.Length = web.Path(edge.Language(r), web.ConsoleRoot+"/history/export"), session.Sequence
	}
	if page.More {
		shown.Older = address("/history", "before", page.Cursor)
	}
	if question.Before == 0 && page.Total > 0 {
		shown.New = address("/history/new", "after", page.Total)
	}
	return consolePageOf(s.site.History(shown))
}

// targetNamed returns the id of the company with a reference or, for a person who manages members, of the member with
// an address. It is empty if neither exists.
func (s historyPages) targetNamed(r *http.Request, text string) (string, error) {
	at := edge.CallOf(r).Session
	if m, found, err := s.memberNamed(r, text); found || err != nil {
		return m.String(), err
	}
	if !domain.ValidReference(text) {
		return "", nil
	}
	company, err := s.Store.CompanyByReference(r.Context(), at.Organization, text)
	if refused := edge.Refusal(err); refused != nil && refused.Code == domain.NotFound {
		return "", nil
	}
	return company.ID.String(), err
}

// versionsNamed returns the versions of the documents with a reference, registered or pending.
func (s historyPages) versionsNamed(r *http.Request, reference string) (versions []web.RecordRow, err error) {
	if !domain.ValidReference(reference) {
		return nil, nil
	}
	ctx, access := r.Context(), edge.CallOf(r).Access
	newest, _, _, err := s.Store.Referenced(ctx, access, reference, domain.RecordID{}, recordRows)
	if err != nil {
		return nil, err
	}
	for _, record := range newest {
		page, err := s.Store.Records(ctx, access, query.RecordQuestion{
			Company: record.CompanyReference, Source: record.Source, Document: reference, Limit: recordRows,
		})
		if err != nil {
			return nil, err
		}
		versions = append(versions, wire.Each(page.Entries, viewRow)...)
	}
	waiting, err := s.reservationsNamed(r, reference, nil)
	return append(versions, wire.Each(waiting, func(w web.Waiting) web.RecordRow {
		return web.RecordRow{
			PublicID: w.PublicID, Company: w.Company, Source: w.Source, Document: w.Document, Version: w.Version,
			Status: w.Status,
		}
	})...), err
}

// memberNamed finds the member with an address, whose membership may have ended, for a person who manages members.
func (s historyPages) memberNamed(r *http.Request, text string) (id domain.MemberID, found bool, err error) {
	at := edge.CallOf(r).Session
	if !domain.ValidEmail(text) || !at.Role.Allows(domain.OrganizationAdmin) {
		return id, false, nil
	}
	m, found, err := s.Store.MemberAt(r.Context(), at.Organization, domain.EmailSHA256(text))
	return m.ID, found, err
}

// actorsNamed returns the actors that a text names: the operator, the service, a key, or a member by id or address. To
// a person who manages members, a member's keys act for the member. It returns nil if the text names no actor.
func (s historyPages) actorsNamed(r *http.Request, text string) ([]string, error) {
	member, err := domain.ParseID[domain.MemberID](text)
	if err != nil {
		if actor := domain.ParseActor(text); actor.Kind() == domain.ActorKey || !actor.Judged() {
			return []string{text}, nil
		}
		var found bool
		if member, found, err = s.memberNamed(r, text); !found || err != nil {
			return nil, err
		}
	}
	actors, at := []string{member.String()}, edge.CallOf(r).Session
	if !at.Role.Allows(domain.OrganizationAdmin) {
		return actors, nil
	}
	keys, err := s.Store.Keys(r.Context(), at.Organization)
	for _, key := range keys {
		if key.Member == member {
			actors = append(actors, key.ID.String())
		}
	}
	return actors, err
}

// newEvents answers the rows of events since a page was made, for a script that polls. If there are no new events, only
// the session is read. If there are more than a page has, the newest are answered.
func (s historyPages) newEvents(r *http.Request) (any, error) {
	c, asked, question := edge.CallOf(r), edge.NewQuery(r), query.AuditQuestion{Limit: historyRows}
	question.Action, question.Target = action.ReadAuditFilter(asked)
	actors, err := s.actorsNamed(r, r.URL.Query().Get("author"))
	if err != nil {
		return nil, err
	}
	question.Actors = actors
	question.After = asked.Int("after", 0, strictjson.MaxInteger, strictjson.Required)
	if err := edge.Invalid(asked.Wrong()); err != nil {
		return nil, err
	}
	if question.After >= c.Access.Sequence {
		return edge.Response{Status: http.StatusNoContent}, nil
	}
	page, err := s.Store.AuditEvents(r.Context(), c.Access, question)
	if err != nil {
		return nil, err
	}
	events, err := s.happened(r.Context(), c, page.Events)
	if err != nil {
		return nil, err
	}
	rows, err := s.site.HistoryRows(web.History{Console: s.frameOf(r, "history"), Events: events})
	answer := struct {
		After int64  `json:"after"` // for the next request
		Rows  string `json:"rows"`
		Older *int64 `json:"older"` // events before it lie between these rows and the page; or null
	}{After: page.Total, Rows: string(rows)}
	if page.More {
		answer.Older = &page.Cursor
	}
	return answer, err
}

// memberAddresses returns the addresses of members if the person manages members, and otherwise no addresses.
func (s *Console) memberAddresses(
	ctx context.Context, c *edge.Call, members []domain.MemberID,
) (map[domain.MemberID]string, error) {
	if !c.Session.Role.Allows(domain.OrganizationAdmin) {
		return nil, nil
	}
	return s.Store.AddressesOf(ctx, c.Session.Organization, members)
}

// happened returns the view of events, with the names of their targets and actors that the person may see.
func (s historyPages) happened(ctx context.Context, c *edge.Call, events []query.AuditEvent) ([]web.Happened, error) {
	named, err := s.named(ctx, c, events)
	if err != nil {
		return nil, err
	}
	versions, err := s.versions(ctx, c, events)
	if err != nil {
		return nil, err
	}
	before, err := s.Store.StatusesBefore(ctx, c.Session.Organization, events)
	if err != nil {
		return nil, err
	}
	gone, err := s.destinations(ctx, c, events, named)
	return wire.Each(events, func(e query.AuditEvent) web.Happened {
		actor := e.Actor.String()
		h := web.Happened{
			At: e.OccurredAt, Action: string(e.Action), Target: e.Subject, TargetName: named[e.Subject], Actor: actor,
			ActorName: named[actor], Gone: gone[e.Subject], Sequence: e.Sequence,
		}
		if e.Action == domain.MemberJoined { // the service is the actor, since the person could not act as a member yet
			h.Actor, h.ActorName, h.Through = e.Subject, named[e.Subject], actor
		}
		if e.Reason != nil {
			h.Reason = *e.Reason
		}
		if e.Enabled != nil {
			h.Company = named[e.Company.String()]
		}
		details, _ := e.Details()
		_ = json.Unmarshal(details, &h.Change) // other members than these are left out
		h.Outcome = outcomeOf(e.Action, h.Change, before[e.Sequence])
		if v, ok := versions[e.Subject]; ok {
			h.TargetName, h.TargetVersion = v.DocumentReference, v.Version
		}
		return h
	}), err
}

// outcomeOf returns the name of what an event did among the texts of its type, empty if that is not known. before is
// the earlier status of a member or a destination as far as it is known, and otherwise empty.
func outcomeOf(action domain.EventType, change web.Change, before string) string {
	switch is := change.Status; {
	case is == nil:
	case before == "" && (action == domain.MemberChanged || action == domain.WebhookUpdated):
		return ""
	case before == *is:
		return "same"
	case before == string(domain.MemberInvited):
		return "withdrawn"
	default:
		return *is
	}
	for _, is := range []*bool{change.Enabled, change.Renewed} {
		if is != nil {
			return strconv.FormatBool(*is)
		}
	}
	return ""
}

// named returns the names of companies, documents, keys, passkeys, members and domains among the targets and actors of
// events, by their ids. Only people who manage keys, members and domains see theirs and the names of passkeys.
func (s historyPages) named(
	ctx context.Context, c *edge.Call, events []query.AuditEvent,
) (map[string]string, error) {
	var members []domain.MemberID
	var keys []domain.KeyID
	var companies []domain.CompanyID
	var versions []domain.ArtifactVersionID
	var statements []domain.StatementID
	var passkeys []domain.PasskeyID
	ids := map[[16]byte]string{}
	for _, e := range events {
		for _, text := range []string{e.Subject, e.Actor.String(), e.Company.String()} {
			members = collect(ids, members, domain.ParseID[domain.MemberID], text)
			keys = collect(ids, keys, domain.ParseID[domain.KeyID], text)
			companies = collect(ids, companies, domain.ParseID[domain.CompanyID], text)
			versions = collect(ids, versions, domain.ParseID[domain.ArtifactVersionID], text)
			statements = collect(ids, statements, domain.ParseID[domain.StatementID], text)
			passkeys = collect(ids, passkeys, domain.ParseID[domain.PasskeyID], text)
		}
	}
	if !c.Session.Role.Allows(domain.OrganizationAdmin) {
		keys, statements, passkeys = nil, nil, nil
	}
	addresses, err := s.memberAddresses(ctx, c, members)
	if err != nil {
		return nil, err
	}
	names, err := s.Store.Names(ctx, c.Session.Organization, keys, companies, versions, statements, passkeys)
	named := map[string]string{c.Session.Organization.String(): c.Session.OrganizationName}
	for id, address := range addresses {
		named[ids[id]] = address
	}
	for id, name := range names {
		named[ids[id]] = name
	}
	return named, err
}

// collect adds an id of one kind to a list, and its text to ids. It ignores ids of other kinds.
func collect[I ~[16]byte](ids map[[16]byte]string, list []I, parse func(string) (I, error), text string) []I {
	id, err := parse(text)
	if err != nil {
		return list
	}
	ids[id] = text
	return append(list, id)
}

// versions returns the versions among the targets of events, registered or only reserved, by their public ids.
func (s historyPages) versions(
	ctx context.Context, c *edge.Call, events []query.AuditEvent,
) (map[string]domain.ReservedVersion, error) {
	var ids []domain.PublicID
	for _, e := range events {
		if id, ok := domain.ParsePublicID(e.Subject); ok {
			ids = append(ids, id)
		}
	}
	list, err := s.Store.VersionsNamed(ctx, c.Access, ids, c.Start)
	versions := map[string]domain.ReservedVersion{}
	for _, v := range list {
		versions[v.PublicID.String()] = v
	}
	return versions, err
}

// destinations adds the addresses of the webhook destinations of events to named, and returns the destinations that no
// longer have a page. People who may not see destinations see neither.
func (s historyPages) destinations(
	ctx context.Context, c *edge.Call, events []query.AuditEvent, named map[string]string,
) (map[string]bool, error) {
	gone := map[string]bool{}
	for _, e := range events {
		if id, err := domain.ParseID[domain.WebhookID](e.Subject); err == nil {
			gone[id.String()] = true
		}
	}
	if len(gone) == 0 || !c.Session.Role.Allows(domain.IntegrityAdmin) {
		return nil, nil
	}
	there, err := s.ListWebhooks(ctx, c, struct{}{})
	for _, w := range there.Webhooks {
		if w.URL != nil {
			named[w.ID] = *w.URL
		}
		delete(gone, w.ID)
	}
	return gone, err
}

// exportHistory answers the organization's bundle for auditors, as integrity export makes it, as a zip file. The bundle
// is made while it is written, so it is never held in memory or on disk. No statement or transaction outlives a page of
// events, and a client that reads too slowly is cut off.
func (s historyPages) exportHistory(r *http.Request) (any, error) {
	c := edge.CallOf(r)
	if edge.FromElsewhere(r) {
		return s.fromOtherSite(r)
	}
	answer := edge.Response{ContentType: "application/zip", Cache: edge.NoStore, Header: http.Header{
		"Content-Disposition": {
			fmt.Sprintf(`attachment; filename="history-%s-%s.zip"`, c.Session.Organization, c.Start.UTC().Format(time.DateOnly)),
		},
	}}
	if r.Method == http.MethodHead {
		answer.Empty = true
		return answer, nil
	}
	trusted := s.Keys().Trusted
	if trusted == nil {
		return nil, domain.Unavailable("The service has no trusted-keys file at the moment; send the request again later.")
	}
	keys, err := trusted.Marshal()
	if err != nil {
		return nil, err
	}
	checkpoint := ""
	if s.Transparency != nil {
		if checkpoint, err = s.Transparency.Checkpoint(r.Context()); err != nil &&
			!errors.Is(err, transparency.ErrNoCheckpoint) {
			return nil, err
		}
	}
	release, err := s.exports.Acquire(r.Context(), c.Session.Organization, 1)
	if err != nil {
		return nil, domain.Unavailable("Other exports are in progress; send the request again when one of them has ended.")
	}
	c.Written = release
	answer.Crowded = func() bool { return s.exports.Crowded(c.Session.Organization) }
	answer.Pieces = s.exportPieces(r, bundle.Config{
		Organization: c.Session.Organization, Issuer: s.Installation.Issuer, Texts: true, TrustedKeys: keys,
		Checkpoint: checkpoint, Now: evidence.FormatTime(c.Start),
	})
	return answer, nil
}

// exportPieces returns the pieces of a bundle's zip file.
func (s historyPages) exportPieces(r *http.Request, config bundle.Config) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var made bytes.Buffer
		w := bundle.NewArchive(&made, config)
		for ended := false; !ended; made.Reset() {
			last, _ := w.Last()
			events, err := s.exportedEvents(r, last)
			switch ended = len(events) == 0; {
			case err != nil:
			case ended:
				_, err = w.Close()
			default:
				err = w.Append(events)
			}
			if !yield(made.Bytes(), err) || err != nil {
				return
			}
		}
	}
}

// exportedEvents returns the next events of an export, or no events at its end. It checks the session first, so the
// export ends with the session; it does not use the token, which a proof of identity replaces. The last check also
// ensures that no event, and so no erasure, lies between the last event and its texts.
func (s historyPages) exportedEvents(r *http.Request, last int64) ([]audit.Event, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), edge.RequestTimeout)
	defer stop()
	session := edge.CallOf(r).Session
	if err := s.JudgeAgain(ctx); err != nil {
		return nil, err
	}
	organization, err := s.Store.Organization(ctx, session.Organization)
	if err != nil || last >= organization.Sequence {
		return nil, err
	}
	access := accessOf(session)
	access.Sequence = organization.Sequence
	events, err := s.Store.History(ctx, access, last, exportPage)
	if err == nil && len(events) == 0 {
		err = bundle.DamagedError{Sequence: last + 1, Found: say.Sentencef("it is missing")}
	}
	return events, err
}
