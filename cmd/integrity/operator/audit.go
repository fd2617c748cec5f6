package operator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/internal/worm"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/bundle"
)

// auditView is the JSON output of integrity audit.
type auditView struct {
	Source        string          `json:"source"` // "database" or "bundle"
	AuditedAt     string          `json:"auditedAt"`
	Version       string          `json:"version"` // of this program
	Issuer        string          `json:"issuer"`
	Against       *againstView    `json:"against"` // null unless --against names a bundle
	Log           *auditedLog     `json:"log"`     // null unless the tree was derived and agrees
	Scope         auditScope      `json:"scope"`
	Since         *sinceView      `json:"since"` // null unless the scope is "since"
	Mark          *markView       `json:"mark"`  // null unless a mark was written
	Clean         bool            `json:"clean"`
	Events        int64           `json:"events"`
	Organizations []audit.History `json:"organizations"`
	FindingCount  int64           `json:"findingCount"`
	// Findings are the first hundred findings of each organization, by sequence, then the findings that concern no
	// organization.
	Findings []audit.Finding `json:"findings"`
	Exports  *exportsView    `json:"exports"` // what --against s3://… has read, null otherwise
	// Projections lists the tables that were compared with the log. It is empty for a bundle.
	Projections     []string       `json:"projections"`
	NotChecked      []say.Sentence `json:"notChecked"`
	EventsPerSecond float64        `json:"eventsPerSecond"` // reading the log only; comparing tables is not included
	DurationSeconds float64        `json:"durationSeconds"` // the whole audit
	unmarked        error          // why the mark could not be written; nil if it was, or none was asked for
}

// againstView is the earlier bundle that a history was compared with.
type againstView struct {
	Bundle       string                `json:"bundle"`
	Organization domain.OrganizationID `json:"organization"`
	Events       int64                 `json:"events"`
	ExportedAt   string                `json:"exportedAt"`
}

// auditedLog is the tree that was derived from the events, and agrees with the stored tree and checkpoint.
type auditedLog struct {
	Leaves    int64  `json:"leaves"`
	Published int64  `json:"published"`
	Root      string `json:"root"`
}

// auditScope says which history an audit has read.
type auditScope string

const (
	wholeScope        auditScope = "whole"        // all events of the ledger
	sinceScope        auditScope = "since"        // the events after a mark
	organizationScope auditScope = "organization" // all events of one organization
)

// auditOptions are the options that both kinds of audit share.
type auditOptions struct {
	Trusted *evidence.TrustedKeys
	against *bundle.Bundle // nil: none
	worm    *blobs.Locked  // nil: none
	since   *formerMark    // nil: none
	next    *nextMark      // nil: none
	ownKeys string         // trusted-keys file that a database audit read because --trusted-keys names none
	Start   time.Time

	otherKeys bool // the trusted keys are not those that judged the events up to the mark
}

func (a *app) auditCommand() *cobra.Command {
	v := a.verb("audit", "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS")
	only := v.organization("only this organization (org_…); by default all organizations, and the data that none of "+
		"them owns", false)
	against := v.Flags().String("against", "", "earlier bundle that the history must extend, or s3://bucket/prefix with "+
		"exports that the transparency log must extend")
	var marks markFlags
	v.Flags().StringVar(
		&marks.write, "mark", "", "write a mark to this file, and the state beside it, if nothing is found",
	)
	v.Flags().StringVar(&marks.since, "since", "", "mark to go on from: read only the events after it")
	v.Flags().StringVar(
		&marks.key, "mark-key", "", "file of the auditor's own private key, which signs marks; --mark creates it",
	)
	v.Flags().StringVar(&marks.keyID, "mark-key-id", "", "keyId of the key that signed the mark, instead of --mark-key")
	return v.onSettings(func(_ context.Context, cfg *config.Config) (err error) {
		options := auditOptions{Start: a.Now()}
		if err := options.open(*against, *only); err != nil {
			return say.Errorf("--against: %w", err)
		}
		if options.against != nil {
			defer options.against.Close()
		}
		defer options.closeMarks()
		if err := options.openMarks(a, marks, len(v.args) == 0 && only.IsZero()); err != nil {
			return err
		}
		var view auditView
		if !v.Flags().Changed("trusted-keys") {
			options.ownKeys = cfg.TrustedKeysPath()
		}
		if len(v.args) == 1 {
			view, err = a.auditBundle(v.Context(), cfg, v.args[0], *only, options)
		} else if options.Trusted, err = keyfiles.ReadTrusted(cfg.TrustedKeysPath()); err == nil {
			err = ledger.With(a.App, v.Command, func(ctx context.Context, l *ledger.Opened) (err error) {
				view, err = a.auditDatabase(ctx, l, *only, options)
				return err
			})
		}
		if err != nil {
			return err
		}
		view.DurationSeconds = a.Now().Sub(options.Start).Seconds()
		return a.printAudit(view, v.json)
	})
}

