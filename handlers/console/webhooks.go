package console

import (
	"maps"
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
	"integrityledger/projections"
	"integrityledger/projections/query"
)

// endpoints adds the pages of webhook destinations.
func (s webhookPages) endpoints(both addition) {
	see := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.IntegrityAdmin}
	act, send := see, see
	act.Body, send.Body, send.Queues = edge.BodyLongForm, edge.BodyLongForm, true
	both(edge.Get, "/webhooks", s.webhooksPage, see)
	both(edge.Post, "/webhooks", s.createWebhookByHand, act)
	both(edge.Get, "/webhooks/new", s.newWebhookPage, see)
	both(edge.Get, "/webhooks/{webhookId}", s.webhookPage, see)
	both(edge.Post, "/webhooks/{webhookId}", s.changeWebhookByHand, act)
	polled := see
	polled.Answer, polled.Unattended = edge.InEnvelope, true
	both(edge.Get, "/webhooks/{webhookId}/deliveries", s.deliveriesNow, polled)
	both(edge.Get, "/webhooks/{webhookId}/deliveries/{deliveryId}", s.deliveryPage, see)
	both(edge.Post, "/webhooks/{webhookId}/companies", s.authorizeWebhook, act)
	both(edge.Post, "/webhooks/{webhookId}/enabled", s.enableWebhook, act)
	both(edge.Get, "/webhooks/{webhookId}/rotate", s.confirmation("webhook-rotate"), see)
	both(edge.Post, "/webhooks/{webhookId}/rotate", s.rotateSecretByHand, act)
	both(edge.Get, "/webhooks/{webhookId}/delete", s.confirmation("webhook-delete"), see)
	both(edge.Post, "/webhooks/{webhookId}/delete", s.deleteWebhookByHand, act)
	both(edge.Post, "/webhooks/{webhookId}/test", s.testWebhookByHand, send)
	both(edge.Get, "/webhooks/{webhookId}/replay", s.replayPage, see)
	both(edge.Post, "/webhooks/{webhookId}/replay", s.replayByHand, send)
	both(edge.Post, "/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver", s.redeliverByHand, send)
}

func webhookID(r *http.Request) domain.WebhookID {
	return edge.PathID(r, "webhookId", domain.ParseID[domain.WebhookID])
}

// webhooksPage lists the destinations.
func (s webhookPages) webhooksPage(r *http.Request) (any, error) {
	list, err := s.ListWebhooks(r.Context(), edge.CallOf(r), struct{}{})
	if err != nil {
		return nil, err
	}
	return consolePageOf(s.site.Webhooks(web.Webhooks{
		Console: s.frameOf(r, "webhooks"), Most: domain.MaxWebhooks, Webhooks: list.Webhooks,
	}))
}

func webhookTypes() []string { return typeNames(domain.WebhookTypes()) }

func typeNames(types []domain.EventType) []string {
	return wire.Each(types, func(t domain.EventType) string { return string(t) })
}

func (s webhookPages) newWebhookPage(r *http.Request) (any, error) {
	return s.showNewWebhook(r, web.WebhookForm{Types: webhookTypes()}, nil, nil)
}

// showNewWebhook shows the form, also after its input was refused.
func (s webhookPages) showNewWebhook(
	r *http.Request, typed web.WebhookForm, companies []string, refused error,
) (any, error) {
	problem, status, err := s.problem(r, refused)
	if err != nil {
		return nil, err
	}
	list, more, err := s.Store.AuthorizedCompanies(
		r.Context(), edge.CallOf(r).Access.Organization, domain.WebhookID{}, "", choiceCompanies,
	)
	if err != nil {
		return nil, err
	}
	shown := web.NewWebhook{
		Console: s.frameOf(r, "webhook-new"), Form: typed, Known: webhookTypes(), More: more,
		MaxDescription: domain.MaxWebhookDescription,
	}
	shown.Console.Path = web.ConsoleRoot + "/webhooks/new"
	shown.Form.Problem, shown.Form.Local, shown.Form.Reach = problem, s.couldSendLocally(), s.reach()
	shown.Companies = wire.Each(list, func(c query.AuthorizedCompany) web.AuthorizedCompany {
		return web.AuthorizedCompany{
			ID: c.ID.String(), Reference: c.Reference, Authorized: slices.Contains(companies, c.ID.String()),
		}
	})
	resp, err := consolePageOf(s.site.NewWebhook(shown))
	return afterForm(resp, status, edge.Refusal(refused)), err
}

