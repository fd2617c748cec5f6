package webhooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
	"integrityledger/schemas"
)

// matchesSchema checks a body against the published schema.
func matchesSchema(t *testing.T, body []byte) {
	t.Helper()
	text, err := schemas.File("integrity-webhook-v1.json")
	check(t, err)
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	check(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	check(t, compiler.AddResource("webhook.json", parsed))
	schema, err := compiler.Compile("webhook.json")
	check(t, err)
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	check(t, err)
	check(t, schema.Validate(instance))
}

// TestEventsAsInTheFeed: the three kinds of events arrive like in the feed, each once. Their type follows from the
// signed body as described in the guide: current is a registration, revoked a revocation, and superseded is one of two,
// which the feed event with that id distinguishes.
func TestEventsAsInTheFeed(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	onlyRevoked := receive(t, nil)
	v, _ := h.destination(onlyRevoked.URL)
	types := domain.MaskOf([]domain.EventType{domain.RecordRevoked})
	h.Must(t, &domain.UpdateWebhook{Origin: h.org.Origin(), Webhook: v.ID, Types: &types})
	h.worker()
	version := func(number int32) domain.PublicID {
		registered := h.Register(t, h.org, h.org.Declaration("a", number, strconv.Itoa(int(number))))
		h.Must(t, registered)
		return registered.Outcome.PublicID
	}
	second := version(2) // registered: current
	version(1)           // registered after a higher one: superseded
	third := version(3)  // registered: current; the second is superseded
	h.Must(t, h.Revoke(t, h.org, second))
	h.Must(t, h.Revoke(t, h.org, third))
	version(4) // registered: current; the revoked one is not superseded
	const all = 7
	h.inStatus(w.ID, all, projections.DeliveryDelivered)
	access := domain.Access{Organization: h.org.ID, Key: h.org.Key.ID}
	page, err := h.store.Changes(context.Background(), access, h.org.Company.Reference, query.AnyEpoch, 0, 100)
	check(t, err)
	byID := map[string]arrival{}
	for _, a := range r.got() {
		var body struct{ ID string }
		check(t, json.Unmarshal(a.body, &body))
		byID[body.ID] = a
	}
	ofStatus := map[string][]domain.EventType{}
	for _, e := range page.Events {
		var body struct {
			OccurredAt, PublicID, CompanyReference, Source, DocumentReference, RecordStatus string
			DocumentVersion, Version                                                        int
		}
		a := byID[e.ID.String()]
		check(t, json.Unmarshal(a.body, &body))
		if body.PublicID != e.PublicID.String() || body.DocumentVersion != int(e.Version) ||
			body.RecordStatus != string(e.Status) || body.Version != 1 ||
			body.Source != e.Source || body.DocumentReference != e.DocumentReference ||
			body.CompanyReference != h.org.Company.Reference ||
			a.header.Get("Service-Event-Type") != string(e.Type) {
			t.Errorf("feed %+v, delivery %s %v", e, a.body, a.header)
		}
		// The sequence in the header finds the event in the feed, with the id of the signed body.
		sequence, err := strconv.ParseInt(a.header.Get("Service-Event-Sequence"), 10, 64)
		check(t, err)
		found, err := h.store.Changes(context.Background(), access, body.CompanyReference, query.AnyEpoch, sequence-1, 1)
		check(t, err)
		if len(found.Events) != 1 || found.Events[0].ID != e.ID {
			t.Errorf("the event after %d is %v", sequence-1, found.Events)
		}
		if !slices.Contains(ofStatus[body.RecordStatus], e.Type) {
			ofStatus[body.RecordStatus] = append(ofStatus[body.RecordStatus], e.Type)
		}
	}
	if want := (map[string][]domain.EventType{
		"current": {domain.RecordRegistered}, "revoked": {domain.RecordRevoked},
		"superseded": {domain.RecordRegistered, domain.RecordSuperseded},
	}); !reflect.DeepEqual(ofStatus, want) {
		t.Errorf("types by recordStatus: %v", ofStatus)
	}
	if len(byID) != all || len(r.got()) != all || len(page.Events) != all {
		t.Errorf("%d deliveries of %d events", len(r.got()), len(page.Events))
	}
	h.inStatus(v.ID, 2, projections.DeliveryDelivered)
	for _, a := range onlyRevoked.got() {
		if a.header.Get("Service-Event-Type") != "integrity.revoked" {
			t.Errorf("a destination of one type: %v", a.header)
		}
	}
	h.Audit(t)
}

// TestFailedAttemptsFollowTheSchedule: every attempt sends the same bytes with a new signature, after the contract's
// waits. Then the delivery is exhausted and can be redelivered on request.
func TestFailedAttemptsFollowTheSchedule(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	h.stop()
	r := receive(t, answering(http.StatusInternalServerError))
	w, secret := h.destination(r.URL)
	h.worker()
	h.register(1)
	waits := []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
		20 * time.Hour, 24 * time.Hour,
	}
	for i, wait := range waits {
		var d query.Delivery
		h.eventually("an attempt is recorded", func() bool {
			list := h.deliveries(w.ID)
			d = list[0]
			return d.Attempts == i+1
		})
		if got := d.NextAttemptAt.Sub(*d.AttemptedAt); got < wait*89/100 || got > wait*111/100 ||
			d.Status != projections.DeliveryPending || d.Reason != "HTTP_STATUS" || *d.ResponseStatus != 500 {
			t.Errorf("attempt %d: next after %s, want %s: %+v", i+1, got, wait, d)
		}
		if i == 8 {
			r.set(answering(http.StatusBadGateway))
		}
		h.pass(d.NextAttemptAt.Sub(h.now()) + time.Millisecond)
	}
	d := h.inStatus(w.ID, 1, projections.DeliveryExhausted)[0]
	if got := r.got(); len(got) != 10 || d.Attempts != 10 || *d.ResponseStatus != 502 {
		t.Errorf("%d attempts, %+v", len(got), d)
	}
	signatures := map[string]bool{}
	for _, a := range r.got() {
		if !bytes.Equal(a.body, r.got()[0].body) {
			t.Errorf("other bytes: %s", a.body)
		}
		check(t, verify(a, secret))
		signatures[a.header.Get("Service-Signature")] = true
	}
	if len(signatures) != 10 {
		t.Errorf("%d signatures", len(signatures))
	}
	r.set(nil)
	again, err := h.store.Redeliver(context.Background(), h.org.ID, d.ID, h.now())
	check(t, err)
	if again.Status != projections.DeliveryPending || again.Attempts != 0 {
		t.Errorf("%+v", again)
	}
	h.wake.Load().Wake(1)
	h.inStatus(w.ID, 1, projections.DeliveryDelivered)
}

