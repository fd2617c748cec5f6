package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/projections"
)

// auditor audits an evil ledger with marks.
type auditor struct {
	*vault
	dir string
}

func (v *auditor) path(name string) string { return filepath.Join(v.dir, name) }

// flags returns the flags of an audit that goes on from one mark and writes another. Both may be empty.
func (v *auditor) flags(since, write string) (f markFlags) {
	f.key = v.path("auditor-key.pem")
	if since != "" {
		f.since = v.path(since)
	}
	if write != "" {
		f.write = v.path(write)
	}
	return f
}

func (v *auditor) try(f markFlags) (auditView, error) {
	o := auditOptions{Trusted: v.Trusted, Start: time.Now()}
	defer o.closeMarks()
	if err := o.openMarks(v.app, f, true); err != nil {
		return auditView{}, err
	}
	return v.app.auditDatabase(context.Background(), v.as, domain.OrganizationID{}, o)
}

func (v *auditor) marked(since, write string) auditView {
	v.t.Helper()
	view, err := v.try(v.flags(since, write))
	if err != nil {
		v.t.Fatal(err)
	}
	return view
}

// clean fails unless an audit found nothing and wrote the mark.
func (v *auditor) clean(since, write string) auditView {
	v.t.Helper()
	view := v.marked(since, write)
	if view.FindingCount != 0 || (view.Mark == nil) != (write == "") {
		v.t.Fatalf("since %q: %v, %+v", since, view.Findings, view.Mark)
	}
	return view
}

// refused fails unless an audit cannot begin or go on, and says why.
func (v *auditor) refused(f markFlags, why string) {
	v.t.Helper()
	if view, err := v.try(f); err == nil || !strings.Contains(err.Error(), why) {
		v.t.Errorf("%v, %+v, want an error with %q", err, view.Findings, why)
	}
}

func (v *auditor) read(name string) []byte {
	v.t.Helper()
	return must1(os.ReadFile(v.path(name)))
}

func (v *auditor) payload(name string) evidence.AuditMarkPayload {
	v.t.Helper()
	key := must1(signingKeys{v.app}.signerAt(keyfiles.Source{}, v.path("auditor-key.pem")))
	p, _, err := evidence.OpenAuditMark(v.read(name), key.Key().KeyID)
	if err != nil {
		v.t.Fatal(err)
	}
	return p
}

// later adds history of every kind, in part to documents, keys and members that existed before. The log lacks the last
// event.
func (v *auditor) later(round int) {
	v.t.Helper()
	o := v.Organization(v.t, 0, domain.InternalPlan)
	v.Everything(v.t, o)
	document := fmt.Sprint("later-", round)
	v.Must(v.t, v.Register(v.t, v.org, v.org.Declaration("everything", int32(10+round), document)))
	v.Must(v.t, v.Reserve(v.t, v.org, document, 1))
	one := v.Register(v.t, v.org, v.org.Declaration(document, 1, document))
	v.Must(v.t, one)
	v.grow()
	v.Must(v.t, v.Revoke(v.t, v.org, one.Outcome.PublicID))
}

func newAuditor(t *testing.T) *auditor {
	t.Helper()
	return &auditor{newVault(t), t.TempDir()}
}

