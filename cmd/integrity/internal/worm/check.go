package worm

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
)

func isRevoked(err error) bool { return errors.Is(err, evidence.ErrRevokedLogKey) }

// Head is a signed size and root of the log, and the object that contains it.
type Head struct {
	Place string
	Size  int64
	Root  tlog.Hash
}

// Report is what the exports in a bucket prove by themselves.
type Report struct {
	Place       string // of the exports
	Exports     int    // complete ones
	First, Last time.Time
	TreeSize    int64 // of the last
	Tokens      int
	Heads       []Head
	Findings    []audit.Finding
	Notes       []say.Sentence // facts that are no faults
	NotChecked  []say.Sentence
}

// Sayf adds a note.
func (r *Report) Sayf(format string, args ...any) {
	r.Notes = append(r.Notes, say.Sentencef(format, args...))
}

// ErrEmpty means that there is nothing to compare with.
var ErrEmpty = say.New("it contains no complete export: write the first with integrity export --worm")

// readers is the number of exports that are read at a time.
const readers = 8

// Check reads all exports of a log and checks each by itself and against the one before: digests, the log's signatures,
// the tokens, and that no key and no revocation has vanished. name is the log's name; trusted contains the pinned keys.
func Check(
	ctx context.Context, b *blobs.Locked, name string, trusted *evidence.TrustedKeys, now time.Time,
) (*Report, error) {
	l, err := List(ctx, b, "")
	if err != nil {
		return nil, err
	}
	if len(l.Complete()) == 0 {
		return nil, say.Errorf("%s: %w", b.Name, ErrEmpty)
	}
	read := make([]*reading, len(l.Exports))
	group, reads := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, e := range l.Exports {
		read[i] = &reading{Export: e, bucket: b, name: name, trusted: trusted, now: now}
		group.Go(func() error { return read[i].read(reads) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	r := &Report{Place: b.Name}
	if l.Others > 0 {
		r.Sayf("%d objects that belong to no export were not read; the first: %s", l.Others, strings.Join(l.Foreign, ", "))
	}
	r.locks(read)
	r.order(read, now)
	r.chain(read)
	r.keys(read, trusted)
	r.vouching(read, trusted)
	for _, e := range read {
		r.Findings, r.Heads, r.Tokens = append(r.Findings, e.findings...), append(r.Heads, e.heads...), r.Tokens+e.tokens
		if !e.Complete() {
			r.Sayf("the export %s was broken off: it has no manifest", e.Name)
		}
	}
	return r, nil
}

// reading is an export while it is checked.
type reading struct {
	*Export
	bucket  *blobs.Locked
	name    string
	trusted *evidence.TrustedKeys
	now     time.Time

	manifest *Manifest
	keys     *evidence.TrustedKeys
	stored   time.Time // when the storage received the checkpoint
	heads    []Head
	tokens   int
	findings []audit.Finding

	uncounted, unpinned          []string // witnesses and authorities that are not pinned
	cosigned                     int
	revoked, unsigned, hidden    bool
	unlocked, governed, rewrites int
}

func (e *reading) place(file string) string { return e.bucket.Name + "/" + e.Name + "/" + file }

func (e *reading) found(check audit.Check, file string, expected, found say.Sentence) {
	e.findings = append(e.findings, audit.Finding{Check: check, Place: e.place(file), Expected: expected, Found: found})
}

// load reads the first version of a file. It adds a finding if a later version differs.
func (e *reading) load(ctx context.Context, file string, most int64) (text []byte, ok bool, err error) {
	first, ok := e.original(file)
	if !ok {
		return nil, false, nil
	}
	text, lock, err := e.bucket.Read(ctx, first, most)
	if err != nil {
		return nil, false, err
	}
	switch {
	case lock.Until.Before(e.now):
		e.unlocked++
	case lock.Governance:
		e.governed++
	}
	e.Export.manifestSHA256 = cond(file == manifestFile, sha256Of(text), e.Export.manifestSHA256)
	e.stored = cond(file == bundle.CheckpointFile, first.At, e.stored)
	e.hidden = e.hidden || e.Export.hidden(file)
	for _, v := range e.replacements(file) {
		later, _, err := e.bucket.Read(ctx, v, most)
		if err != nil {
			return nil, false, err
		}
		if !slices.Equal(later, text) {
			e.found(
				audit.CheckExport, file, say.Sentencef("one version, because exports are never replaced"),
				say.Sentencef("another one, written at %s; the first was read", evidence.FormatTime(v.At)),
			)
		}
	}
	return text, true, nil
}

func cond[T any](holds bool, a, b T) T {
	if holds {
		return a
	}
	return b
}

// read reads and checks the files of the export.
func (e *reading) read(ctx context.Context) error {
	text, complete, err := e.load(ctx, manifestFile, maxManifest)
	if err != nil {
		return err
	}
	if complete {
		if m, err := readManifest(text, e.Name); err != nil {
			e.found(
				audit.CheckExport, manifestFile, say.Sentencef("a manifest as integrity export writes it"),
				say.Sentencef("%v", err),
			)
		} else {
			e.manifest = &m
		}
	}
	if err := e.readCheckpoint(ctx); err != nil {
		return err
	}
	keys, ok, err := e.file(ctx, bundle.TrustedKeysFile, maxKeys, func(m *Manifest) bundle.File { return m.TrustedKeys })
	if err != nil {
		return err
	}
	if ok {
		if e.keys, err = evidence.ParseTrustedKeys(keys); err != nil {
			e.found(audit.CheckExport, bundle.TrustedKeysFile, say.Sentencef("a trusted-keys file"), say.Sentencef("%v", err))
		}
	}
	if e.manifest == nil {
		return nil
	}
	for _, s := range e.manifest.Stamps {
		if err := e.readStamp(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// file reads a file and compares it with the manifest, if there is one.
func (e *reading) file(
	ctx context.Context, file string, most int64, entry func(*Manifest) bundle.File,
) (text []byte, ok bool, err error) {
	text, ok, err = e.load(ctx, file, most)
	if err != nil || e.manifest == nil {
		return text, ok, err
	}
	if !ok {
		e.found(audit.CheckFile, file, say.Sentencef("the file that the manifest names"), say.Sentencef("no such file"))
	} else {
		for _, f := range entry(e.manifest).Compare(bundle.Describe(file, text)) {
			f.Place = e.place(file)
			e.findings = append(e.findings, f)
		}
	}
	return text, ok, nil
}

// open opens a checkpoint of the export and adds its head.
func (e *reading) open(file, note string, size int64) (c evidence.Checkpoint, ok bool) {
	c, err := evidence.OpenCheckpoint(note, e.trusted)
	switch {
	case isRevoked(err):
		e.revoked = true
	case errors.Is(err, evidence.ErrUnknownLogKey) && len(e.trusted.LogKeys()) == 0:
		e.unsigned = true
	case err != nil:
		e.found(audit.CheckLog, file, say.Sentencef("a checkpoint signed by a trusted log key"), say.Sentencef("%v", err))
		return c, false
	}
	if c.Origin != e.name {
		e.found(audit.CheckLog, file, say.Sentencef("a checkpoint of %s", e.name), say.Sentencef("one of %s", c.Origin))
		return c, false
	}
	if c.Size != size {
		e.found(audit.CheckLog, file, say.Sentencef("a checkpoint of %d leaves", size), say.Sentencef("one of %d", c.Size))
		return c, false
	}
	e.heads = append(e.heads, Head{e.place(file), c.Size, c.Root})
	return c, true
}

func (e *reading) readCheckpoint(ctx context.Context) error {
	const file = bundle.CheckpointFile
	note, ok, err := e.file(ctx, file, maxCheckpoint, func(m *Manifest) bundle.File { return m.Checkpoint })
	if err != nil || !ok {
		return err
	}
	c, ok := e.open(file, string(note), e.Size)
	if !ok {
		return nil
	}
	if root := base64.StdEncoding.EncodeToString(c.Root[:]); e.manifest != nil && e.manifest.RootHash != root {
		e.found(
			audit.CheckLog, file, say.Sentencef("the root %s, by the manifest", e.manifest.RootHash),
			say.Sentencef("%s", root),
		)
	}
	counted := e.trusted.Cosigned(string(note), e.now.Add(time.Minute))
	e.cosigned = len(counted)
	for _, name := range c.Witnesses {
		if !slices.Contains(counted, name) {
			e.uncounted = append(e.uncounted, name)
		}
	}
	return nil
}

func (e *reading) readStamp(ctx context.Context, s Stamp) error {
	file, tokenFile := stampFiles(s.Authority)
	note, ok, err := e.file(ctx, file, maxCheckpoint, func(*Manifest) bundle.File { return s.Checkpoint })
	if err != nil {
		return err
	}
	token, hasToken, err := e.file(ctx, tokenFile, maxToken, func(*Manifest) bundle.File { return s.Token })
	if err != nil || !ok || !hasToken {
		return err
	}
	if _, ok := e.open(file, string(note), s.TreeSize); !ok {
		return nil
	}
	pinned, known := e.trusted.Authority(s.Authority)
	if !known {
		e.unpinned = append(e.unpinned, s.Authority)
		return nil
	}
	if _, err := pinned.CheckStamp(token, string(note)); err != nil {
		e.found(
			audit.CheckLog, tokenFile, say.Sentencef("the authority's token for the checkpoint beside it"),
			say.Sentencef("%v", err),
		)
		return nil
	}
	e.tokens++
	return nil
}

// locks reports how far the storage itself protects the exports.
func (r *Report) locks(read []*reading) {
	var unlocked, governed, hidden int
	var first string
	for _, e := range read {
		if e.unlocked > 0 {
			unlocked++
			if first == "" {
				first = e.Name
			}
		}
		if e.governed > 0 {
			governed++
		}
		if e.hidden {
			hidden++
			r.Sayf("objects of the export %s were deleted later; their locked versions were read", e.Name)
		}
	}
	if unlocked > 0 {
		r.Sayf(
			"%d exports are not locked, or no longer, or these credentials may not read the lock (s3:GetObjectRetention); the "+
				"owner of the bucket could have replaced them; the first: %s", unlocked, first,
		)
	}
	if governed > 0 {
		r.Sayf(
			"%d exports are locked in governance mode only: privileged users of the bucket could have replaced them", governed,
		)
	}
}

// order reports days without an export, and exports that do not continue the one before.
func (r *Report) order(read []*reading, now time.Time) {
	var before *reading
	var missing, dated int
	var otherwise string
	gaps := []say.Sentence{}
	missed := func(until time.Time) {
		from, to := before.At.Truncate(24*time.Hour).AddDate(0, 0, 1), until.Truncate(24*time.Hour).AddDate(0, 0, -1)
		if days := int(to.Sub(from)/(24*time.Hour)) + 1; days > 0 {
			missing += days
			gaps = append(gaps, cond(
				days == 1, say.Sentencef("%s", from.Format(nameDay)),
				say.Sentencef("%s to %s", from.Format(nameDay), to.Format(nameDay)),
			))
		}
	}
	for _, e := range read {
		if !e.Complete() {
			continue
		}
		if d := e.stored.Sub(e.At).Abs(); !e.stored.IsZero() && d > 24*time.Hour {
			if dated++; dated == 1 {
				otherwise = e.Name
			}
		}
		r.Exports++
		if e.At.After(now.Add(24 * time.Hour)) {
			r.Sayf("the export %s is dated in the future", e.Name)
			continue
		}
		if before == nil {
			r.First = e.At
		} else {
			missed(e.At)
			if e.Size < before.Size && !e.stored.Before(before.stored) {
				e.found(
					audit.CheckExport, bundle.CheckpointFile,
					say.Sentencef("a log of at least %d leaves, as in the export %s", before.Size, before.Name),
					say.Sentencef("one of %d", e.Size),
				)
			}
		}
		r.Last, r.TreeSize, before = e.At, e.Size, e
	}
	if before != nil {
		missed(now.UTC())
	}
	const most = 20
	if len(gaps) > most {
		gaps = append(gaps[:most], say.Sentencef("…"))
	}
	if missing > 0 {
		r.Sayf("days without an export (%d): %s", missing, say.Join(gaps, ", "))
	}
	if dated > 0 {
		r.Sayf(
			"the storage received %d exports on another day than their names say, as after a copy or with a wrong clock; the "+
				"first: %s", dated, otherwise,
		)
	}
}

// chain checks that each export still has the one that its manifest names as the previous, and that no two exports name
// different roots for one size.
func (r *Report) chain(read []*reading) {
	byName, roots := map[string]*reading{}, map[int64]Head{}
	for _, e := range read {
		byName[e.Name] = e
	}
	for _, e := range read {
		for _, h := range e.heads {
			if first, known := roots[h.Size]; !known {
				roots[h.Size] = h
			} else if first.Root != h.Root {
				r.Findings = append(r.Findings, audit.Finding{
					Check: audit.CheckExport, Place: h.Place,
					Expected: say.Sentencef("the root %s of %d leaves, as in %s", first.Root, h.Size, first.Place),
					Found:    say.Sentencef("%s: the log has signed two histories", h.Root),
				})
			}
		}
		if e.manifest == nil || e.manifest.Previous == nil {
			continue
		}
		p := e.manifest.Previous
		switch before := byName[p.Export]; {
		case before == nil && p.Export < read[0].Name:
			r.Sayf("the exports before %s are gone", e.Name)
		case before == nil || !before.Complete():
			e.found(
				audit.CheckExport, manifestFile, say.Sentencef("the export %s, which came before", p.Export),
				say.Sentencef("no such export"),
			)
		case before.manifestSHA256 != p.SHA256:
			before.found(
				audit.CheckExport, manifestFile, say.Sentencef("the manifest of SHA-256 %s that %s names", p.SHA256, e.Name),
				say.Sentencef("%s", before.manifestSHA256),
			)
		}
	}
}

// keys checks that every key and revocation of an export is in the next one, and that those of the last are in the
// pinned set.
func (r *Report) keys(read []*reading, trusted *evidence.TrustedKeys) {
	var before *reading
	compare := func(later *evidence.TrustedKeys, place string) {
		for _, gone := range lacking(before.keys, later) {
			r.Findings = append(r.Findings, audit.Finding{
				Check: audit.CheckExport, Place: place,
				Expected: say.Sentencef("%s, as in the export %s", gone, before.Name), Found: say.Sentencef("none"),
			})
		}
	}
	for _, e := range read {
		if e.keys == nil {
			continue
		}
		if before != nil {
			compare(e.keys, e.place(bundle.TrustedKeysFile))
		}
		before = e
	}
	if before != nil {
		compare(trusted, "trusted keys")
	}
}

// lacking lists the keys and revocations that a later set lacks. Neither is ever removed.
func lacking(earlier, later *evidence.TrustedKeys) (gone []say.Sentence) {
	revoked := map[string]bool{}
	for _, r := range later.Revoked() {
		revoked[r.KeyID] = true
	}
	for _, k := range earlier.Keys() {
		if found, _ := later.Lookup(k.KeyID); found.PublicKey != k.PublicKey && !revoked[k.KeyID] {
			gone = append(gone, say.Sentencef("the signing key %s", k.KeyID))
		}
	}
	for _, k := range earlier.LogKeys() {
		if !slices.Contains(later.LogKeys(), k) {
			gone = append(gone, say.Sentencef("the log key %s", k.VerifierKey))
		}
	}
	for _, k := range earlier.Revoked() {
		if !revoked[k.KeyID] {
			gone = append(gone, say.Sentencef("the revocation of the key %s", k.KeyID))
		}
	}
	return gone
}

// vouching reports what witnesses and authorities have signed, and what could not be checked.
func (r *Report) vouching(read []*reading, trusted *evidence.TrustedKeys) {
	cosigned, revoked, unsigned := 0, 0, false
	uncounted, unpinned := map[string]bool{}, map[string]bool{}
	var names, authorities []string
	for _, e := range read {
		if e.cosigned > 0 {
			cosigned++
		}
		if e.revoked {
			revoked++
		}
		unsigned = unsigned || e.unsigned
		for _, name := range e.uncounted {
			if !uncounted[name] {
				uncounted[name], names = true, append(names, name)
			}
		}
		for _, name := range e.unpinned {
			if !unpinned[name] {
				unpinned[name], authorities = true, append(authorities, name)
			}
		}
	}
	if len(trusted.Witnesses()) > 0 {
		r.Sayf("%d exports are cosigned by a pinned witness", cosigned)
	}
	if names != nil {
		r.Sayf("cosignatures that are not by a pinned witness, or do not hold, were not counted: %s", strings.Join(names, ", "))
	}
	if revoked > 0 {
		r.Sayf("%d exports have a checkpoint of a log key that was revoked later", revoked)
	}
	if unsigned {
		r.NotChecked = append(r.NotChecked, say.Sentencef(
			"the signatures of the exported checkpoints: the trusted-keys file has no log key",
		))
	}
	if authorities != nil {
		r.NotChecked = append(r.NotChecked, say.Sentencef(
			"who signed the exported tokens of %s: the trusted keys pin no certificate under the name",
			strings.Join(authorities, ", "),
		))
	}
	r.NotChecked = append(r.NotChecked,
		say.Sentencef("whether the history was rewritten before the first export, of %s", evidence.FormatTime(r.First)),
		say.Sentencef("the history since the last export, of %s with %d leaves", evidence.FormatTime(r.Last), r.TreeSize))
}
