package worm

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
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
// signatures, the tokens, and that no key and no revocation has changed or vanished. A writer of the bucket must not be
// able to end an audit. So it is a finding and no error if the bucket has more exports or objects than Check reads, if
// reading them takes too long, or if the storage refuses to give some of them.
func Check(ctx context.Context, b *blobs.Locked, q Question) (*Report, error) {
	return check(ctx, b, q, limits{exports: maxExports, versions: maxVersions})
}

func check(ctx context.Context, b *blobs.Locked, q Question, most limits) (*Report, error) {
	l, err := most.list(ctx, b, "")
	if err != nil {
		return nil, err
	}
	if len(l.Complete()) == 0 && l.Cut == "" {
		return nil, say.Errorf("%s: %w", b.Name, ErrEmpty)
	}
	limit := cmp.Or(most.time, l.ReadingTime())
	read, late, err := l.read(ctx, b, q, limit, &sets{})
	if err != nil {
		return nil, err
	}
	r := &Report{Place: b.Name}
	if l.Cut != "" {
		r.bucket(
			say.Sentencef("at most %d exports and %d objects", most.exports, most.versions),
			say.Sentencef(
				"more: from %q on, nothing was read. Find out who wrote so many, or give the prefix that only exports have", l.Cut,
			),
		)
		r.NotChecked = append(r.NotChecked, say.Sentencef("the exports from %q on: there are too many objects before", l.Cut))
	}
	if late != "" {
		r.bucket(
			say.Sentencef("exports that the storage sends within %s", limit),
			say.Sentencef("fewer: from %q on, nothing was compared. Audit again when the storage answers faster", late),
		)
		r.NotChecked = append(r.NotChecked, say.Sentencef("the exports from %q on: reading took too long", late))
	}
	whole := l.Cut == "" && late == ""
	if err := r.refused(read); err != nil && whole {
		return nil, err
	}
	if l.Others > 0 {
		r.Sayf(
			"objects that belong to no export were not read: %d. The first ones: %s", l.Others, strings.Join(l.Foreign, ", "),
		)
	}
	r.locks(read)
	r.begin(maxFindings / 5)
	r.histories(read)
	r.begin(maxFindings / 5)
	r.order(read, q.Now, whole)
	r.chain(read)
	r.begin(maxFindings / 5)
	comparing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := r.keys(comparing, read, q); ctx.Err() != nil {
		return nil, ctx.Err()
	} else if err != nil {
		r.bucket(
			say.Sentencef("trusted keys that can be compared within %s", limit),
			say.Sentencef("more: find out who wrote so many different ones"),
		)
		r.NotChecked = append(r.NotChecked, say.Sentencef("whether keys vanished or changed: comparing them took too long"))
	}
	r.vouching(read, q.Trusted)
	r.begin(maxFindings / 5)
	var broken []say.Sentence
	for _, e := range read {
		r.found(e.findings...)
		if e.more > 0 {
			r.found(audit.Finding{
				Check: audit.CheckExport, Place: b.Name + "/" + e.Name,
				Expected: say.Sentencef("the objects of an export as integrity export writes them"),
				Found:    say.Sentencef("%d more differences", e.more),
			})
		}
		r.Heads, r.Tokens = append(r.Heads, e.heads...), r.Tokens+e.tokens
		switch {
		case e.Complete():
		case l.Cut == "":
			broken = append(broken, say.Sentencef("the export %s was broken off: it has no manifest", e.Name))
		default: // some servers do not list by name
			broken = append(broken, say.Sentencef("the export %s has no manifest among the objects that were listed", e.Name))
		}
	}
	r.note(broken)
	return r, nil
}

// read reads the exports. If the time is up, it returns those before the first that was not read, and its name.
func (l Listing) read(
	ctx context.Context, b *blobs.Locked, q Question, limit time.Duration, keys *sets,
) (read []*reading, late string, err error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	group, reads := errgroup.WithContext(bounded)
	group.SetLimit(readers)
	turn := make(chan struct{})
	close(turn)
	for _, one := range l.Exports {
		e := &reading{
			Export: one, Question: q, bucket: b, name: evidence.LogName(q.Issuer), sets: keys, turn: turn,
			next: make(chan struct{}),
		}
		read, turn = append(read, e), e.next
		group.Go(func() error { return e.read(reads) })
	}
	err = group.Wait()
	if err == nil || ctx.Err() != nil || bounded.Err() == nil {
		return read, "", err
	}
	i := slices.IndexFunc(read, func(e *reading) bool { return !e.done })
	return read[:i], read[i].Name, nil
}