// TestRedeliveryDuringAnAttempt: a redelivery requested during the last attempt of a schedule is made, whatever the
// result of that attempt.
func TestRedeliveryDuringAnAttempt(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	begun := make(chan struct{})
	release := make(chan struct{})
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-release
		w.WriteHeader(http.StatusInternalServerError)
	})
	w, _ := h.destination(r.URL)
	h.register(1)
	_, err := h.Pool.Exec(
		context.Background(), "UPDATE webhook_deliveries SET attempts = 9 WHERE shard = $1", h.org.ID.Shard(),
	)
	check(t, err)
	stop := h.worker()
	<-begun
	r.set(nil)
	again, err := h.store.Redeliver(context.Background(), h.org.ID, h.deliveries(w.ID)[0].ID, h.now())
	check(t, err)
	if again.Status != projections.DeliveryPending || again.Attempts != 0 {
		t.Errorf("%+v", again)
	}
	close(release)
	stop()
	h.worker()
	if d := h.inStatus(w.ID, 1, projections.DeliveryDelivered)[0]; d.Attempts != 1 || len(r.got()) != 2 {
		t.Errorf("%d arrivals, %+v", len(r.got()), d)
	}
}

// TestAnswersAreKept: the answer to the last attempt is kept, at most its first kilobyte, and the bytes that were sent
// can be read again.
func TestAnswersAreKept(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	h.stop()
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(bytes.Repeat([]byte{0xff, 0, '<'}, 1000))
	})
	w, _ := h.destination(r.URL)
	other, _ := h.destination("https://receiver.example/")
	h.authorize(other.ID, false)
	h.worker()
	h.register(1)
	after := func(attempts int) query.SentDelivery {
		t.Helper()
		h.eventually("an attempt", func() bool {
			list := h.deliveries(w.ID)
			return len(list) == 1 && list[0].Attempts == attempts
		})
		sent, err := h.store.SentDelivery(t.Context(), h.org.ID, w.ID, h.deliveries(w.ID)[0].ID)
		check(t, err)
		if sent.TookMS == nil || !bytes.Equal(sent.Body, r.got()[0].body) {
			t.Errorf("after %v ms, %s was sent", sent.TookMS, sent.Body)
		}
		return sent
	}
	first := after(1)
	if len(first.Answer) != 1024 || first.Answer[2] != '<' || *first.ResponseStatus != http.StatusTeapot {
		t.Errorf("the answer is %d, %d bytes", *first.ResponseStatus, len(first.Answer))
	}
	r.set(nil)
	h.pass(10 * time.Second)
	if last := after(2); last.Answer == nil || len(last.Answer) > 0 || last.Status != projections.DeliveryDelivered {
		t.Errorf("after an empty answer: %+v", last)
	}
	if _, err := h.store.SentDelivery(t.Context(), h.org.ID, other.ID, first.ID); err == nil {
		t.Error("a delivery is found under another destination")
	}
	if _, err := h.store.SentDelivery(
		t.Context(), h.Organization(t, h.org.ID.Shard(), domain.InternalPlan).ID, w.ID, first.ID,
	); err == nil {
		t.Error("a delivery is found by another organization")
	}
}

