package worm

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
)

// Export is an export in a bucket.
type Export struct {
	Name   string
	At     time.Time // in its name
	Size   int64     // in its name
	Issuer string    // in its manifest, once Open has read it

	files          map[string]*versions
	manifestSHA256 string // once it was read
}

// Listing is what a bucket contains.
type Listing struct {
	Exports []*Export // by name
	Foreign []string  // the first names that no export has
	Others  int       // the number of all such names
	// Cut is the folder or object at which a limit ended the list. It is empty if the list is whole. The list then has no
	// export of that name or after it.
	Cut string
}

// limits bound what a check lists and how long it reads. An installation that exports daily reaches none of them in a
// hundred years.
type limits struct {
	exports, versions int
	time              time.Duration // 0: Listing.ReadingTime
}

const (
	maxVersions = 1_000_000
	maxExports  = 40_000
	maxForeign  = 10
)

// versions are the versions of a file. A writer of the bucket can add any number, so only those that are
// read are kept.
type versions struct {
	first   *blobs.Version  // the oldest; nil if only markers are left
	later   int             // number of those written after the first
	newest  []blobs.Version // of the later ones, at most maxReplacements, the newest first
	deleted bool            // a marker hides the file from readers that ask for no version
}

// add adds the next version of a list, which has newer ones first.
func (f *versions) add(v blobs.Version) {
	switch {
	case v.Deleted:
		f.deleted = true
		return
	case f.first == nil:
		f.first = &v
		return
	case v == *f.first || slices.Contains(f.newest, v):
		return
	case !v.At.After(f.first.At):
		v, *f.first = *f.first, v
	}
	f.later++
	i := slices.IndexFunc(f.newest, func(n blobs.Version) bool { return n.At.Before(v.At) })
	if i < 0 {
		i = len(f.newest)
	}
	f.newest = slices.Insert(f.newest, i, v)
	f.newest = f.newest[:min(len(f.newest), maxReplacements)]
}

// Reading all exports may take so long, in total. An honest server sends a small object in a fraction of a second, and
// readers exports are read at a time.
const (
	readingTime = 2 * time.Minute
	versionTime = 200 * time.Millisecond // more for each version that is read
)

// ReadingTime is how long reading exports of the listing may take in total.
func (l Listing) ReadingTime() time.Duration {
	n := 0
	for _, e := range l.Exports {
		for _, f := range e.files {
			if f.first != nil {
				n += 1 + len(f.newest)
			}
		}
	}
	return readingTime + time.Duration(n)*versionTime
}

// List lists the exports whose names come after a name. It is an error if there are more than a limit allows.
func List(ctx context.Context, b *blobs.Locked, after string) (Listing, error) {
	l, err := limits{exports: maxExports, versions: maxVersions}.list(ctx, b, after)
	if err == nil && l.Cut != "" {
		err = say.Errorf(
			"%s contains more than %d exports, or %d objects: give the prefix that the exports have. The list was "+
				"ended at %q", b.Name, maxExports, maxVersions, l.Cut,
		)
	}
	return l, err
}

func (most limits) list(ctx context.Context, b *blobs.Locked, after string) (l Listing, err error) {
	n, known := 0, map[string]*Export{}
	err = b.Versions(ctx, after, func(v blobs.Version) error {
		folder, file, _ := strings.Cut(v.Name, "/")
		at, size, named := parseName(folder)
		ok := named && exported(file)
		e := known[folder]
		if n++; n > most.versions || ok && e == nil && len(l.Exports) == most.exports {
			if l.Cut = v.Name; named { // the other files of this export are not known
				l.Cut = folder
			}
			l.Exports = slices.DeleteFunc(l.Exports, func(one *Export) bool { return one.Name >= l.Cut })
			return io.EOF
		}
		if !ok {
			if l.Others++; len(l.Foreign) < maxForeign {
				l.Foreign = append(l.Foreign, v.Name)
			}
			return nil
		}
		if e == nil {
			e = &Export{Name: folder, At: at, Size: size, files: map[string]*versions{}}
			known[folder], l.Exports = e, append(l.Exports, e)
		}
		if e.files[file] == nil {
			e.files[file] = &versions{}
		}
		e.files[file].add(v)
		return nil
	})
	if l.Cut != "" {
		err = nil
	}
	slices.SortFunc(l.Exports, func(a, b *Export) int { return strings.Compare(a.Name, b.Name) })
	return l, err
}