// reading is an export while it is checked.
type reading struct {
	*Export
	Question
	bucket *blobs.Locked
	name   string // of the log
	sets   *sets
	turn   <-chan struct{} // closed when the keys of the exports before are parsed
	next   chan struct{}   // closed when its own keys are, too

	done     bool
	manifest *Manifest
	keys     *keySet   // nil: it cannot be read
	stored   time.Time // when the storage received the checkpoint
	heads    []Head
	tokens   int
	findings []audit.Finding // the first maxListed
	more     int             // number of the others

	answered bool   // the storage has given a version
	refused  error  // the first refusal of the storage
	unread   string // the first object that it refused
	unreads  int    // number of all such objects

	uncounted, unpinned        []string // witnesses and authorities that are not pinned
	cosigned                   int
	revoked, unsigned, deleted bool
	surplus                    bool // there were too many different trusted-keys files before
	unlocked, governed         int
}

// future reports whether the export is dated so far in the future that a wrong clock or somebody else has named it.
func (e *reading) future() bool { return e.At.After(e.Now.Add(24 * time.Hour)) }

func (e *reading) place(file string) string { return e.bucket.Name + "/" + e.Name + "/" + file }

func (e *reading) finding(check audit.Check, file string, expected, found say.Sentence) audit.Finding {
	return audit.Finding{Check: check, Place: e.place(file), Expected: expected, Found: found}
}

func (e *reading) found(check audit.Check, file string, expected, found say.Sentence) {
	e.add(e.finding(check, file, expected, found))
}

func (e *reading) add(f audit.Finding) {
	if len(e.findings) == maxListed {
		e.more++
		return
	}
	e.findings = append(e.findings, f)
}

// give reads a version of a file. It is a finding if the storage refuses to give it: a writer of the bucket can store a
// version in an archive, under a key or in an account that the auditor cannot use.
func (e *reading) give(
	ctx context.Context, file string, v blobs.Version, most int64,
) (text []byte, lock blobs.Lock, ok bool, err error) {
	text, lock, err = e.bucket.Read(ctx, v, most)
	if err == nil {
		e.answered = true
		return text, lock, true, nil
	}
	code, refused := refusal(err)
	if !refused {
		return nil, lock, false, err
	}
	if e.refused == nil {
		e.refused = err
	}
	e.found(
		audit.CheckExport, file, say.Sentencef("an object that can be read"),
		say.Sentencef("a version written at %s that cannot be read: %.100s", evidence.FormatTime(v.At), code),
	)
	return nil, lock, false, nil
}

// refusal returns the code with which the storage refuses an object for good. Errors about the credentials, the clock
// or too many requests concern no object.
func refusal(err error) (code string, ok bool) {
	response, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok || response.StatusCode/100 != 4 {
		return "", false
	}
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests, 499:
		return "", false
	}
	switch response.Code {
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId",
		"SignatureDoesNotMatch", "RequestTimeTooSkewed", "RequestTimeout", "RequestLimitExceeded", "RequestThrottled",
		"Throttling", "ThrottlingException":
		return "", false
	}
	return response.Code, true
}

// load reads the first version of a file. It adds a finding if a later version differs.
func (e *reading) load(ctx context.Context, file string, most int64) (text []byte, ok bool, err error) {
	first, ok := e.original(file)
	if !ok {
		return nil, false, nil
	}
	written := e.files[file]
	e.deleted = e.deleted || written.deleted
	if file == bundle.CheckpointFile {
		e.stored = first.At
	}
	text, lock, ok, err := e.give(ctx, file, first, most)
	if err != nil {
		return nil, false, err
	}
	if !ok {
		if e.unreads++; e.unreads == 1 {
			e.unread = e.place(file)
		}
		return nil, false, nil
	}
	switch {
	case lock.Until.Before(e.Now):
		e.unlocked++
	case lock.Governance:
		e.governed++
	}
	if file == manifestFile {
		e.manifestSHA256 = sha256Of(text)
	}
	if written.later > len(written.newest) {
		e.found(
			audit.CheckExport, file, say.Sentencef("one version, because exports are never replaced"),
			say.Sentencef("%d later ones, of which %d were read", written.later, len(written.newest)),
		)
	}
	for _, v := range written.newest {
		later, _, ok, err := e.give(ctx, file, v, most)
		if err != nil {
			return nil, false, err
		}
		if ok && !slices.Equal(later, text) {
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
	select {
	case <-e.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	if ok {
		if e.keys, e.surplus, err = e.sets.parse(keys); err != nil {
			e.found(audit.CheckExport, bundle.TrustedKeysFile, say.Sentencef("a trusted-keys file"), say.Sentencef("%v", err))
		}
	}
	close(e.next)
	if e.manifest != nil {
		for _, s := range e.manifest.Stamps {
			if err := e.readStamp(ctx, s); err != nil {
				return err
			}
		}
		e.manifest.Stamps = nil // no longer used
	}
	e.done = true
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
	if _, there := e.original(file); !there {
		e.found(audit.CheckFile, file, say.Sentencef("the file that the manifest names"), say.Sentencef("no such file"))
	} else if ok {
		for _, f := range entry(e.manifest).Compare(bundle.Describe(file, text)) {
			f.Place = e.place(file)
			e.add(f)
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
			e.uncounted = append(e.uncounted, strings.Clone(name)) // without the note around it
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