func TestRetryAfterDelaysTheNextAttempt(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	w, _ := h.destination(r.URL)
	h.worker()
	h.register(1)
	h.eventually("an attempt is recorded", func() bool { return h.deliveries(w.ID)[0].Attempts == 1 })
	if d := h.deliveries(w.ID)[0]; d.NextAttemptAt.Sub(*d.AttemptedAt) < 2*time.Hour-time.Second {
		t.Errorf("%s", d.NextAttemptAt.Sub(*d.AttemptedAt))
	}
	r.set(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "9999999999")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	h.pass(2*time.Hour + time.Minute)
	h.eventually("another attempt is recorded", func() bool { return h.deliveries(w.ID)[0].Attempts == 2 })
	if d := h.deliveries(w.ID)[0]; d.NextAttemptAt.Sub(*d.AttemptedAt) > 24*time.Hour+time.Minute {
		t.Errorf("%s", d.NextAttemptAt.Sub(*d.AttemptedAt))
	}
}

// TestUnauthorizedDeliveryIsNotSent: a delivery that is no longer authorized is not sent, and its row records the
// reason.
func TestUnauthorizedDeliveryIsNotSent(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := receive(t, nil)
	taken, _ := h.destination(r.URL + "/taken")
	disabled, _ := h.destination(r.URL + "/disabled")
	deleted, _ := h.destination(r.URL + "/deleted")
	erased, _ := h.destination(r.URL + "/erased")
	h.register(2)
	h.authorize(taken.ID, false)
	off := domain.WebhookDisabled
	h.Must(t, &domain.UpdateWebhook{Origin: h.org.Origin(), Webhook: disabled.ID, Status: &off})
	h.Must(t, &domain.DeleteWebhook{Origin: h.org.Origin(), Webhook: deleted.ID})
	_, err := h.Pool.Exec(
		context.Background(), "UPDATE texts SET body = NULL WHERE shard = $1 AND body LIKE '%/erased'", h.org.ID.Shard(),
	)
	check(t, err)
	h.worker()
	for id, reason := range map[domain.WebhookID]string{
		taken.ID: "NOT_AUTHORIZED", disabled.ID: "DISABLED", erased.ID: "URL_ERASED",
	} {
		for _, d := range h.inStatus(id, 2, projections.DeliveryCancelled) {
			if d.Reason != reason || d.Attempts != 0 || d.AttemptedAt != nil {
				t.Errorf("%+v, want %s", d, reason)
			}
		}
	}
	h.eventually("nothing is queued", func() bool { return h.count("webhook_deliveries") == 0 })
	if got := r.got(); len(got) != 0 {
		t.Errorf("%d deliveries were sent", len(got))
	}
	if n := h.count("webhook_log WHERE reason = 'DELETED'"); n != 2 {
		t.Errorf("%d deliveries of the deleted destination", n)
	}
	h.Audit(t)
}