// open opens what --against names.
func (o *auditOptions) open(against string, only domain.OrganizationID) (err error) {
	switch {
	case against == "":
		return nil
	case !strings.HasPrefix(against, "s3:"):
		o.against, err = bundle.Open(against)
		return err
	case !only.IsZero():
		return say.New("exports contain checkpoints of the whole log: leave out --organization")
	}
	o.worm, err = blobs.OpenLocked(against, false)
	return err
}

// newAudit creates a checker for either kind of audit.
func (o *auditOptions) newAudit(config audit.Config, only domain.OrganizationID) (*audit.Checker, error) {
	config.Trusted = o.Trusted
	if o.against != nil {
		if !only.IsZero() && o.against.Organization != only {
			return nil, say.Errorf("--against must be a bundle of %s, not of %s", only, o.against.Organization)
		}
		config.Former = o.against.Former()
	}
	return audit.New(config)
}

// auditBundle audits an exported bundle.
func (a *app) auditBundle(
	ctx context.Context, cfg *config.Config, dir string, only domain.OrganizationID, o auditOptions,
) (auditView, error) {
	b, err := bundle.Open(dir)
	if err != nil {
		return auditView{}, err
	}
	defer b.Close()
	organization := b.Organization
	if !only.IsZero() && only != organization {
		return auditView{}, say.Errorf("--organization: the bundle belongs to %s", organization)
	}
	embedded, wrong, err := b.TrustedKeys()
	if err != nil {
		return auditView{}, err
	}
	bundled, wrongKeys := evidence.ParseTrustedKeys(embedded)
	own := cfg.TrustedKeys == ""
	if own {
		if o.Trusted = bundled; wrongKeys != nil {
			return auditView{}, say.Errorf("%s: %w", dir, wrongKeys)
		}
	} else if o.Trusted, err = keyfiles.ReadTrusted(cfg.TrustedKeys); err != nil {
		return auditView{}, err
	}
	exports, err := o.readWorm(ctx, b.Issuer, func() (worm.Keys, error) {
		keys := worm.Keys{TrustedKeys: bundled, Place: bundle.TrustedKeysFile}
		var dated error
		keys.At, dated = time.Parse(time.RFC3339Nano, b.ExportedAt)
		if wrongKeys != nil { // reported already, as is the date
			keys = worm.Keys{Missing: say.Sentencef("the trusted keys in the bundle cannot be read")}
		} else if dated != nil {
			keys = worm.Keys{Missing: say.Sentencef("the bundle does not say when it was exported")}
		}
		return keys, nil
	})
	if err != nil {
		return auditView{}, err
	}
	parts := &partsFile{}
	defer parts.Close()
	checker, err := o.newAudit(audit.Config{Issuer: b.Issuer, Parts: parts, WithoutTexts: !b.Texts}, organization)
	if err != nil {
		return auditView{}, err
	}
	checker.Found(wrong...)
	bar := a.eventsBar("events", b.Events)
	err = b.Walk(func(events []audit.Event) error {
		bar.Add(int64(len(events)))
		return checker.Add(events)
	}, checker.Found)
	bar.Close()
	if err != nil {
		return auditView{}, err
	}
	v, report, err := a.finishAudit(checker, o, b.Issuer)
	if err != nil {
		return v, err
	}
	v.Source, v.Scope = "bundle", organizationScope
	if err := v.auditErased(b, report.Erasures); err != nil {
		return v, err
	}
	if err := v.auditCheckpoint(b, o.Trusted, exports); err != nil {
		return v, err
	}
	if o.against == nil {
		v.notChecked(
			"whether the service recorded these %d events: nothing ties a bundle to the signed log, so a person who had it "+
				"can have removed or changed events and made all hashes anew. Compare the bundle with one that came another way "+
				"(--against), its number of events and digest with those that the organization knows, and records with their "+
				"evidence, whose signatures, cosignatures and timestamps verify with keys that you have pinned "+
				"(integrity verify)", v.Events,
		)
	}
	v.notChecked("the service's tables: a bundle does not contain them")
	if own {
		v.notChecked("whether the trusted keys in the bundle are the service's: pass the file you pinned (--trusted-keys)")
	}
	return v, nil
}

// auditErased lists texts in the bundle that were erased after its export. The export never changes lines that it has
// written, so this is not a fault of the history.
func (v *auditView) auditErased(b *bundle.Bundle, erased []audit.Erasure) error {
	if len(erased) == 0 || !b.Texts {
		return nil
	}
	gone := map[domain.TextID]bool{}
	for _, e := range erased {
		gone[e.Text] = true
	}
	held := 0
	err := b.Walk(func(events []audit.Event) error {
		for i := range events {
			for _, t := range events[i].Stored {
				if t.Body != nil && gone[t.ID] {
					held++
					delete(gone, t.ID)
				}
			}
		}
		return nil
	}, func(...audit.Finding) {})
	if err == nil && held > 0 {
		v.notChecked(
			"this bundle still contains %d texts that were erased later: destroy it, and export the history again", held,
		)
	}
	return err
}

