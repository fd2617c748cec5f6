package webhooks_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
	"integrityledger/projections/queue"
)

// limited builds a house whose organization has a number of attempts per month.
func limited(t *testing.T, attempts int64) *house {
	t.Helper()
	h := build(t, domain.Plans{"gratis": {PerMinute: 1, WebhookAttemptsPerMonth: &attempts}}, "gratis")
	h.stop()
	return h
}

// warnings checks the meters and lists the organization's warnings. Commands without a warning fail the test.
func (h *house) warnings() (list []string) {
	h.t.Helper()
	given := func() (list []string) {
		for _, e := range h.Events(h.t, h.org.ID.Shard()) {
			if b, ok := e.Body.(*domain.QuotaWarningReachedBody); ok && e.Organization == h.org.ID {
				list = append(list, fmt.Sprintf("%s %d %d/%d", b.Allowance, b.Percent, b.Used, b.Limit))
			}
		}
		return list
	}
	warner := queue.NewMeterWarner(queue.MeterWarner{
		Pool: h.Routed(h.t), Shards: h.Installation.Shards, Plans: h.plans, Now: h.now, Log: slog.New(slog.DiscardHandler),
		Do: func(ctx context.Context, c domain.Command) error {
			before := len(given())
			err := h.Do(ctx, c)
			if len(given()) == before {
				h.t.Error("a command warned of nothing")
			}
			return err
		},
	})
	check(h.t, warner.Look(context.Background()))
	return given()
}

// TestNoAttemptsAtAll: a plan without webhook attempts sends nothing, and there is no threshold to warn about.
func TestNoAttemptsAtAll(t *testing.T) {
	h := limited(t, 0)
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	end := h.worker()
	h.register(3)
	h.inStatus(w.ID, 3, projections.DeliverySuppressed)
	end()
	if n := h.count(
		"webhook_usage WHERE used <> 0 OR coalesce(reached_80, reached_95, reached_100) IS NOT NULL",
	); n != 0 || len(r.got()) != 0 {
		t.Errorf("%d were sent, and %d months have used some", len(r.got()), n)
	}
	if got := h.warnings(); got != nil {
		t.Errorf("warnings %s", got)
	}
}

// TestReleasedAttemptsAreNoWarnings: attempts that were charged but not made cause no warning.
func TestReleasedAttemptsAreNoWarnings(t *testing.T) {
	const events, made = 12, 8
	for limit, want := range map[int64]string{
		events: "[]",
		10:     "[webhookAttempts 80 8/10]",
	} {
		h := limited(t, limit)
		release := make(chan struct{})
		r := receive(t, func(http.ResponseWriter, *http.Request) { <-release })
		w, _ := h.destination(r.URL)
		h.register(events)
		end := h.worker()
		h.eventually("all are charged", func() bool {
			return h.count(fmt.Sprintf("webhook_usage WHERE used = %d", min(limit, events))) == 1
		})
		h.eventually("the first are under way", func() bool { return len(r.got()) == made })
		h.authorize(w.ID, false)
		h.pass(3 * time.Second) // waiting ones are released
		close(release)
		h.inStatus(w.ID, made, projections.DeliveryDelivered)
		h.inStatus(w.ID, int(min(limit, events))-made, projections.DeliveryCancelled)
		end()
		if n := h.count("webhook_usage WHERE used = 8"); n != 1 {
			t.Errorf("limit %d: not charged for what was made", limit)
		}
		if got := fmt.Sprint(h.warnings()); got != want {
			t.Errorf("limit %d: warnings %s, want %s", limit, got, want)
		}
	}
}

// TestUsedAttemptsNeverExceedTheAllowance: no session ever sees more used attempts than allowed, not even while a
// worker determines which deliveries are too many. Otherwise a permanent warning could contain the wrong number.
func TestUsedAttemptsNeverExceedTheAllowance(t *testing.T) {
	pgtest.OneServer(t, "a trigger of its own")
	h := limited(t, 7)
	pgtest.Exec(t, h.URL, `CREATE TABLE committed (used bigint); GRANT SELECT ON committed TO PUBLIC;
		CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$ BEGIN
			INSERT INTO committed SELECT u.used FROM webhook_usage u
				WHERE u.shard = NEW.shard AND u.organization_id = NEW.organization_id AND u.period = NEW.period;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER see AFTER INSERT OR UPDATE ON webhook_usage DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION see()`)
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	h.register(20)
	end := h.worker()
	h.inStatus(w.ID, 7, projections.DeliveryDelivered)
	h.inStatus(w.ID, 13, projections.DeliverySuppressed)
	end()
	if seen, most := h.count("committed"), h.count("committed WHERE used > 7"); seen == 0 || most != 0 {
		t.Errorf("%d of %d states have more than the allowance", most, seen)
	}
	if got := fmt.Sprint(h.warnings()); got != "[webhookAttempts 80 7/7 webhookAttempts 95 7/7 webhookAttempts 100 7/7]" {
		t.Errorf("warnings %s", got)
	}
}