// couldSendLocally reports whether the service runs on loopback, perhaps for a trial, and refuses receivers on
// loopback.
func (s webhookPages) couldSendLocally() bool {
	return s.local() && !s.Egress.Insecure
}

// reach names the addresses that the settings of the service let it send to.
func (s webhookPages) reach() string {
	switch {
	case s.Egress.Insecure:
		return "Anywhere"
	case s.Egress.Loopback:
		return "ThisComputer"
	default:
		return "Internet"
	}
}

func readWebhookForm(values url.Values) web.WebhookForm {
	return web.WebhookForm{
		URL: textOf(values, "url"), Description: textOf(values, "description"),
		Types: append([]string{}, values["types"]...),
	}
}

// createWebhookByHand adds a destination and authorizes it for companies. Only this answer shows its secret.
func (s webhookPages) createWebhookByHand(r *http.Request) (any, error) {
	values := edge.Form(r)
	typed, chosen := readWebhookForm(values), values["company"]
	if err := s.boundForm(r, "company", len(chosen)); err != nil {
		return nil, err
	}
	added, err := edge.Submit(r, strictjson.Fields(values, "types"), s.ReadWebhook, s.CreateWebhook)
	if err != nil {
		return s.showNewWebhook(r, typed, chosen, err)
	}
	id, _ := domain.ParseID[domain.WebhookID](added.ID)
	shown := s.shownSecret(r, added.ID, added.Secret)
	changes := wire.Each(chosen, func(company string) domain.SetWebhookAccess {
		companyID, _ := domain.ParseID[domain.CompanyID](company) // a malformed id is answered like an unknown one
		return domain.SetWebhookAccess{Company: companyID, Webhook: id, Enabled: true}
	})
	if len(changes) > 0 {
		// The destination exists, and only this answer shows its secret.
		shown.Unauthorized = s.ChangeWebhookAccess(r.Context(), edge.CallOf(r), changes) != nil
	}
	return consolePageOf(s.site.WebhookSecret(shown))
}

func (s webhookPages) shownSecret(r *http.Request, id, secret string) web.WebhookSecret {
	shown := web.WebhookSecret{Console: s.frameOf(r, "webhook-secret"), ID: id, Secret: secret}
	shown.Console.Path = destinationPath(id)
	return shown
}

// destinationPath returns the Spanish path of a destination's page. Pages that answer a form show it, because the path
// of the form has no page.
func destinationPath(id string) string { return web.ConsoleRoot + "/webhooks/" + id }

const deliveryRows = 25

// webhookPage shows a destination with its companies and deliveries.
func (s webhookPages) webhookPage(r *http.Request) (any, error) { return s.showWebhook(r, nil, nil) }

// showWebhook shows a destination, also after a change was refused; typed is the input of the change.
func (s webhookPages) showWebhook(r *http.Request, typed *web.WebhookForm, refused error) (any, error) {
	problem, status, err := s.problem(r, refused)
	if err != nil {
		return nil, err
	}
	ctx, c, id, q := r.Context(), edge.CallOf(r), webhookID(r), r.URL.Query()
	destination, err := s.Webhook(ctx, c, id)
	if err != nil {
		return nil, err
	}
	shown := web.WebhookPage{
		Console: s.frameOf(r, "webhook"), Webhook: destination, Known: webhookTypes(),
		MaxDescription: domain.MaxWebhookDescription,
		MostAuthorized: domain.MaxWebhooksPerCompany,
	}
	shown.Console.Path = destinationPath(id.String())
	if typed == nil {
		typed = &web.WebhookForm{Types: typeNames(destination.Types)}
		if destination.URL != nil {
			typed.URL = *destination.URL
		}
		if destination.Description != nil {
			typed.Description = *destination.Description
		}
	}
	shown.Form = *typed
	shown.Form.Problem, shown.Form.Local, shown.Form.Reach = problem, s.couldSendLocally(), s.reach()
	companies, more, err := s.Store.AuthorizedCompanies(
		ctx, c.Access.Organization, id, validReference(q.Get("company")), choiceCompanies,
	)
	if err != nil {
		return nil, err
	}
	shown.After = validReference(q.Get("company"))
	shown.Companies = wire.Each(companies, func(c query.AuthorizedCompany) web.AuthorizedCompany {
		return web.AuthorizedCompany{ID: c.ID.String(), Reference: c.Reference, Authorized: c.Authorized}
	})
	if more {
		shown.MoreCompanies = s.webhookQuery(r, url.Values{"company": {companies[len(companies)-1].Reference}})
	}
	creators, err := s.Store.Creators(ctx, c.Access.Organization, domain.WebhookCreated, []string{id.String()})
	if err != nil {
		return nil, err
	}
	by := creators[id.String()]
	names, err := historyPages(s).named(ctx, c, []query.AuditEvent{{Actor: by}})
	if err != nil {
		return nil, err
	}
	shown.Creator, shown.CreatorName = by.String(), names[by.String()]
	if err := s.showDeliveries(r, &shown); err != nil {
		return nil, err
	}
	resp, err := consolePageOf(s.site.Webhook(shown))
	return afterForm(resp, status, edge.Refusal(refused)), err
}

