package evidence

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// reported returns the files of the fixture's report: the organization's, or the public one.
func (f stampFixture) reported(t testing.TB, private bool) []ReportFile {
	t.Helper()
	e := f.envelope()
	i := f.goodInclusion(t)
	e.Inclusion = &i
	alpha := stampToken("Alpha", f.alpha.token(t, f.stamped(t, 5).Checkpoint), goodGenTime)
	beta := stampToken("Beta", f.beta.token(t, f.stamped(t, 6).Checkpoint), goodGenTime)
	e.Timestamps = []Timestamp{f.stamped(t, 5, alpha), f.stamped(t, 6, beta)}
	if !private {
		e.References, e.StatusObservation = nil, nil
	}
	c := ReportContent{
		Private: private, Proof: e.AppendProof(nil), Proven: e, Timestamps: e.Timestamps, Trusted: f.trust,
		Published: must(f.trust.Marshal()),
	}
	if c.Evidence = marshal(t, e); !private {
		c.Evidence = marshal(t, NewEnvelope(e.Signed))
	}
	return ReportFiles(f.record.PublicID, c)
}

// changed returns the files with the content of one changed.
func changed(t testing.TB, files []ReportFile, name string, change func([]byte) []byte) []ReportFile {
	t.Helper()
	i := slices.IndexFunc(files, func(f ReportFile) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no file %s", name)
	}
	files = slices.Clone(files)
	files[i].Content = change(slices.Clone(files[i].Content))
	return files
}

func without(files []ReportFile, name string) []ReportFile {
	return slices.DeleteFunc(slices.Clone(files), func(f ReportFile) bool { return f.Name == name })
}

