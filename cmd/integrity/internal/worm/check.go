package worm

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
)

func isRevoked(err error) bool { return errors.Is(err, evidence.ErrRevokedLogKey) }

// ErrEmpty means that there is nothing to compare with.
var ErrEmpty = say.New("it contains no complete export: write the first with integrity export --worm")

// maxReplacements is the largest number of later versions of a file that are read.
const maxReplacements = 8

// readers is the number of exports that are read at a time.
const readers = 8

// Question is what Check compares exports with.
type Question struct {
	Issuer  string                // of the ledger
	Trusted *evidence.TrustedKeys // the pinned keys
	Ledger  Keys                  // that the ledger has published
	Now     time.Time
}

// Keys are the trusted keys of a ledger at a time.
type Keys struct {
	*evidence.TrustedKeys
	At      time.Time
	Place   string
	Missing say.Sentence // the reason why TrustedKeys is nil
}

// Check reads all exports of a log and checks each by itself and against the one before: digests, the issuer, the log's
// signatures, the tokens, and that no key and no revocation has changed or vanished. If the bucket has
// more exports or objects than Check reads, that is a finding and no error: a writer of the bucket must not be able to
// end an audit.
func Check(ctx context.Context, b *blobs.Locked, q Question) (*Report, error) {
	return check(ctx, b, q, limits{maxExports, maxVersions})
}

func check(ctx context.Context, b *blobs.Locked, q Question, most limits) (*Report, error) {
	l, err := most.list(ctx, b, "")
	if err != nil {
		return nil, err
	}
	if len(l.Complete()) == 0 && l.Cut == "" {
		return nil, say.Errorf("%s: %w", b.Name, ErrEmpty)
	}
	bounded, cancel := context.WithTimeout(ctx, l.ReadingTime())
	defer cancel()
	read := make([]*reading, len(l.Exports))
	group, reads := errgroup.WithContext(bounded)
	group.SetLimit(readers)
	keys := &sets{}
	for i, e := range l.Exports {
		read[i] = &reading{Export: e, bucket: b, Question: q, name: evidence.LogName(q.Issuer), sets: keys}
		group.Go(func() error { return read[i].read(reads) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	r := &Report{Place: b.Name}
	if l.Cut != "" {
		r.Findings = append(r.Findings, audit.Finding{
			Check: audit.CheckExport, Place: b.Name,
			Expected: say.Sentencef("at most %d exports and %d objects", most.exports, most.versions),
			Found: say.Sentencef(
				"more: from %q on, nothing was read. Find out who wrote so many, or give the prefix that only exports have", l.Cut,
			),
		})
		r.NotChecked = append(r.NotChecked, say.Sentencef("the exports from %q on: there are too many objects before", l.Cut))
	}
	if l.Others > 0 {
		r.Sayf(
			"objects that belong to no export were not read: %d. The first ones: %s", l.Others, strings.Join(l.Foreign, ", "),
		)
	}
	r.locks(read)
	r.order(read, q.Now, l.Cut == "")
	r.chain(read)
	if err := r.keys(bounded, read, q); err != nil {
		return nil, err
	}
	r.vouching(read, q.Trusted)
	var broken []say.Sentence
	for _, e := range read {
		r.Findings, r.Heads, r.Tokens = append(r.Findings, e.findings...), append(r.Heads, e.heads...), r.Tokens+e.tokens
		if !e.Complete() {
			broken = append(broken, say.Sentencef("the export %s was broken off: it has no manifest", e.Name))
		}
	}
	r.note(broken)
	return r, nil
}

// reading is an export while it is checked.
type reading struct {
	*Export
	Question
	bucket *blobs.Locked
	name   string // of the log
	sets   *sets

	manifest *Manifest
	keys     *keySet   // nil: it cannot be read
	stored   time.Time // when the storage received the checkpoint
	heads    []Head
	tokens   int
	findings []audit.Finding

	uncounted, unpinned        []string // witnesses and authorities that are not pinned
	cosigned                   int
	revoked, unsigned, deleted bool
	unlocked, governed         int
}

// future reports whether the export is dated so far in the future that a wrong clock or somebody else has named it.
func (e *reading) future() bool { return e.At.After(e.Now.Add(24 * time.Hour)) }

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
	case lock.Until.Before(e.Now):
		e.unlocked++
	case lock.Governance:
		e.governed++
	}
	switch file {
	case manifestFile:
		e.manifestSHA256 = sha256Of(text)
	case bundle.CheckpointFile:
		e.stored = first.At
	}
	written := e.files[file]
	e.deleted = e.deleted || written.deleted
	if written.later > len(written.newest) {
		e.found(
			audit.CheckExport, file, say.Sentencef("one version, because exports are never replaced"),
			say.Sentencef("%d later ones, of which %d were read", written.later, len(written.newest)),
		)
	}
	for _, v := range written.newest {
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
			if m.Issuer != e.Question.Issuer {
				e.found(
					audit.CheckExport, manifestFile, say.Sentencef("an export of the issuer %s", e.Question.Issuer),
					say.Sentencef("one of %s", m.Issuer),
				)
			}
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
		set := e.sets.parse(keys)
		if e.keys = set; set.wrong != nil {
			e.keys = nil
			e.found(
				audit.CheckExport, bundle.TrustedKeysFile, say.Sentencef("a trusted-keys file"), say.Sentencef("%v", set.wrong),
			)
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
	c, err := evidence.OpenCheckpoint(note, e.Trusted)
	switch {
	case isRevoked(err):
		e.revoked = true
	case errors.Is(err, evidence.ErrUnknownLogKey) && len(e.Trusted.LogKeys()) == 0:
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
	counted := e.Trusted.Cosigned(string(note), e.Now.Add(time.Minute))
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
	pinned, known := e.Trusted.Authority(s.Authority)
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
