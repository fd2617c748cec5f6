package handlers_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/handlers"
	"integrityledger/projections/ledgertest"
)

// While clocks disagree, nothing is written or signed, and /readyz says so. Reads continue.
func TestClocksDisagree(t *testing.T) {
	var mine, theirs atomic.Int64
	clock := eventstore.NewClock(eventstore.ClockConfig{
		Now:      func() time.Time { return time.Now().Round(0).Add(time.Duration(mine.Load())) },
		Database: func(at time.Time) time.Time { return at.Add(time.Duration(theirs.Load())) },
	})
	s := open(t, options{clock: clock, config: func(c *handlers.Config) { c.Now, c.Ready = clock.Now, c.Ledger.Ready }})
	id := s.registered("a", 1, "one")
	evidencePath := integrity + "/records/" + id + "/evidence"
	signs := func() {
		t.Helper()
		if a := s.get(evidencePath); a.status != http.StatusOK {
			t.Errorf("evidence: %d %s", a.status, a.body)
		}
	}
	signs()
	for name, set := range map[string]*atomic.Int64{"this machine's": &mine, "the database's": &theirs} {
		set.Store(int64(10 * 24 * time.Hour))
		sequence, _ := s.head()
		for _, a := range []answer{
			s.post(integrity+"/records", declaration("b", 1, "two")),
			s.post(integrity+"/records/"+id+"/revoke", nil),
			s.post(integrity+"/companies", body{"reference": "another"}),
		} {
			a.refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
			if !strings.Contains(string(a.body), "clocks of the service disagree") || a.header.Get("Retry-After") == "" {
				t.Errorf("%s clock ahead: %s %v", name, a.body, a.header)
			}
		}
		s.public("/readyz").refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
		for _, path := range []string{evidencePath, evidencePath + "?at=" + sequence} {
			s.get(path).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
		}
		s.get(integrity + "/records/" + id).is(http.StatusOK)
		if a := s.public("/api/public/integrity/" + id + "/receipt"); a.status != http.StatusOK {
			t.Errorf("receipt: %d %s", a.status, a.body)
		}
		if now, _ := s.head(); now != sequence {
			t.Errorf("%s clock ahead: the sequence went from %s to %s", name, sequence, now)
		}
		set.Store(0)
		s.public("/readyz").is(http.StatusOK)
		signs()
	}
	s.registered("b", 1, "two")
}

// A version that a wrong clock dated in the future counts as of the reset, in sequence order.
func TestStateAcrossReset(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	first, firstAt := s.head()
	s.skew.Add(int64(time.Hour))
	future := int64(40 * 24 * time.Hour)
	s.skew.Add(future)
	s.registered("a", 2, "two")
	for i := range 30 { // enough for a binary search to reach them
		s.registered("b", i+1, "two")
	}
	superseded, poisonedAt := s.head()
	s.skew.Add(-future)
	// In a program that starts now the clocks agree, but the head does not.
	s.clock = ledgertest.Simulated(s.Now)
	s.process(options{plans: s.Plans})
	s.post(integrity+"/records", declaration("a", 3, "three")).refuses(
		http.StatusServiceUnavailable, domain.TemporarilyUnavailable,
	)
	s.get(integrity+"/records/"+id+"/evidence?at="+superseded).refuses(
		http.StatusServiceUnavailable, domain.TemporarilyUnavailable,
	)

	reset, err := s.ResetClock(context.Background(), s.org.ID.Shard(), "test")
	check(t, err)
	if !reset.From.Equal(poisonedAt) {
		t.Errorf("from %s, the last event was of %s", reset.From, poisonedAt)
	}
	s.skew.Add(int64(time.Hour))
	s.post(integrity+"/records/"+s.registered("a", 3, "three")+"/revoke", nil).is(http.StatusOK)
	s.skew.Add(int64(time.Hour))
	for at, want := range map[string]evidence.Status{
		first:                        evidence.Current,
		superseded:                   evidence.Superseded,
		evidence.FormatTime(firstAt): evidence.Current,
		evidence.FormatTime(reset.To.Add(-time.Microsecond)): evidence.Current,
		evidence.FormatTime(reset.To):                        evidence.Superseded,
		evidence.FormatTime(reset.To.Add(time.Minute)):       evidence.Superseded,
	} {
		if f := s.asOf(id, at); f.StatusAsOf != evidence.Valid || *f.AsOfStatus != want {
			t.Errorf("as of %s: %v %v, want %s", at, f.StatusAsOf, f.AsOfStatus, want)
		}
	}
	actions := s.get(certificationAction + "/audit-events?action=clock.reset").is(http.StatusOK)["events"].([]any)
	if len(actions) != 1 {
		t.Errorf("%d resets in the history", len(actions))
	}
	s.Audit(t)
}

// If the database is unavailable, evidence cannot be dated and the answer is a retryable 503.
func TestClockCannotBeAsked(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	pool, err := cluster.At(s.URL).CommitPool(context.Background(), 1)
	check(t, err)
	s.clock = ledgertest.Simulated(s.Now)
	s.process(options{plans: s.Plans, ledger: func(c *eventstore.Config) { c.Pool = pool }})
	pool.Close()
	s.get(integrity+"/records/"+id+"/evidence").refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
}