// webhookQuery returns the address of the destination's page with a query, also for a page that answers a form.
func (s webhookPages) webhookQuery(r *http.Request, q url.Values) string {
	return web.Path(edge.Language(r), destinationPath(webhookID(r).String())) + "?" + q.Encode()
}

// validReference returns text if it can be a reference, and otherwise an empty string.
func validReference(text string) string {
	if !domain.ValidReference(text) {
		return ""
	}
	return text
}

// showDeliveries adds a page of the deliveries, newest first.
func (s webhookPages) showDeliveries(r *http.Request, shown *web.WebhookPage) error {
	q := r.URL.Query()
	after, _ := domain.ParseID[domain.DeliveryID](q.Get("after"))
	status := projections.DeliveryStatus(q.Get("status"))
	if status.Code() < 0 {
		status = ""
	}
	list, err := s.ListDeliveries(r.Context(), edge.CallOf(r), action.DeliveriesQuestion{
		Paging: edge.Paging[domain.DeliveryID]{After: after, Limit: deliveryRows}, Webhook: webhookID(r), Status: status,
	})
	if err != nil {
		return err
	}
	shown.Status, shown.Deliveries = string(status), list.Deliveries
	shown.Statuses = wire.Each(projections.DeliveryStatuses(), func(s projections.DeliveryStatus) string {
		return string(s)
	})
	shown.Pending = slices.ContainsFunc(list.Deliveries, func(d wire.Delivery) bool {
		return d.Status == string(projections.DeliveryPending)
	})
	now := url.Values{}
	for name, value := range map[string]string{"after": q.Get("after"), "status": string(status)} {
		if value != "" {
			now.Set(name, value)
		}
	}
	shown.Now = web.Path(edge.Language(r), destinationPath(webhookID(r).String())) + "/deliveries?" + now.Encode()
	if list.HasMore {
		next := url.Values{"after": {list.Deliveries[len(list.Deliveries)-1].ID}}
		if status != "" {
			next.Set("status", string(status))
		}
		shown.OlderDeliveries = s.webhookQuery(r, next) + "#deliveries"
	}
	return nil
}

// deliveriesNow answers the current rows of the page, for a script that polls while a delivery is pending.
func (s webhookPages) deliveriesNow(r *http.Request) (any, error) {
	destination, err := s.Webhook(r.Context(), edge.CallOf(r), webhookID(r))
	if err != nil {
		return nil, err
	}
	shown := web.WebhookPage{Console: s.frameOf(r, "webhook"), Webhook: destination}
	if err := s.showDeliveries(r, &shown); err != nil {
		return nil, err
	}
	rows, err := s.site.DeliveryRows(shown)
	return struct {
		Rows    string `json:"rows"`
		Pending bool   `json:"pending"` // at least one row is
		Failing bool   `json:"failing"` // the destination has only failures
	}{string(rows), shown.Pending, destination.FailingSince != nil}, err
}

// deliveryPage shows what a delivery sent and what the receiver answered.
func (s webhookPages) deliveryPage(r *http.Request) (any, error) {
	ctx, c := r.Context(), edge.CallOf(r)
	destination, err := s.Webhook(ctx, c, webhookID(r))
	if err != nil {
		return nil, err
	}
	delivery, sent, err := s.Delivery(
		ctx, c, webhookID(r), edge.PathID(r, "deliveryId", domain.ParseID[domain.DeliveryID]),
	)
	if err != nil {
		return nil, err
	}
	return consolePageOf(s.site.Delivery(web.DeliveryPage{
		Console: s.frameOf(r, "delivery"), Webhook: destination, Delivery: delivery, Body: string(sent.Body),
		Answer: readable(sent.Answer), Answered: sent.Answer != nil, TookMS: sent.TookMS,
	}))
}