func (h *house) count(from string) (n int) {
	h.t.Helper()
	check(h.t, h.Pool.QueryRow(context.Background(), "SELECT count(*) FROM "+from).Scan(&n))
	return n
}

// TestAttemptsStopAtTheAllowance: several workers use a month's allowance up to the last attempt. Registrations
// continue, and a replay in the next month sends the suppressed deliveries.
func TestAttemptsStopAtTheAllowance(t *testing.T) {
	const limit = 7
	allowed := int64(limit)
	plans := domain.Plans{"gratis": {PerMinute: 1, WebhookAttemptsPerMonth: &allowed}}
	h := build(t, plans, "gratis")
	h.stop()
	// Start a minute before the shortest month, so that nothing is pruned within the three months: a worker may prune
	// deliveries older than 30 days at any moment.
	h.pass(time.Date(h.now().Year()+1, time.February, 1, 0, 0, 0, 0, time.UTC).Sub(h.now()) - time.Minute)
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	first, second := h.worker(), h.worker()
	for range 4 {
		h.register(5)
	}
	h.inStatus(w.ID, 20-limit, projections.DeliverySuppressed)
	h.inStatus(w.ID, limit, projections.DeliveryDelivered)
	if len(h.feed()) != 20 || len(r.got()) != limit {
		t.Errorf("%d events, %d arrived", len(h.feed()), len(r.got()))
	}
	for _, d := range h.inStatus(w.ID, 20-limit, projections.DeliverySuppressed) {
		if d.Reason != "ALLOWANCE_EXHAUSTED" || d.Attempts != 0 {
			t.Errorf("%+v", d)
		}
	}
	// The MeterWarner finds the reached thresholds of the right allowance.
	if n := h.count(
		"webhook_usage WHERE used = 7 AND reached_80 IS NOT NULL AND reached_100 IS NOT NULL AND limit_80 = 7 AND " +
			"limit_100 = 7",
	); n != 1 {
		t.Error("that the allowance was reached is not noted")
	}
	first() // no worker sends the replayed deliveries before the next replay counts them
	second()
	replay := func(r query.Replay, want int) {
		t.Helper()
		done, err := h.store.ReplayWebhook(context.Background(), h.org.ID, w.ID, r, h.now())
		check(t, err)
		if done.Count != want || done.Next != nil {
			t.Errorf("%+v, want %d", done, want)
		}
	}
	h.pass(domain.PeriodOf(h.now()).End().Sub(h.now()) + time.Second)
	replay(query.Replay{From: 1, DryRun: true}, 20-limit)
	if h.count("webhook_deliveries") != 0 {
		t.Error("a dry run queued something")
	}
	other := "other"
	var refused *domain.Error
	if _, err := h.store.ReplayWebhook(
		context.Background(), h.org.ID, w.ID, query.Replay{From: 1, Company: &other}, h.now(),
	); !errors.As(err, &refused) || refused.Code != domain.InvalidData {
		t.Errorf("a company without authorization: %v", err)
	}
	replay(query.Replay{From: 1, To: 1}, 0)
	replay(query.Replay{From: 1, Company: &h.org.Company.Reference}, 20-limit)
	replay(query.Replay{From: 1}, 0) // all are pending or delivered
	h.worker()
	h.inStatus(w.ID, 2*limit, projections.DeliveryDelivered)
	h.inStatus(w.ID, 20-2*limit, projections.DeliverySuppressed)
	h.pass(domain.PeriodOf(h.now()).End().Sub(h.now()) + time.Second)
	replay(query.Replay{From: 1}, 20-2*limit)
	h.wake.Load().Wake(1)
	h.inStatus(w.ID, 20, projections.DeliveryDelivered)
	ids := map[string]int{}
	for _, a := range r.got() {
		var body struct{ ID string }
		check(t, json.Unmarshal(a.body, &body))
		ids[body.ID]++
	}
	for id := range h.feed() {
		if ids[id] != 1 {
			t.Errorf("%s arrived %d times", id, ids[id])
		}
	}
	if n := h.count("webhook_usage WHERE used > 7"); n != 0 {
		t.Errorf("%d months are over their allowance", n)
	}
	h.Audit(t)
}