// TestAuditSince: an audit that goes on finds the same as a whole one and saves the same state, byte for byte.
func TestAuditSince(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	v := newAuditor(t)
	first := v.clean("", "first")
	if first.Scope != wholeScope || first.Since != nil || first.Mark.Events != first.Events {
		t.Errorf("whole: %+v", first)
	}
	for _, name := range []string{"first", "first.state", "auditor-key.pem"} {
		if info := must1(os.Stat(v.path(name))); info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
	before := "first"
	for round := range 3 {
		if round < 2 { // in the last round nothing happens
			v.later(round)
		}
		whole, since := fmt.Sprint("whole-", round), fmt.Sprint("since-", round)
		all, news := v.clean("", whole), v.clean(before, since)
		was := v.payload(before)
		if news.Scope != sinceScope || news.Since.Events != was.Events || news.Events != all.Events-was.Events ||
			len(news.Projections) != 0 || news.Mark.Events != all.Events {
			t.Errorf("round %d: %+v", round, news)
		}
		if !bytes.Equal(v.read(whole+".state"), v.read(since+".state")) {
			t.Errorf("round %d: the states of a whole audit and of one that goes on differ", round)
		}
		p, q := v.payload(whole), v.payload(since)
		if p.Since != nil || !p.WholeAt.Equal(p.CreatedAt) || q.Since.Events != was.Events ||
			!q.WholeAt.Equal(v.payload("first").CreatedAt) || q.TreeSize == 0 || q.Shards[0].TreePosition == 0 {
			t.Errorf("round %d: %+v, %+v", round, p, q)
		}
		p.CreatedAt, p.WholeAt, p.Since = q.CreatedAt, q.WholeAt, q.Since
		if !bytes.Equal(p.AppendCanonical(nil), q.AppendCanonical(nil)) {
			t.Errorf("round %d: %s, want %s", round, q.AppendCanonical(nil), p.AppendCanonical(nil))
		}
		if digests(all) != digests(news) {
			t.Errorf("round %d: %s, want %s", round, digests(news), digests(all))
		}
		text := fmt.Sprint(news.text())
		for _, want := range []string{
			fmt.Sprintf("events read: %d; older events, not read again: %d;", news.Events, was.Events),
			fmt.Sprintf("verdict: everything that was checked is correct; only the %d events since the mark of %s were read, "+
				"the %d events before it were not read again\n", news.Events, news.Since.MarkedAt, was.Events),
			"only a whole audit (without --since) finds", "the projections: only a whole audit",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %s", want, text)
			}
		}
		if strings.Contains(fmt.Sprint(all.text()), "not read again") {
			t.Errorf("a whole audit: %s", all.text())
		}
		if strings.Contains(text, "former bundle") || !strings.Contains(fmt.Sprint(all.text()), "whole audit: every event") {
			t.Errorf("%s\n%s", text, all.text())
		}
		before = since
	}
	left, err := filepath.Glob(v.path(".*"))
	if err != nil || left != nil {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
	if left := must1(fs.Glob(os.DirFS(v.dir), "*.next")); left != nil {
		t.Errorf("states that were not moved are left: %v", left)
	}
	// The same file may be read and written, and the mark can be checked without the private key.
	v.later(3)
	v.clean(before, before)
	f := v.flags(before, "")
	f.key, f.keyID = "", must1(signingKeys{v.app}.signerAt(keyfiles.Source{}, f.key)).Key().KeyID
	if view, err := v.try(f); err != nil || view.FindingCount != 0 || view.Events != 0 {
		t.Errorf("%v, %+v", err, view)
	}
	shown := must1(json.Marshal(v.clean(before, "")))
	if !bytes.Contains(shown, []byte(`"scope":"since","since":{"markedAt":"`)) {
		t.Errorf("%s", shown)
	}
}

func digests(v auditView) string {
	var lines []string
	for _, o := range v.Organizations {
		lines = append(lines, fmt.Sprintln(o.Organization, o.Events, o.Digest, o.Usage))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestAuditSinceTampering: what an audit that goes on finds, refuses, and leaves to the whole audit.
func TestAuditSinceTampering(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	v := newAuditor(t)
	tables, err := projections.Projections(t.Context(), v.owner)
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{
		"events", "texts", "shard_heads", "transparency_tree", "transparency_tiles", "transparency_runs",
		"transparency_checkpoint", "log_timestamps",
	}, tables...)
	earlier := v.save("earlier", all...)
	v.clean("", "first")
	v.later(0)
	v.clean("first", "mark")
	v.later(1)
	restore := v.save("saved", all...)
	mark := v.payload("mark")
	old := v.event("company.created")
	for name, tamper := range map[string]func(){
		"a new event that the ledger cannot have written": func() {
			events := v.Events(t, 0)
			e := events[slices.IndexFunc(events, func(e domain.Event) bool {
				return e.Position > mark.Events && e.Type == domain.RecordRegistered && e.Organization == v.org.ID
			})]
			body := *e.Body.(*domain.RecordRegisteredBody)
			body.Record.SizeBytes++
			body.Payload = body.Record.AppendCanonical(nil)
			e.Body = &body
			v.rewrite(&e)
			v.first(v.marked("mark", "spoiled"), audit.CheckSignature, e.Sequence)
			if _, err := os.Stat(v.path("spoiled")); err == nil {
				t.Error("an audit with findings wrote a mark")
			}
		},
		"a new event gone": func() {
			v.exec("DELETE FROM events WHERE shard = 0 AND position = $1", mark.Events+3)
			v.first(v.marked("mark", ""), audit.CheckPosition, 0)
		},
		"a version revoked a second time": func() {
			events := v.Events(t, 0)
			last := events[len(events)-1] // a revocation
			v.exec(`UPDATE events e SET data = o.data, subject = o.subject FROM events o WHERE e.shard = 0 AND e.position = $1
				AND o.shard = 0 AND o.position = (SELECT max(position) FROM events WHERE shard = 0 AND type = 'integrity.revoked'
					AND organization_id = $2 AND position <= $3)`, last.Position, [16]byte(v.org.ID), mark.Events)
			e := v.Events(t, 0)[last.Position-1]
			v.rewrite(&e)
			v.first(v.marked("mark", ""), audit.CheckHistory, e.Sequence)
		},
		"an event's id used again": func() {
			events := v.Events(t, 0)
			last := events[len(events)-1]
			last.ID = events[0].ID
			hash := domain.LeafHash(last.Leaf())
			v.exec("UPDATE events SET id = $2, hash = $3 WHERE shard = 0 AND position = $1", last.Position, last.ID, hash[:])
			v.first(v.marked("mark", ""), audit.CheckUnique, last.Sequence)
		},
		"an old row": func() {
			e := old
			e.Actor = domain.SystemActor
			v.exec("UPDATE events SET actor = $3 WHERE shard = $1 AND position = $2", e.Shard, e.Position, e.Actor)
			view := v.clean("mark", "")
			if !strings.Contains(fmt.Sprint(view.NotChecked), fmt.Sprintf("events up to the mark (%d)", mark.Events)) {
				t.Errorf("not checked: %v", view.NotChecked)
			}
			v.first(v.marked("", "whole"), audit.CheckHash, e.Sequence)
		},
		"a row that no tree contained at the mark": func() {
			if mark.Shards[0].TreePosition != mark.Shards[0].Position-1 {
				t.Fatalf("the tree of the mark: %+v", mark.Shards)
			}
			v.exec("UPDATE events SET hash = sha256('x') WHERE shard = 0 AND position = $1", mark.Shards[0].Position)
			v.first(v.marked("mark", ""), audit.CheckLog, 0)
		},
		"the whole log rewritten, with another tree": func() {
			e := old
			e.Actor = domain.SystemActor
			v.rewrite(&e)
			for _, table := range []string{"tree", "tiles", "runs", "checkpoint"} {
				v.exec("DELETE FROM transparency_" + table)
			}
			v.exec("DELETE FROM log_timestamps")
			v.grow()
			v.rebuild()
			if view := v.audit(); view.FindingCount != 0 {
				t.Errorf("a whole audit without the mark: %v", view.Findings)
			}
			view := v.marked("mark", "")
			v.first(view, audit.CheckLog, 0)
			if !strings.Contains(fmt.Sprint(view.Findings), "the log was rewritten") {
				t.Errorf("found %v", view.Findings)
			}
		},
		"a database restored to an earlier state": func() {
			earlier(all...)
			view := v.marked("mark", "")
			v.first(view, audit.CheckFormer, 0)
			if want := fmt.Sprintf("a log of at least %d events", mark.Events); !strings.Contains(fmt.Sprint(view.Findings), want) {
				t.Errorf("found %v, want %s", view.Findings, want)
			}
			v.first(view, audit.CheckLog, 0)
		},
		"an old text gone": func() {
			v.exec("DELETE FROM texts WHERE id = (SELECT id FROM texts WHERE shard = 0 AND body IS NOT NULL LIMIT 1)")
			v.first(v.marked("mark", ""), audit.CheckText, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v.t = t
			tamper()
			restore(all...)
		})
	}
	v.t = t
	v.clean("mark", "")
}

// TestMarksAreChecked: a mark with another key, issuer or state is refused, and so is any byte that was changed.
func TestMarksAreChecked(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	v := newAuditor(t)
	v.clean("", "first")
	v.later(0)
	v.clean("first", "mark")
	use := v.flags("mark", "")
	state, mark := v.read("mark.state"), v.read("mark")
	for i := 0; i < len(state); i += max(1, len(state)/40) {
		spoiled := bytes.Clone(state)
		spoiled[i] ^= 1
		integritytest.Write(t, v.path("mark.state"), string(spoiled))
		v.refused(use, "is not the state that the mark names")
	}
	for _, other := range [][]byte{state[:len(state)-1], append(bytes.Clone(state), 0), v.read("first.state"), nil} {
		integritytest.Write(t, v.path("mark.state"), string(other))
		v.refused(use, "is not the state that the mark names")
	}
	if err := os.Remove(v.path("mark.state")); err != nil {
		t.Fatal(err)
	}
	v.refused(use, "no such file")
	// A program that was interrupted between the mark and its state left the former state, and the next one.
	integritytest.Write(t, v.path("mark.state"), string(v.read("first.state")))
	integritytest.Write(t, v.path("mark.state.next"), string(state))
	v.clean("mark", "")
	if !bytes.Equal(v.read("mark.state"), state) {
		t.Error("the next state was not moved")
	}

	integritytest.Write(t, v.path("mark"), strings.Replace(string(mark), `\"events\":`, `\"events\":1`, 1))
	v.refused(use, "the signature does not belong to the payload")
	integritytest.Write(t, v.path("mark"), string(mark))
	other := use
	other.key = v.path("other-key.pem")
	v.refused(other, "so the mark cannot be checked")
	if _, err := (signingKeys{v.app}).signerAt(keyfiles.Source{}, other.key); err != nil {
		t.Fatal(err)
	}
	v.refused(other, "signed by the key")
	integritytest.Write(t, v.path("trusted"), "{}")
	v.refused(markFlags{write: v.path("trusted"), key: use.key}, "exists and is no mark")
	for flags, why := range map[markFlags]string{
		{key: use.key}: "belong to --mark or --since", {write: "x"}: "--mark needs --mark-key", {since: use.since}: "--since needs --mark-key",
		{write: "x", key: use.key, since: v.path("none")}: "no such file",
	} {
		v.refused(flags, why)
	}
	if err := (&auditOptions{}).openMarks(v.app, use, false); err == nil {
		t.Error("a bundle was audited with a mark")
	}
	v.as.Installation.Issuer = "https://other.example"
	v.refused(use, "belongs to the ledger "+v.Installation.Issuer)
	v.as.Installation.Issuer = v.Installation.Issuer
	v.as.Installation.Shards = 0
	v.refused(use, "its number of shards is 1")
	v.as.Installation.Shards = 1
	trusted := v.Trusted
	key := must1(signingKeys{v.app}.signerAt(keyfiles.Source{}, use.key))
	v.Trusted = must1(trusted.Add(key.Key(), evidence.FormatTime(time.Now())))
	v.refused(v.flags("mark", "next"), "is a key of the ledger")
	v.Trusted = trusted
	v.clean("mark", "next")

	// A ledger with more shards than the mark: the others are read from their beginning.
	v.exec(`INSERT INTO shard_heads SELECT (jsonb_populate_record(h, '{"shard": 1, "position": 0}')).* FROM shard_heads h`)
	v.as.Installation.Shards = 2
	o := v.Organization(t, 1, domain.InternalPlan)
	v.Must(t, v.Register(t, o, o.Declaration("other-shard", 1, "content")))
	v.clean("mark", "wider")
	v.clean("", "whole")
	if !bytes.Equal(v.read("wider.state"), v.read("whole.state")) || len(v.payload("wider").Shards) != 2 {
		t.Errorf("with another shard: %+v", v.payload("wider"))
	}
}

// TestMarkNotWritten: an audit whose mark cannot be written prints its result, fails, and leaves the former mark as it
// was.
func TestMarkNotWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	v := newAuditor(t)
	v.clean("", "mark")
	v.later(0)
	mark, state := v.read("mark"), v.read("mark.state")
	if err := os.MkdirAll(v.path("mark.state.next/in-the-way"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, asJSON := range []bool{false, true} {
		view, err := v.try(v.flags("mark", "mark"))
		if err != nil || view.Mark != nil || view.FindingCount != 0 {
			t.Fatalf("%v, %+v", err, view)
		}
		var out bytes.Buffer
		v.app.Out = &out
		err = v.app.printAudit(view, asJSON)
		if err == nil || !strings.Contains(err.Error(), "--mark: ") || errors.As(err, new(cli.NegativeError)) {
			t.Errorf("%v", err)
		}
		want := "not read again\n"
		if asJSON {
			want = `"mark": null`
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
		if !bytes.Equal(v.read("mark"), mark) || !bytes.Equal(v.read("mark.state"), state) {
			t.Error("the former mark was changed")
		}
	}
	if err := os.RemoveAll(v.path("mark.state.next")); err != nil {
		t.Fatal(err)
	}
	v.clean("mark", "mark")
}

// TestFullDisk: the error of a state that cannot be saved is kept until the audit has ended.
func TestFullDisk(t *testing.T) {
	s, err := createState(filepath.Join(t.TempDir(), "mark"))
	if err != nil {
		t.Fatal(err)
	}
	full := must1(os.OpenFile("/dev/full", os.O_WRONLY, 0))
	written := s.f
	s.f = full
	for range audit.SectionCount {
		s.add([]byte("section"))
	}
	if _, err := s.finish(written.Name() + ".next"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("finish: %v", err)
	}
	s.f = written
	_ = full.Close()
	s.discard()
}

// TestMarkOfOtherKeys: an audit that goes on with other trusted keys says so, and so does each one after it until the
// next whole audit.
func TestMarkOfOtherKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	v := newAuditor(t)
	named := func(since, write string, want bool) {
		t.Helper()
		view := v.clean(since, write)
		if got := strings.Contains(fmt.Sprint(view.NotChecked), "by the present trusted keys"); got != want {
			t.Errorf("since %q: named %v, want %v: %v", since, got, want, view.NotChecked)
		}
	}
	named("", "first", false)
	named("first", "same", false)
	trusted := v.Trusted
	v.Trusted = must1(trusted.Add(evidence.GenerateSigner().Key(), evidence.FormatTime(time.Now())))
	named("same", "other", true)
	named("other", "again", true)
	v.Trusted = trusted
	named("again", "back", true)
	if v.payload("first").TrustedKeysSHA256 != v.payload("same").TrustedKeysSHA256 ||
		v.payload("back").TrustedKeysSHA256 != (evidence.Hash{}) {
		t.Errorf("%v, %v", v.payload("same"), v.payload("back"))
	}
	named("", "whole", false)
	named("whole", "", false)
}