// auditCheckpoint checks the transparency log's checkpoint in a bundle.
func (v *auditView) auditCheckpoint(
	b *bundle.Bundle, trusted *evidence.TrustedKeys, exports *worm.Report,
) error {
	note, wrong, err := b.Checkpoint()
	if exports != nil {
		if err == nil && wrong == nil {
			v.sameHeads(string(note), exports.Heads)
		}
		v.exports(exports)
	}
	switch {
	case err != nil:
		return err
	case b.Manifest.Checkpoint == nil:
		v.notChecked("the transparency log: the bundle has no checkpoint")
		return nil
	case wrong != nil:
		v.found(wrong[0])
		return nil
	}
	v.checkpoint(bundle.CheckpointFile, string(note), trusted)
	v.notChecked(
		"whether the transparency log contains these events: evidence proves that for a record (integrity verify), and " +
			"integrity monitor proves that the log has kept one history since this checkpoint",
	)
	return nil
}

// checkpoint checks the log's signature on a checkpoint. Without pinned log keys it records the signature as not
// checked. It returns false if it found something.
func (v *auditView) checkpoint(place, note string, trusted *evidence.TrustedKeys) bool {
	switch _, err := evidence.OpenCheckpoint(note, trusted); {
	case errors.Is(err, evidence.ErrUnknownLogKey) && len(trusted.LogKeys()) == 0:
		v.notChecked("the signature of the transparency log's checkpoint: the trusted-keys file has no log key")
	case err != nil:
		v.found(audit.Finding{
			Check: audit.CheckLog, Place: place, Expected: say.Sentencef("a checkpoint signed by a trusted log key"),
			Found: say.Sentencef("%v", err),
		})
		return false
	}
	return true
}

// finishAudit runs the deferred checks and fills in the fields that every audit has.
func (a *app) finishAudit(checker *audit.Checker, o auditOptions, issuer string) (auditView, audit.Report, error) {
	bar := a.eventsBar("documents", audit.PartCount)
	report, err := checker.Finish(func(parts int) { bar.Set(int64(parts), audit.PartCount) })
	bar.Close()
	v := auditView{
		Events: report.Events, Organizations: report.Organizations, FindingCount: report.Count, Findings: report.Findings,
		Projections: []string{}, NotChecked: report.NotChecked,
		EventsPerSecond: float64(report.Events) / max(a.Now().Sub(o.Start).Seconds(), 0.001),
		AuditedAt:       cli.TimeText(o.Start), Version: fmt.Sprint(eventstore.ThisProgram().Version), Issuer: issuer,
	}
	if b := o.against; b != nil {
		v.Against = &againstView{b.Path(), b.Organization, b.Events, b.ExportedAt}
	}
	return v, report, err
}

// notChecked adds something that this audit does not show.
func (v *auditView) notChecked(format string, args ...any) {
	v.NotChecked = append(v.NotChecked, say.Sentencef(format, args...))
}

// found adds a finding that concerns no organization's history.
func (v *auditView) found(f audit.Finding) {
	v.FindingCount++
	if len(v.Findings) < 1000 {
		v.Findings = append(v.Findings, f)
	}
}

func (a *app) printAudit(v auditView, asJSON bool) (err error) {
	v.Clean = v.FindingCount == 0
	if v.Findings == nil {
		v.Findings = []audit.Finding{}
	}
	out := bufio.NewWriter(a.Out)
	defer flush(out, &err)
	if !asJSON {
		_, _ = out.WriteString(a.Say(v.text())) // flush reports the error
	} else if err := cli.WriteJSON(out, v, "  "); err != nil {
		return err
	}
	if !v.Clean {
		return cli.NegativeError("")
	}
	return v.unmarked
}