// TestTestsTakeFromTheAllowance: test deliveries count towards the month's allowance like others.
func TestTestsTakeFromTheAllowance(t *testing.T) {
	const limit = 2
	allowed := int64(limit)
	h := build(t, domain.Plans{"gratis": {PerMinute: 1, WebhookAttemptsPerMonth: &allowed}}, "gratis")
	h.stop()
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	for range limit + 1 {
		delivery := domain.NewID[domain.DeliveryID](h.now())
		event := domain.NewID[domain.EventID](h.now())
		_, err := h.store.TestDelivery(context.Background(), h.org.ID, w.ID, delivery, event, h.now())
		check(t, err)
	}
	h.worker()
	h.inStatus(w.ID, limit, projections.DeliveryDelivered)
	if d := h.inStatus(w.ID, 1, projections.DeliverySuppressed)[0]; d.Type != projections.WebhookTest ||
		len(r.got()) != limit {
		t.Errorf("%d arrived, %+v", len(r.got()), d)
	}
}

// TestGoneAndFailingDestinationsAreDisabled: 410 disables a destination at once, and so do five days of only failures.
// The owners get a mail. A success in between restarts the five days.
func TestGoneAndFailingDestinationsAreDisabled(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	gone := receive(t, answering(http.StatusGone))
	failing := receive(t, answering(http.StatusInternalServerError))
	g, _ := h.destination(gone.URL)
	f, _ := h.destination(failing.URL)
	h.worker()
	h.register(1)
	h.eventually("410 disables", func() bool { return h.status(g.ID) == "disabled gone" })
	d := h.inStatus(g.ID, 1, projections.DeliveryCancelled)[0]
	if *d.ResponseStatus != http.StatusGone || h.count("mails WHERE reason = 'gone'") != 1 {
		t.Errorf("%+v", d)
	}
	h.eventually("a failure is recorded", func() bool {
		return h.count("webhook_health WHERE failing_since IS NOT NULL") == 2
	})
	h.pass(4 * 24 * time.Hour)
	failing.set(nil)
	h.register(1)
	h.eventually("success is recorded", func() bool {
		return h.count("webhook_health WHERE failing_since IS NOT NULL") == 1
	})
	failing.set(answering(http.StatusInternalServerError))
	h.register(1)
	h.eventually("it fails again", func() bool { return h.count("webhook_health WHERE failing_since IS NOT NULL") == 2 })
	h.pass(4*24*time.Hour + 23*time.Hour)
	sent := len(failing.got())
	h.register(1)
	h.eventually("it fails again", func() bool { return len(failing.got()) > sent })
	if s := h.status(f.ID); s != "active " {
		t.Errorf("disabled too early: %s", s)
	}
	h.pass(2 * time.Hour)
	h.register(1)
	h.eventually("five days disable", func() bool { return h.status(f.ID) == "disabled failing" })
	if h.count("mails WHERE reason = 'failing'") != 1 {
		t.Error("no mail is queued")
	}
	// A retry may have disabled it before the last registration.
	if !slices.ContainsFunc(h.Audit(t)[1], func(e domain.Event) bool {
		return e.Type == domain.WebhookAutoDisabled && e.Actor == domain.SystemActor
	}) {
		t.Error("no event of the service says so")
	}
}

func (h *house) status(id domain.WebhookID) string {
	h.t.Helper()
	w, err := h.store.Webhook(context.Background(), h.org.ID, id)
	check(h.t, err)
	reason := ""
	if w.DisabledReason != nil {
		reason = string(*w.DisabledReason)
	}
	return string(w.Status) + " " + reason
}