// readable returns the text of an answer, with marks in place of bytes and characters that could not be seen or would
// change the rest of the page.
func readable(answer []byte) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) || c == '\n' || c == '\t' {
			return c
		}
		if c == '\r' {
			return -1
		}
		return unicode.ReplacementChar
	}, string(answer))
}

// toWebhook redirects to the destination's page.
func toWebhook(r *http.Request, part string) edge.Response {
	return onward(r, "/webhooks/"+webhookID(r).String()+part)
}

// changeWebhookByHand changes address, description and types.
func (s webhookPages) changeWebhookByHand(r *http.Request) (any, error) {
	return s.changedByHand(
		r, new(readWebhookForm(edge.Form(r))), toWebhook(r, saying("#change", "webhook-changed")), "types",
	)
}

// enableWebhook enables a destination or disables it.
func (s webhookPages) enableWebhook(r *http.Request) (any, error) {
	return s.changedByHand(r, nil, toWebhook(r, ""))
}

// changedByHand makes the change of a form. lists names the fields that are lists.
func (s webhookPages) changedByHand(
	r *http.Request, typed *web.WebhookForm, done edge.Response, lists ...string,
) (any, error) {
	if _, err := edge.Submit(
		r, strictjson.Fields(edge.Form(r), lists...), s.ReadWebhookChange, s.UpdateWebhook,
	); err != nil {
		return s.showWebhook(r, typed, err)
	}
	return done, nil
}

// authorizeWebhook authorizes a destination for the ticked companies of the page, and withdraws the page's other
// authorizations.
func (s webhookPages) authorizeWebhook(r *http.Request) (any, error) {
	values, c, id := edge.Form(r), edge.CallOf(r), webhookID(r)
	if _, err := s.Webhook(r.Context(), c, id); err != nil {
		return nil, err
	}
	after := validReference(values.Get("after"))
	companies, _, err := s.Store.AuthorizedCompanies(r.Context(), c.Access.Organization, id, after, choiceCompanies)
	if err != nil {
		return nil, err
	}
	var changes []domain.SetWebhookAccess
	for _, company := range companies {
		shown, ticked := slices.Contains(values["shown"], company.ID.String()), slices.Contains(
			values["company"], company.ID.String(),
		)
		if shown && ticked != company.Authorized {
			changes = append(changes, domain.SetWebhookAccess{Company: company.ID, Webhook: id, Enabled: ticked})
		}
	}
	if err := s.boundForm(r, "company", len(changes)); err != nil {
		return nil, err
	}
	if len(changes) > 0 {
		if err := s.ChangeWebhookAccess(r.Context(), c, changes); err != nil {
			return s.showWebhook(r, nil, err)
		}
	}
	back := "#companies"
	if after != "" {
		back = "?" + url.Values{"company": {after}}.Encode() + back
	}
	return toWebhook(r, saying(back, "webhook-companies")), nil
}

// confirmation explains the effect of an action on a destination before it is taken.
func (s webhookPages) confirmation(name string) edge.Handler {
	return func(r *http.Request) (any, error) {
		destination, err := s.Webhook(r.Context(), edge.CallOf(r), webhookID(r))
		if err != nil {
			return nil, err
		}
		return consolePageOf(s.site.WebhookConfirmation(web.WebhookPage{
			Console: s.frameOf(r, name), Webhook: destination, Overlaps: overlaps(),
		}))
	}
}

// overlaps are the choices for how many hours the previous secret keeps signing, the default first.
func overlaps() []int {
	hours := func(d time.Duration) int { return int(d / time.Hour) }
	return []int{hours(domain.DefaultSecretOverlap), 0, 1, hours(domain.MaxSecretOverlap)}
}

// inSeconds converts one of the offered numbers of hours to seconds; any other text becomes empty.
func inSeconds(hours string, offered []int) string {
	n, err := strconv.Atoi(hours)
	if err != nil || !slices.Contains(offered, n) {
		return ""
	}
	return strconv.Itoa(n * int(time.Hour/time.Second))
}