func (v *auditView) text() say.Phrase {
	var b text
	b.Sayf("audit of %s at %s, by version %s of this program\n", cli.Visible(v.Issuer), v.AuditedAt, v.Version)
	var signatures int64
	for _, o := range v.Organizations {
		b.Sayf("organization %s: %d events, history digest %s\n", o.Organization, o.Events, o.Digest)
		signatures += o.Sums.Records + o.Sums.Certificates
	}
	if c := v.Against; c != nil {
		b.Sayf("compared with the bundle %s: organization %s, %d events, exported at %s; what was rewritten before is not "+
			"seen\n", cli.Visible(c.Bundle), c.Organization, c.Events, cli.Visible(c.ExportedAt))
	}
	for _, f := range v.Findings {
		b.Sayf("FINDING %s\n", visible{f.Said()})
	}
	if more := v.FindingCount - int64(len(v.Findings)); more > 0 {
		b.Sayf("and %d more findings\n", more)
	}
	if e := v.Exports; e != nil {
		if e.First != nil {
			b.Sayf("exports: %d in %s, from %s to %s; tokens: %d\n", e.Exports, e.Place, *e.First, *e.Last, e.Tokens)
		} else {
			b.Sayf("exports: %d in %s; tokens: %d\n", e.Exports, e.Place, e.Tokens)
		}
		for _, note := range e.Notes {
			b.Sayf("- %s\n", visible{note})
		}
	}
	b.Sayf("%d events in %s, the log at %.0f/s", v.Events,
		time.Duration(v.DurationSeconds*1000)*time.Millisecond, v.EventsPerSecond)
	b.Sayf("; signatures checked: %d", signatures)
	if len(v.Projections) > 0 {
		b.Sayf("; compared with a replay: %s", strings.Join(v.Projections, ", "))
	}
	if l := v.Log; l != nil {
		b.Sayf("\ntransparency log: %d leaves, derived from the events, agree with the stored tree and checkpoint; "+
			"published: %d; root %s", l.Leaves, l.Published, l.Root)
	}
	switch {
	case v.Since != nil:
		b.Sayf("\naudit since the mark of %s; events read: %d; older events, not read again: %d; last whole audit: %s",
			v.Since.MarkedAt, v.Events, v.Since.Events, v.Since.WholeAt)
	case v.Scope == wholeScope:
		b.Sayf("\nwhole audit: every event was read")
	}
	if m := v.Mark; m != nil {
		b.Sayf("\nmark: %s, signed by %s; events: %d; state: %s, bytes: %d", m.File, m.KeyID, m.Events, m.StateFile,
			m.StateBytes)
	}
	b.Sayf("\nnot checked:\n")
	for _, n := range v.NotChecked {
		b.Sayf("- %s\n", n)
	}
	switch {
	case v.FindingCount == 0 && v.Since != nil:
		b.Sayf("verdict: everything that was checked is correct; only the %d events since the mark of %s were read, the %d "+
			"events before it were not read again\n", v.Events, v.Since.MarkedAt, v.Since.Events)
	case v.FindingCount == 0:
		b.Sayf("verdict: everything that was checked is correct\n")
	default:
		b.Sayf("verdict: NOT proven, %d findings; the first: %s\n", v.FindingCount, visible{v.Findings[0].Said()})
	}
	return b
}

// visible quotes a phrase that a terminal would not show unchanged: the names and events of a bundle come from its
// maker, who may be hostile.
type visible struct{ say.Phrase }

func (v visible) Say(c say.Catalogue) (string, bool) {
	said, ok := v.Phrase.Say(c)
	return cli.Visible(said), ok
}

func (v visible) String() string { return say.In(say.Catalogue{}, v) }

// partBuffer is how much of a part is kept in memory before it is written to disk.
const partBuffer = 32 << 10

// partsFile implements audit.Parts with one temporary file, which is unlinked at once, so the space is freed when the
// process ends. A small history stays in memory.
type partsFile struct {
	f      *os.File // nil until the first write
	size   int64
	memory [audit.PartCount][]byte
	chunks [audit.PartCount][]chunk
}

type chunk struct{ from, length int64 }

// Append implements audit.Parts.
func (p *partsFile) Append(part int, more []byte) error {
	p.memory[part] = append(p.memory[part], more...)
	if len(p.memory[part]) < partBuffer {
		return nil
	}
	if p.f == nil {
		f, err := os.CreateTemp("", "integrity-audit-*")
		if err != nil {
			return say.Errorf("space for the audit: %w", err)
		}
		if p.f = f; os.Remove(f.Name()) != nil {
			return say.Errorf("space for the audit: the temporary file cannot be removed")
		}
	}
	n, err := p.f.WriteAt(p.memory[part], p.size)
	if err != nil {
		return say.Errorf("space for the audit (set TMPDIR to a directory with room for a copy of the events): %w", err)
	}
	p.chunks[part] = append(p.chunks[part], chunk{p.size, int64(n)})
	p.size += int64(n)
	p.memory[part] = p.memory[part][:0]
	return nil
}

// Open implements audit.Parts.
func (p *partsFile) Open(part int) io.Reader {
	readers := make([]io.Reader, 0, len(p.chunks[part])+1)
	for _, c := range p.chunks[part] {
		readers = append(readers, io.NewSectionReader(p.f, c.from, c.length))
	}
	return io.MultiReader(append(readers, bytes.NewReader(p.memory[part]))...)
}

// Close frees the disk space.
func (p *partsFile) Close() {
	if p.f != nil {
		p.f.Close()
	}
}
