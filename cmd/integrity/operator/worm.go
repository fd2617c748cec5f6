package operator

import (
	"context"
	"errors"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/internal/worm"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/transparency"
)

// WormView is the JSON output of integrity export --worm.
type WormView struct {
	Export   string  `json:"export"`
	Written  bool    `json:"written"` // false if there was one of this day already
	TreeSize int64   `json:"treeSize"`
	Tokens   int     `json:"tokens"`
	Until    *string `json:"lockedUntil"`
}

// exportWorm writes the newest checkpoint, the newest tokens and the trusted keys to locked storage.
func (a *app) exportWorm(v *verb, cfg *config.Config) error {
	trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
	if err != nil {
		return err
	}
	keys, err := keyfiles.ReadFile(cfg.TrustedKeysPath())
	if err != nil {
		return say.Errorf("trusted keys: %w", err)
	}
	b, err := blobs.OpenLocked(cfg.Worm, true)
	if err != nil {
		return say.Errorf("--worm: %w", err)
	}
	return ledger.With(a.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
		view, err := a.writeWorm(ctx, l, b, trusted, keys)
		if err != nil {
			return err
		}
		if !view.Written {
			return v.print(view, say.Sentencef("nothing written: today's export exists already, %s\n", view.Export))
		}
		lines := text{say.Sentencef(
			"%s\nleaves: %d, tokens: %d, and the trusted keys; locked until %s\n", view.Export, view.TreeSize, view.Tokens,
			*view.Until,
		)}
		if b.Governance() {
			lines.Sayf("WARNING: in governance mode privileged users of the bucket can delete exports: use " +
				"object-lock=compliance\n")
		}
		return v.print(view, lines)
	})
}

// writeWorm writes an export unless there is one of today. Whatever contradicts an earlier export, or is not signed as
// it should be, is not exported: the error is then a negative answer.
func (a *app) writeWorm(
	ctx context.Context, l *ledger.Opened, b *blobs.Locked, trusted *evidence.TrustedKeys, keys []byte,
) (view WormView, err error) {
	name := evidence.LogName(l.Installation.Issuer)
	if err := b.CheckLock(ctx); err != nil {
		return view, say.Errorf("--worm: %w", err)
	}
	listed, err := worm.List(ctx, b, "")
	if err != nil {
		return view, say.Errorf("--worm: %s: %w", b.Name, err)
	}
	c := worm.Content{Issuer: l.Installation.Issuer, At: a.Now(), TrustedKeys: keys}
	log := &transparency.Reader{Pool: l.Read}
	reading, cancel := context.WithTimeout(ctx, listed.ReadingTime())
	defer cancel()
	for _, e := range listed.Newest(c.At) {
		head, err := e.Open(reading, b, trusted)
		if err == nil && e.Issuer != c.Issuer {
			return view, say.Errorf("--worm: %s contains exports of %s: give each log a prefix of its own", b.Name, e.Issuer)
		}
		if _, unreadable := errors.AsType[*worm.UnreadableError](err); unreadable {
			err = cli.Negative(err)
		}
		if err != nil {
			return view, say.Errorf("--worm: %w", err)
		}
		if head.Origin != name {
			return view, say.Errorf("--worm: %s contains exports of %s: give each log a prefix of its own", b.Name, head.Origin)
		}
		h := worm.Head{Place: b.Name + "/" + e.Name + "/" + bundle.CheckpointFile, Size: head.Size, Root: head.Root}
		if err := sameLog(ctx, log, h); err != nil {
			return view, err
		}
		if c.Previous == nil {
			c.Previous = e
		}
	}
	vouched, err := log.Vouched(ctx)
	if err != nil {
		return view, err
	}
	if vouched.Checkpoint == "" {
		return view, transparency.ErrNoCheckpoint
	}
	c.Checkpoint = vouched.Checkpoint
	if c.Head, err = evidence.OpenCheckpoint(c.Checkpoint, trusted); err == nil && c.Head.Origin != name {
		err = say.Errorf("its origin is %s", c.Head.Origin)
	}
	if err != nil {
		return view, cli.Negativef("the newest checkpoint is not exported: %w", err)
	}
	newest := worm.Head{Place: "transparency_checkpoint", Size: c.Head.Size, Root: c.Head.Root}
	if err := sameLog(ctx, log, newest); err != nil {
		return view, err
	}
	if c.Previous != nil && c.Previous.Size > c.Head.Size {
		return view, cli.Negativef(
			"nothing is exported: the newest checkpoint has %d leaves, fewer than the export %s", c.Head.Size, c.Previous.Name,
		)
	}
	for _, s := range vouched.Stamps {
		root, fault, err := log.RootAt(ctx, s.TreeSize)
		if err != nil {
			return view, err
		}
		if fault == nil {
			fault = s.Check(root, trusted)
		}
		switch {
		case errors.Is(fault, transparency.ErrUnpinned): // the operator no longer uses it
		case fault != nil:
			return view, cli.Negativef(
				"nothing is exported: the token of %s for %d leaves: %w", s.Authority, s.TreeSize, fault,
			)
		default:
			c.Stamps = append(c.Stamps, s)
		}
	}
	if today := listed.On(c.At); today != nil {
		return WormView{Export: b.Name + "/" + today.Name, TreeSize: today.Size}, nil
	}
	written, m, err := worm.Write(ctx, b, c)
	if err != nil {
		return view, say.Errorf("--worm: %w", err)
	}
	until := cli.TimeText(b.Until(c.At))
	return WormView{b.Name + "/" + written, true, m.TreeSize, len(m.Stamps), &until}, nil
}

