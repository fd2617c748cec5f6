package domain

import (
	"crypto/rand"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestShare(t *testing.T) {
	for _, c := range []struct {
		limit   int64
		percent int
		want    int64
	}{
		{1000, 80, 800}, {1000, 95, 950}, {1000, 100, 1000}, {3, 80, 3}, {1, 80, 1}, {10, 95, 10}, {99, 80, 80}, {101, 95, 96},
		{math.MaxInt64, 100, math.MaxInt64}, {math.MaxInt64, 80, 7378697629483820646},
	} {
		if got := share(c.limit, c.percent); got != c.want {
			t.Errorf("%d %% of %d: %d, want %d", c.percent, c.limit, got, c.want)
		}
	}
}

// warnings lists the warnings among events as percent@period.
func warnings(events []Event) (list []string) {
	for _, e := range events {
		if w, ok := e.Body.(*QuotaWarned); ok {
			list = append(list, fmt.Sprintf("%d@%s", w.Percent, w.Period))
		}
	}
	return list
}

func (w *world) wantWarnings(what, want string) {
	w.t.Helper()
	if got := fmt.Sprint(warnings(w.events)); got != want {
		w.t.Fatalf("%s: warnings %s, want %s", what, got, want)
	}
}

func (w *world) plan(name string, internal bool) {
	w.t.Helper()
	c, err := NewChangePlan(w.cause, name, internal, nil, w.now, rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	if code := w.execute(c); code != "" {
		w.t.Fatal(code)
	}
}

func TestWarnings(t *testing.T) {
	signer := testSigner(t)
	rapid.Check(t, func(t *rapid.T) { // once would do; the world wants its T
		w := newWorld(t, signer, 10)
		large, none, zero := int64(1000), (*int64)(nil), int64(0)
		w.state.plans["pro"] = Plan{PerMinute: 1, VersionsPerMonth: &large}
		w.state.plans["free"] = Plan{PerMinute: 1, VersionsPerMonth: none}
		w.state.plans["none"] = Plan{PerMinute: 1, VersionsPerMonth: &zero}
		version := int32(0)
		register := func(n int) {
			for range n {
				version++
				if _, code := w.register("d", version, fmt.Sprint(version), nil); code != "" {
					t.Fatalf("version %d: %s", version, code)
				}
			}
		}
		register(7)
		w.wantWarnings("7 of 10", "[]")
		register(1)
		w.wantWarnings("8 of 10", "[80@2026-11]")
		if _, code := w.register("d", 1, "1", nil); code != "" { // a replay uses nothing and warns of nothing
			t.Fatal(code)
		}
		register(1)
		w.wantWarnings("9 of 10", "[80@2026-11]")
		// More in the middle of the month: what was given stays given.
		w.plan("pro", false)
		register(20)
		w.wantWarnings("29 of 1000", "[80@2026-11]")
		// Back again: more is used than the plan allows, nothing is reset, and nothing can be registered that would tell.
		w.plan("gratis", false)
		w.wantWarnings("29 of 10", "[80@2026-11 95@2026-11 100@2026-11]")
		if _, code := w.register("d", 1000, "x", nil); code != RegistrationQuotaExhausted {
			t.Fatalf("29 of 10: %s", code)
		}
		w.plan("pro", false)
		w.plan("gratis", false)
		w.wantWarnings("to and fro", "[80@2026-11 95@2026-11 100@2026-11]")

		w.now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
		register(9)
		w.wantWarnings("a new month", "[80@2026-11 95@2026-11 100@2026-11 80@2026-12]")
		for _, plan := range []string{"free", "none"} {
			w.plan(plan, false)
		}
		w.plan("gratis", true)
		register(5)
		w.wantWarnings("no quota", "[80@2026-11 95@2026-11 100@2026-11 80@2026-12]")
		w.plan("gratis", false)
		w.wantWarnings("a quota again", "[80@2026-11 95@2026-11 100@2026-11 80@2026-12 95@2026-12 100@2026-12]")

		// A replay of the log knows the same.
		again := NewState(w.state.plans)
		for i := range w.events {
			if err := again.Apply(&w.events[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i, at := range again.Organization(w.cause.Organization).Warned.ReachedAt {
			if at == nil || !at.Equal(*w.state.Organization(w.cause.Organization).Warned.ReachedAt[i]) {
				t.Fatalf("warning %d after a replay: %v", i, at)
			}
		}
	})
}