// Every file of a report is verified with what the others prove, and no file can be changed or exchanged unseen.
func TestVerifyReport(t *testing.T) {
	f := newStampFixture(t)
	id := f.record.PublicID
	all := Options{
		Now: testNow, Document: &Document{SHA256: f.record.SHA256.String(), Size: f.record.SizeBytes}, RequireInclusion: true,
		RequireTimestamp: true,
	}
	other := newStampFixture(t)
	other.record.PublicID, other.record.SizeBytes = "bbbbbbbbbbbbbbbbbbbbbbbbba", 7
	tamper := func(b []byte) []byte { return tampered(b, len(b)/2) }
	exchange := func(from []ReportFile, name string) func([]byte) []byte {
		return func([]byte) []byte {
			i := slices.IndexFunc(from, func(f ReportFile) bool { return f.Name == name })
			return from[i].Content
		}
	}
	for _, private := range []bool{true, false} {
		files := f.reported(t, private)
		theirs := other.reported(t, private)
		names := []string{}
		for _, file := range files {
			if names = append(names, file.Name); file.Purpose() == "" || !strings.Contains(file.MediaType(), "/") {
				t.Errorf("%s has no purpose", file.Name)
			}
		}
		main := "integrity-receipt-" + id + ".json"
		if private {
			main = "integrity-evidence-" + id + ".json"
		}
		if want := []string{
			main, id + ".tlog-proof", "timestamp-1.tlog-proof", "timestamp-1.checkpoint", "timestamp-1-Alpha.tsr",
			"timestamp-2.tlog-proof", "timestamp-2.checkpoint", "timestamp-2-Beta.tsr", "authority-Alpha.pem",
			"authority-Beta.pem", "integrity-trusted-keys.json",
		}; !slices.Equal(names, want) {
			t.Fatalf("files: %q", names)
		}
		// The printed command verifies a token with the certificates of its own authority.
		for missing, want := range map[string][]string{
			"":                    {"timestamp-1-Alpha.tsr", "timestamp-1.checkpoint", "authority-Alpha.pem"},
			"authority-Alpha.pem": {"timestamp-2-Beta.tsr", "timestamp-2.checkpoint", "authority-Beta.pem"},
		} {
			if token, checkpoint, chain := TokenIn(without(files, missing)); !slices.Equal(
				[]string{token, checkpoint, chain}, want,
			) {
				t.Errorf("without %q: %s, %s, %s", missing, token, checkpoint, chain)
			}
		}
		good, err := VerifyReport(files, f.trust, all)
		if err != nil || good.ExitCode() != 0 || *good.ExistedBefore != goodGenTime || !*good.FileMatch ||
			(good.References == Valid) != private || (good.Observation == Valid) != private {
			t.Errorf("private %v: %v %+v", private, err, good)
		}
		for name, c := range map[string]struct {
			files  []ReportFile
			reason string // of the failure; empty if the report stays valid
		}{
			"evidence tampered with":   {changed(t, files, main, func(b []byte) []byte { return tampered(b, 80) }), "signature: "},
			"a proof as evidence":      {changed(t, files, main, exchange(theirs, theirs[1].Name)), "signature: "},
			"proof tampered with":      {changed(t, files, id+".tlog-proof", tamper), id + ".tlog-proof"},
			"proof of another record":  {changed(t, files, id+".tlog-proof", exchange(theirs, theirs[1].Name)), "another record"},
			"stamped proof of another": {changed(t, files, "timestamp-1.tlog-proof", exchange(theirs, "timestamp-1.tlog-proof")), "another record"},
			"stamped proofs exchanged": {changed(t, files, "timestamp-1.tlog-proof", exchange(files, "timestamp-2.tlog-proof")), "timestamp-1.checkpoint: "},
			"token tampered with":      {changed(t, files, "timestamp-1-Alpha.tsr", tamper), "time: "},
			"tokens exchanged":         {changed(t, files, "timestamp-1-Alpha.tsr", exchange(files, "timestamp-2-Beta.tsr")), "time: Alpha"},
			"a refused token": {changed(t, files, "timestamp-1-Alpha.tsr", func([]byte) []byte {
				return []byte{0x30, 0x05, 0x30, 0x03, 0x02, 0x01, 0x02}
			}), "granted"},
			"checkpoint tampered with": {changed(t, files, "timestamp-1.checkpoint", tamper), "not the checkpoint"},
			"keys exchanged":           {changed(t, files, "integrity-trusted-keys.json", func([]byte) []byte { return []byte("{}") }), ""},
			"chain exchanged":          {changed(t, files, "authority-Alpha.pem", tamper), ""},
			"without a chain":          {without(files, "authority-Alpha.pem"), ""},
			"without a checkpoint":     {without(files, "timestamp-1.checkpoint"), ""},
			"with a stranger's file":   {append(slices.Clone(files), ReportFile{"letter.txt", []byte("hello")}), ""},
		} {
			got, err := VerifyReport(c.files, f.trust, all)
			reasons := fmt.Sprint(got.Reasons)
			if err != nil || (c.reason == "") != (got.ExitCode() == 0) || !strings.Contains(reasons, c.reason) {
				t.Errorf("private %v, %s: %v %s", private, name, err, reasons)
			}
		}
		for name, files := range map[string][]ReportFile{
			"no file":          {},
			"without evidence": without(files, main),
			"evidence twice":   append(slices.Clone(files), ReportFile{"integrity-receipt-x.json", files[0].Content}),
			"one name twice":   append(slices.Clone(files), ReportFile{"authority-Alpha.pem", nil}),
			"an orphan token":  without(files, "timestamp-1.tlog-proof"),
			"too many files":   make([]ReportFile, MaxReportFiles+1),
		} {
			if _, err := VerifyReport(files, f.trust, all); err == nil {
				t.Errorf("private %v, %s: no error", private, name)
			}
		}
		// The evidence's own parts count beside the files.
		if private {
			bad := changed(t, files, main, func(b []byte) []byte {
				e := must(ParseEnvelope(b))
				e.Timestamps[0].Checkpoint = strings.Replace(e.Timestamps[0].Checkpoint, "\n5\n", "\n6\n", 1)
				return marshal(t, e)
			})
			if got, err := VerifyReport(bad, f.trust, all); err != nil || got.ExitCode() == 0 {
				t.Errorf("tampered timestamps of the evidence: %v %+v", err, got)
			}
		}
		// The keys inside the report are never used.
		stranger, err := NewTrustedKeys(nil, nil, nil)
		if err == nil {
			if got, _ := VerifyReport(files, stranger, all); got.Signature != Untrusted {
				t.Errorf("with other keys: %+v", got)
			}
		}
	}
}

// FuzzVerifyReport looks for files that verify although a byte of the signed parts differs, and for panics.
func FuzzVerifyReport(f *testing.F) {
	fixture := newStampFixture(f)
	files := fixture.reported(f, false)
	for _, file := range files {
		f.Add(file.Name, file.Content)
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		for _, private := range []bool{true, false} {
			list := without(fixture.reported(t, private), name)
			found, err := VerifyReport(append(list, ReportFile{name, content}), fixture.trust, Options{Now: testNow})
			if err == nil && found.ExitCode() == 0 && !bytes.Equal([]byte(found.Record.PublicID), []byte(fixture.record.PublicID)) {
				t.Errorf("another record: %+v", found)
			}
		}
	})
}