// sameLog returns a negative answer unless the stored tree contains a head.
func sameLog(ctx context.Context, log *transparency.Reader, h worm.Head) error {
	root, fault, err := log.RootAt(ctx, h.Size)
	if err == nil && fault == nil && root != h.Root {
		fault = say.Errorf("its root is %s, but the database has %s", h.Root, root)
	}
	if err == nil && fault != nil {
		err = cli.Negativef("nothing is exported: the database contradicts %s of %d leaves: %w", h.Place, h.Size, fault)
	}
	return err
}

// exportsView is what an audit has read in locked storage.
type exportsView struct {
	Place    string         `json:"place"`
	Exports  int            `json:"exports"`
	First    *string        `json:"first"` // null if no export with a past date was read
	Last     *string        `json:"last"`
	TreeSize int64          `json:"treeSize"` // of the last
	Tokens   int            `json:"tokens"`   // that verify
	Notes    []say.Sentence `json:"notes"`
}

// readWorm reads and checks the exports that --against names; nil if it names none. ledger returns the keys of what is
// audited.
func (o *auditOptions) readWorm(
	ctx context.Context, issuer string, ledger func() (worm.Keys, error),
) (*worm.Report, error) {
	if o.worm == nil {
		return nil, nil //nolint:nilnil // documented
	}
	keys, err := ledger()
	if err != nil {
		return nil, err
	}
	r, err := worm.Check(ctx, o.worm, worm.Question{Issuer: issuer, Trusted: o.Trusted, Ledger: keys, Now: o.Start})
	if err != nil {
		return nil, say.Errorf("--against: %w", err)
	}
	return r, nil
}

// ledgerKeys returns the trusted keys that the ledger has published in its transparency log.
func ledgerKeys(ctx context.Context, l *ledger.Opened) (worm.Keys, error) {
	last, _, err := transparency.ReadPublishedKeys(ctx, l.Read)
	switch {
	case errors.Is(err, transparency.ErrNoKeySet):
		return worm.Keys{
			Missing: say.Sentencef("it has published none in its transparency log (integrity keys publish)"),
		}, nil
	case errors.Is(err, history.ErrDamaged): // which the audit reports
		return worm.Keys{Missing: say.Sentencef("the ones that it has published are damaged in the database")}, nil
	}
	return worm.Keys{TrustedKeys: last.Trusted, At: last.Event.OccurredAt, Place: "keys.published"}, err
}

// exports adds what the exports prove by themselves.
func (v *auditView) exports(r *worm.Report) {
	v.Exports = &exportsView{
		Place: r.Place, Exports: r.Exports, TreeSize: r.TreeSize, Tokens: r.Tokens,
		Notes: append([]say.Sentence{}, r.Notes...),
	}
	if !r.First.IsZero() {
		v.Exports.First, v.Exports.Last = new(cli.TimeText(r.First)), new(cli.TimeText(r.Last))
	}
	for _, f := range r.Findings {
		v.found(f)
	}
	v.FindingCount += r.More
	v.NotChecked = append(v.NotChecked, r.NotChecked...)
}