// rotateSecretByHand creates a new secret. Only this answer shows it.
func (s webhookPages) rotateSecretByHand(r *http.Request) (any, error) {
	typed := url.Values{}
	if seconds := inSeconds(edge.Form(r).Get("hours"), overlaps()); seconds != "" {
		typed.Set("overlapSeconds", seconds)
	}
	rotated, err := edge.Submit(r, strictjson.Fields(typed), action.ReadSecretRotation, s.RotateSecret)
	if err != nil {
		return s.showWebhook(r, nil, err)
	}
	return consolePageOf(s.site.WebhookSecret(s.shownSecret(r, rotated.ID, rotated.Secret)))
}

func (s webhookPages) deleteWebhookByHand(r *http.Request) (any, error) {
	if _, err := s.DeleteWebhook(r.Context(), edge.CallOf(r), webhookID(r)); err != nil {
		return nil, err
	}
	return onward(r, "/webhooks"), nil
}

func (s webhookPages) testWebhookByHand(r *http.Request) (any, error) {
	_, err := s.TestWebhook(r.Context(), edge.CallOf(r), webhookID(r))
	return s.sentByHand(r, err, "test")
}

// redeliverByHand queues a delivery again. The delivery itself tells its destination.
func (s webhookPages) redeliverByHand(r *http.Request) (any, error) {
	_, err := edge.Submit(r, strictjson.Fields(edge.Form(r)), action.ReadDeliveryID, s.Redeliver)
	return s.sentByHand(r, err, "redelivered")
}

// sentByHand redirects to the deliveries, with a message about the sent one.
func (s webhookPages) sentByHand(r *http.Request, err error, said string) (any, error) {
	if err != nil {
		return s.showWebhook(r, nil, err)
	}
	return toWebhook(r, saying("#deliveries", said)), nil
}

// replayOf replays the typed range, or counts its events.
func (s webhookPages) replayOf(r *http.Request, typed url.Values, dryRun bool) (wire.Replay, error) {
	typed = maps.Clone(typed)
	typed.Set("dryRun", strconv.FormatBool(dryRun))
	return edge.Submit(r, strictjson.Fields(typed), action.ReadReplay, s.Replay)
}

// replayPage asks for a range, and counts the events of the range in the query.
func (s webhookPages) replayPage(r *http.Request) (any, error) {
	values := r.URL.Query()
	if !values.Has("fromSequence") {
		return s.showReplay(r, url.Values{"fromSequence": {"1"}}, nil, nil)
	}
	counted, err := s.replayOf(r, values, true)
	return s.showReplay(r, values, &counted.Count, err)
}

// showReplay shows the page, with a count unless count is nil.
func (s webhookPages) showReplay(r *http.Request, values url.Values, count *int, refused error) (any, error) {
	problem, status, err := s.problem(r, refused)
	if err != nil {
		return nil, err
	}
	destination, err := s.Webhook(r.Context(), edge.CallOf(r), webhookID(r))
	if err != nil {
		return nil, err
	}
	typed := map[string]string{}
	for _, name := range []string{"fromSequence", "toSequence", "companyReference"} {
		typed[name] = textOf(values, name)
	}
	shown := web.Replay{
		Console: s.frameOf(r, "replay"), Webhook: destination, Typed: typed, Problem: problem,
		Most: query.MaxReplay,
	}
	if refused == nil && count != nil {
		shown.Counted, shown.Count = true, *count
	}
	resp, err := consolePageOf(s.site.Replay(shown))
	return afterForm(resp, status, edge.Refusal(refused)), err
}

// replayByHand queues the counted events, and redirects to the count of the rest if there are more.
func (s webhookPages) replayByHand(r *http.Request) (any, error) {
	values := edge.Form(r)
	replayed, err := s.replayOf(r, values, false)
	if err != nil {
		return s.showReplay(r, values, nil, err)
	}
	if replayed.NextSequence == nil {
		return toWebhook(r, saying("#deliveries", "replayed")), nil
	}
	rest := url.Values{
		"fromSequence": {strconv.FormatInt(*replayed.NextSequence, 10)}, "toSequence": {textOf(values, "toSequence")},
		"companyReference": {textOf(values, "companyReference")},
	}
	return toWebhook(r, "/replay?"+rest.Encode()), nil
}