// exported reports whether an export may have a file of this name.
func exported(file string) bool {
	switch file {
	case manifestFile, bundle.CheckpointFile, bundle.TrustedKeysFile:
		return true
	}
	name, ok := strings.CutPrefix(file, "stamps/")
	if !ok {
		return false
	}
	for _, suffix := range []string{".checkpoint", ".tst"} {
		if authority, ok := strings.CutSuffix(name, suffix); ok {
			return evidence.CheckAuthorityName(authority) == nil
		}
	}
	return false
}

// Complete reports whether the export was finished.
func (e *Export) Complete() bool { _, ok := e.original(manifestFile); return ok }

// original returns the first version of a file: versions written later do not count, nor do markers that hide it.
func (e *Export) original(file string) (first blobs.Version, ok bool) {
	if f := e.files[file]; f != nil && f.first != nil {
		return *f.first, true
	}
	return first, false
}

// Complete returns the complete exports.
func (l Listing) Complete() []*Export {
	return slices.DeleteFunc(slices.Clone(l.Exports), func(e *Export) bool { return !e.Complete() })
}

// Future lists the exports that are dated after a time, by a wrong clock or by somebody who wants to hide missing ones.
func (l Listing) Future(now time.Time) (later []*Export) {
	for _, e := range l.Exports {
		if e.At.After(now) {
			later = append(later, e)
		}
	}
	return later
}

// Newest returns the last complete export until a time, and all later ones, which a wrong clock has dated in the
// future.
func (l Listing) Newest(now time.Time) []*Export {
	all := l.Complete()
	first := 0
	for i, e := range all {
		if !e.At.After(now) {
			first = i
		}
	}
	return all[first:]
}

// On returns a complete export of a day in UTC.
func (l Listing) On(day time.Time) *Export {
	for _, e := range l.Exports {
		if e.Complete() && e.At.Format(nameDay) == day.UTC().Format(nameDay) {
			return e
		}
	}
	return nil
}

// Since returns a name that comes before all exports since a time.
func Since(at time.Time) string { return at.UTC().Format(nameTime) }

// Open reads the manifest and checkpoint of a complete export, to compare a new one with it.
func (e *Export) Open(
	ctx context.Context, b *blobs.Locked, trusted *evidence.TrustedKeys,
) (evidence.Checkpoint, error) {
	m, err := e.ReadManifest(ctx, b)
	wrong, unreadable := errors.AsType[*UnreadableError](err)
	if err != nil && !unreadable {
		return evidence.Checkpoint{}, err
	}
	note := []byte{}
	if version, ok := e.original(bundle.CheckpointFile); ok {
		if note, _, err = b.Read(ctx, version, maxCheckpoint); err != nil {
			return evidence.Checkpoint{}, err
		}
	}
	c, unsigned := open(string(note), trusted)
	switch {
	case unreadable:
		return c, wrong
	case m.Checkpoint != bundle.Describe(bundle.CheckpointFile, note):
		return c, &UnreadableError{e.Name, say.New("its checkpoint is not the one that its manifest names")}
	case unsigned != nil:
		return c, &UnreadableError{e.Name, unsigned}
	}
	return c, nil
}

// ReadManifest reads the manifest of a complete export. The error may be an UnreadableError.
func (e *Export) ReadManifest(ctx context.Context, b *blobs.Locked) (m Manifest, err error) {
	manifest, _ := e.original(manifestFile)
	text, _, err := b.Read(ctx, manifest, maxManifest)
	if err != nil {
		return m, err
	}
	e.manifestSHA256 = sha256Of(text)
	if m, err = readManifest(text, e.Name); err != nil {
		return m, &UnreadableError{e.Name, err}
	}
	e.Issuer = m.Issuer
	return m, nil
}

// UnreadableError means that an export is there, but is not as the program writes it.
type UnreadableError struct {
	Export string
	Err    error
}

func (u *UnreadableError) sentence() say.Sentence {
	return say.Sentencef("the export %s is not as integrity export writes it: %v", u.Export, u.Err)
}

func (u *UnreadableError) Error() string { return u.sentence().String() }

// Say implements say.Phrase.
func (u *UnreadableError) Say(c say.Catalogue) (string, bool) { return u.sentence().Say(c) }

// open opens a checkpoint. A revoked key still tells which tree it signed.
func open(note string, trusted *evidence.TrustedKeys) (evidence.Checkpoint, error) {
	c, err := evidence.OpenCheckpoint(note, trusted)
	if isRevoked(err) {
		err = nil
	}
	return c, err
}