// continues compares the heads of exports with the tree of the database, which transparency.Check has derived.
func (v *auditView) continues(ctx context.Context, log *transparency.Reader, heads []worm.Head) error {
	for _, h := range heads {
		root, fault, err := log.RootAt(ctx, h.Size)
		if err != nil {
			return err
		}
		found := say.Sentencef("%s: the history was rewritten or lost", root)
		if fault != nil {
			found = say.Sentencef("%v: the history was rewritten or lost", fault)
		} else if root == h.Root {
			continue
		}
		v.found(audit.Finding{
			Check: audit.CheckExport, Place: h.Place,
			Expected: say.Sentencef("the exported root %s of the first %d leaves in the database", h.Root, h.Size),
			Found:    found,
		})
	}
	return nil
}

// sameHeads compares the checkpoint in a bundle with the exports of the same size. Without the tree, others cannot be
// compared.
func (v *auditView) sameHeads(note string, heads []worm.Head) {
	c, err := evidence.OpenCheckpoint(note, nil)
	if err != nil && !errors.Is(err, evidence.ErrUnknownLogKey) {
		return // reported already
	}
	same := false
	for _, h := range heads {
		if h.Size != c.Size {
			continue
		}
		if same = true; h.Root != c.Root {
			v.found(audit.Finding{
				Check: audit.CheckExport, Place: bundle.CheckpointFile,
				Expected: say.Sentencef("the root %s of %d leaves, as in %s", h.Root, h.Size, h.Place),
				Found:    say.Sentencef("%s: the log has signed two histories", c.Root),
			})
		}
	}
	if !same {
		v.notChecked(
			"whether the log of the exports is the bundle's: no export has the size of its checkpoint, and a bundle does not " +
				"contain the tree (audit the database with --against)",
		)
	}
}

const (
	// lateExport is the age at which the newest export counts as missed.
	lateExport = 36 * time.Hour
	// recentExports is how far back the newest export is looked for.
	recentExports = 31 * 24 * time.Hour
	// aheadExport is how far the clock that dates exports may be ahead.
	aheadExport = 5 * time.Minute
)

// exports checks that the last daily export was written.
func (d *doctor) exports(ctx context.Context) {
	const check = "exports"
	if d.cfg.Worm == "" {
		return
	}
	looking, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	b, err := blobs.OpenLocked(d.cfg.Worm, true)
	var listed worm.Listing
	if err == nil {
		err = b.CheckLock(looking)
	}
	if err == nil {
		listed, err = worm.List(looking, b, worm.Since(d.Now().Add(-recentExports)))
	}
	do := say.Sentencef("run integrity export --worm, and look at its timer: systemctl list-timers integrity-export.timer")
	var last *worm.Export
	until := d.Now().Add(aheadExport)
	if newest := listed.Newest(until); len(newest) > 0 && !newest[0].At.After(until) {
		last = newest[0]
	}
	for _, e := range listed.Future(until) {
		d.warn(
			check, say.Sentencef("the export %s is dated in the future, so it does not count", e.Name),
			say.Sentencef("find out who wrote it: a wrong clock, or somebody who wants to hide that exports are missing"),
		)
		break // the first is enough
	}
	if err == nil && last != nil {
		_, err = last.ReadManifest(looking, b)
	}
	unreadable, wrong := errors.AsType[*worm.UnreadableError](err)
	switch {
	case wrong:
		d.warn(check, said(unreadable), say.Sentencef("run integrity audit --against, and find out who wrote it"))
	case err != nil:
		d.warn(check, said(err), say.Sentencef("no checkpoint is exported until it answers; see the operators' manual, "+
			"Exports"))
	case last == nil:
		d.warn(check, say.Sentencef("%s has no export of the last 31 days", b.Name), do)
	case d.issuer != "" && last.Issuer != d.issuer:
		d.warn(
			check, say.Sentencef("the last export, %s, is of %s, but this installation is %s", last.Name, last.Issuer, d.issuer),
			say.Sentencef("give each installation a prefix of its own in INTEGRITY_WORM"),
		)
	default:
		found := say.Sentencef("the last export was made at %s and has %d leaves", cli.TimeText(last.At), last.Size)
		d.first(check, found, verdict{d.Now().Sub(last.At) > lateExport, stateWarn, found, do})
	}
}