// TestBothSecretsSignDuringARotation: during a rotation both secrets sign, afterwards only the new one.
func TestBothSecretsSignDuringARotation(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := receive(t, nil)
	w, former := h.destination(r.URL)
	rotate, secret := domain.NewRotateSecret(
		domain.RotateSecret{Origin: h.org.Origin(), Webhook: w.ID, Overlap: time.Hour}, h.key,
	)
	h.Must(t, rotate)
	h.worker()
	h.register(1)
	h.eventually("it arrives", func() bool { return len(r.got()) == 1 })
	a := r.got()[0]
	for _, s := range []string{former, secret} {
		check(t, verify(a, s))
	}
	h.inStatus(w.ID, 1, projections.DeliveryDelivered) // otherwise its lease would expire in the next hour, and it would be sent again
	h.pass(time.Hour + time.Minute)
	h.register(1)
	h.eventually("it arrives", func() bool { return len(r.got()) == 2 })
	a = r.got()[1]
	signature := a.header.Get("Service-Signature")
	if strings.Count(signature, "v1=") != 1 || verify(a, secret) != nil {
		t.Errorf("%s", signature)
	}
}

// TestDeliveriesOutlastALostSecretKey: without the right key nothing is sent. Queued deliveries are sent once the key
// is set.
func TestDeliveriesOutlastALostSecretKey(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	right := h.key
	h.key, _ = domain.NewSecretKey()
	stop := h.worker()
	h.register(1)
	h.eventually("the failure is reported", func() bool { return h.deliveries(w.ID)[0].Reason == "SECRET_UNREADABLE" })
	stop()
	h.key = right
	h.worker()
	h.pass(time.Minute)
	h.inStatus(w.ID, 1, projections.DeliveryDelivered)
	if len(r.got()) != 1 {
		t.Errorf("%d arrived", len(r.got()))
	}
}

func TestEndedDeliveriesAreForgotten(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	stop := h.worker()
	h.register(3)
	h.inStatus(w.ID, 3, projections.DeliveryDelivered)
	h.pass(29 * 24 * time.Hour)
	h.register(1)
	h.inStatus(w.ID, 4, projections.DeliveryDelivered)
	stop()
	h.pass(2 * 24 * time.Hour)
	h.worker() // checks when it starts
	h.inStatus(w.ID, 1, projections.DeliveryDelivered)
}

// TestCommitSaysWhatIsQueued: workers are woken only after groups that have queued a delivery.
func TestCommitSaysWhatIsQueued(t *testing.T) {
	commits := make(chan eventstore.Commit, 10)
	h := build(t, nil, domain.InternalPlan)
	h.Ledger.Ledger = h.Process(t, h.URL, func(c *eventstore.Config) {
		c.Clock, c.Committed = ledgertest.Simulated(h.now), func(c eventstore.Commit) { commits <- c }
	})
	wants := func(what string, queued bool) {
		t.Helper()
		if c := <-commits; c.Shard != h.org.ID.Shard() || c.Queued != queued {
			t.Errorf("%s: %+v", what, c)
		}
	}
	h.register(1)
	wants("no destination", false)
	create, _ := domain.NewCreateWebhook(
		domain.CreateWebhook{
			Origin: h.org.Origin(), URL: "https://example.com", Types: domain.MaskOf([]domain.EventType{domain.RecordRevoked}),
		},
		h.key, h.now(),
	)
	h.Must(t, create)
	wants("a destination", false)
	h.authorize(create.Outcome.ID, true)
	wants("an authorization", false)
	h.register(1)
	wants("of another type", false)
	h.destination("https://example.org")
	wants("another destination", false)
	wants("its authorization", false)
	h.register(1)
	wants("registrations", true)
}

// TestAttemptsWithoutALimitAreCounted: attempts are counted even on a plan without a limit.
func TestAttemptsWithoutALimitAreCounted(t *testing.T) {
	h := build(t, domain.Plans{"gratis": {PerMinute: 1}}, "gratis")
	h.stop()
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	end := h.worker()
	h.register(3)
	h.inStatus(w.ID, 3, projections.DeliveryDelivered)
	end()
	if n := h.count("webhook_usage WHERE used = 3 AND reached_80 IS NULL"); n != 1 {
		t.Error("three attempts are not counted")
	}
}
