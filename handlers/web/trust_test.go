package web

import (
	"slices"
	"strings"
	"testing"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

func newTrustPage(t *testing.T, language evidence.Language, view wire.Independence) trustPage {
	t.Helper()
	s, err := New(Config{BaseURL: "https://ledger.example"})
	if err != nil {
		t.Fatal(err)
	}
	view.State, view.Checkpoint = wire.LogPublished, &wire.IndependentCheckpoint{
		TreeSize: 100, SignedAt: "2026-11-29T12:00:00Z",
	}
	return trustPage{s.catalogue(language, Record).Trust, view, language, s.BaseURL, ""}
}

// TestTrustOfTwoAuthorities: each token has its own size and authority. An old token vouches for no newer checkpoint.
func TestTrustOfTwoAuthorities(t *testing.T) {
	old := wire.IndependentAuthority{
		Name: "A", Stamp: &wire.NewestStamp{TreeSize: 10, ExistedBefore: "2025-01-01T00:00:00Z"},
	}
	newest := wire.IndependentAuthority{
		Name: "B", Stamp: &wire.NewestStamp{TreeSize: 100, ExistedBefore: "2026-11-29T12:00:05Z", Newest: true},
	}
	for language, words := range map[evidence.Language]struct{ a, b, none, alone string }{
		evidence.English: {
			"The first 10 entries of the log existed before 1 January 2025 at 00:00:00 UTC according to A.",
			"The first 100 entries of the log existed before 29 November 2026 at 12:00:05 UTC according to B.",
			"This service has no valid token of it over the newest checkpoint.",
			"Only this service vouches for its newest checkpoint.",
		},
		evidence.Spanish: {
			"Las primeras 10 entradas del registro de transparencia existían antes del 1 de enero de 2025, 00:00:00 UTC, " +
				"según A.",
			"Las primeras 100 entradas del registro de transparencia existían antes del 29 de noviembre de 2026, " +
				"12:00:05 UTC, según B.",
			"Este servicio no tiene ningún sello válido suyo del punto de control más reciente.",
			"Solo este servicio respalda su punto de control más reciente.",
		},
	} {
		both := newTrustPage(t, language, wire.Independence{TimestampAuthorities: []wire.IndependentAuthority{old, newest}})
		got := both.summary().Paragraphs
		if !slices.Contains(got, words.a) || !slices.Contains(got, words.b) || slices.Contains(got, words.alone) {
			t.Errorf("the summary says %q", got)
		}
		rows := both.authorities().Rows
		if rows[0].Lines[0].Text != words.a || rows[0].Lines[1].Text != words.none || rows[1].Lines[0].Text != words.b ||
			slices.ContainsFunc(rows[1].Lines, func(l trustLine) bool { return l.Text == words.none }) {
			t.Errorf("the rows say %+v", rows)
		}
		one := newTrustPage(t, language, wire.Independence{TimestampAuthorities: []wire.IndependentAuthority{old}})
		if got := one.summary().Paragraphs; got[0] != words.alone || !slices.Contains(got, words.a) {
			t.Errorf("with an old token alone the summary says %q", got)
		}
	}
}

// TestTrustCountsWitnesses: only witnesses that are asked, pinned and not the installation itself count.
func TestTrustCountsWitnesses(t *testing.T) {
	newest := &wire.Cosignature{TreeSize: 100, Newest: true, CosignedAt: "2026-11-29T12:00:00Z"}
	rest := []wire.IndependentWitness{
		{Name: "own", Configured: true, Pinned: true, Own: true, Cosignature: newest},
		{Name: "removed", Pinned: true, Cosignature: newest},
		{Name: "unpinned", Configured: true, Cosignature: newest},
	}
	none := newTrustPage(t, evidence.English, wire.Independence{Witnesses: rest})
	if got := none.summary().Paragraphs; got[0] != none.Alone || got[1] != none.NoneCounts {
		t.Errorf("the summary says %q", got)
	}
	if command := none.witnesses().Command; strings.Contains(command, "--require-witnesses") {
		t.Errorf("the command requires witnesses: %s", command)
	}
	one := newTrustPage(t, evidence.English, wire.Independence{Witnesses: append(rest,
		wire.IndependentWitness{Name: "counts", Configured: true, Pinned: true, Cosignature: newest})})
	if got := one.summary().Paragraphs; got[0] != "Of the witnesses that count, 1 of 1 cosigned the newest checkpoint." {
		t.Errorf("the summary says %q", got)
	}
	if command := one.witnesses().Command; !strings.HasSuffix(command, " --require-witnesses 1") {
		t.Errorf("the command is %s", command)
	}
}
