package web

import (
	"bytes"
	"testing"
	"time"

	"integrityledger/domain/evidence"
)

func report(l evidence.Language) Report {
	const id = "k3v7q2mzt5h4nw6cjd2ray3xpa"
	at := time.Date(2026, 11, 20, 10, 0, 1, 0, time.UTC)
	return Report{
		Language: l, PublicID: id, URL: "https://ledger.example/integrity/" + id, MadeAt: at, State: "current",
		Record:   evidence.RecordPayload{PublicID: id, MimeType: "application/pdf", GeneratedAt: "2026-11-20T09:59:58Z", ReceivedAt: at},
		Vouching: Vouching{Known: true},
		Files:    []evidence.ReportFile{{Name: "integrity-receipt-k3.json", Content: []byte("{}")}, {Name: "integrity-trusted-keys.json", Content: []byte("{}")}},
	}
}

func BenchmarkReport(b *testing.B) {
	s, err := New(Config{BaseURL: "https://ledger.example"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Report(report(evidence.English)); err != nil {
			b.Fatal(err)
		}
	}
}

// The same content makes the same bytes, and letters that the fonts lack are replaced.
func TestReport(t *testing.T) {
	s, err := New(Config{
		BaseURL: "https://ledger.example", Relationship: map[evidence.Language]string{evidence.English: "运营商 €uro “quoted”"},
	})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Report(report(evidence.English))
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if again, err := s.Report(report(evidence.English)); err != nil || !bytes.Equal(again, first) {
			t.Fatal(err, "other bytes")
		}
	}
	if got, want := printable("运 €uro\n “quoted” ñ…"), "? €uro “quoted” ñ…"; got != want {
		t.Errorf("printable: %q", got)
	}
}
