package bundle

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
)

// A segment ends at one of these. Nothing else that a Writer holds in memory grows with the history, but a line of the
// manifest for each.
const (
	segmentEvents = 20_000 // where nothing else is said
	segmentBytes  = 4 << 20
)

// ErrOther is the answer where a directory holds the bundle of something else.
var ErrOther = errors.New("it holds another bundle")

// ErrNotExtended is the answer where the history does not continue that of the bundle.
var ErrNotExtended = errors.New(
	"the history does not continue the bundle's: integrity audit --against says where it differs",
)

// Writer makes a bundle, or brings one up to date.
type Writer struct {
	dir      string
	archive  *zip.Writer // nil: the bundle is a directory
	manifest Manifest
	head     [sha256.Size]byte
	last     [sha256.Size]byte // hash of the last event
	text     bytes.Buffer      // of the next segment
	pending  int               // events in text
	config   Config
	begun    bool
}

// Config says what a bundle is made of.
type Config struct {
	Organization domain.OrganizationID
	Issuer       string
	Texts        bool // whether erasable texts go into it
	TrustedKeys  []byte
	Checkpoint   string // of the transparency log; empty without one
	Now          string // written by evidence.FormatTime
	// SegmentEvents is how many events a file has at most; 0 means 20,000.
	SegmentEvents int
	// Replace writes a file of a directory that appears complete or not at all, and is on the disk when it returns.
	Replace func(path string, text []byte) error
}

// Create prepares a bundle in dir, or goes on with the one that is there, whose files are all read once to see that
// they are as its manifest says. Nothing is written before the first Append or Close.
func Create(dir string, c Config) (*Writer, error) {
	w := newWriter(c)
	w.dir = dir
	known, err := filesIn(dir).readManifest()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case known.Organization != c.Organization || known.Issuer != c.Issuer || known.Texts != c.Texts:
		return nil, fmt.Errorf(
			"%s: %w, of %s by %s, texts included: %t", dir, ErrOther, known.Organization, known.Issuer, known.Texts,
		)
	default:
		w.manifest = known
		if err := w.resume(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// NewArchive makes a whole bundle as one zip file, which is written to to while events are appended. The manifest comes
// last: what was broken off is no bundle, and not even a zip file.
func NewArchive(to io.Writer, c Config) *Writer {
	w := newWriter(c)
	w.archive = zip.NewWriter(to)
	return w
}

func newWriter(c Config) *Writer {
	c.SegmentEvents = cmp.Or(c.SegmentEvents, segmentEvents)
	return &Writer{config: c, manifest: Manifest{
		Contract: Contract, Organization: c.Organization, Issuer: c.Issuer, Texts: c.Texts, HistorySHA256: emptyHistory,
		Segments: []Segment{},
	}}
}

// put writes a file, whose name has slashes.
func (w *Writer) put(name string, text []byte) error {
	if w.archive == nil {
		return w.config.Replace(filepath.Join(w.dir, filepath.FromSlash(name)), text)
	}
	header := &zip.FileHeader{Name: name, Method: zip.Deflate}
	header.Modified, _ = time.Parse(time.RFC3339, w.config.Now) // reading the bundle refuses any other
	header.SetMode(0o600)
	file, err := w.archive.CreateHeader(header)
	if err == nil {
		_, err = file.Write(text)
	}
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	return nil
}

// begin says, before anything is changed, that the bundle is not complete.
func (w *Writer) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	if w.archive == nil {
		if err := os.MkdirAll(filepath.Join(w.dir, eventsDir), 0o700); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
		if err := w.removeTemporary(); err != nil {
			return err
		}
	}
	w.manifest.Complete, w.manifest.ExportedAt = false, w.config.Now
	w.manifest.TrustedKeys, w.manifest.Checkpoint = describe(TrustedKeysFile, w.config.TrustedKeys), nil
	if w.config.Checkpoint != "" {
		f := describe(CheckpointFile, []byte(w.config.Checkpoint))
		w.manifest.Checkpoint = &f
	}
	if err := w.writeManifest(); err != nil {
		return err
	}
	if err := w.put(TrustedKeysFile, w.config.TrustedKeys); err != nil || w.config.Checkpoint == "" {
		return err
	}
	return w.put(CheckpointFile, []byte(w.config.Checkpoint))
}

func describe(name string, text []byte) File {
	sum := sha256.Sum256(text)
	return File{name, int64(len(text)), hex.EncodeToString(sum[:])}
}

// temporaryPattern is the form of a file that an export was killed over, before it had its name.
var temporaryPattern = regexp.MustCompile(
	`^\.(manifest\.json|trusted-keys\.json|checkpoint|[0-9]{12,19}\.ndjson)\.[0-9]+$`,
)

// removeTemporary removes what killed exports have left: it may hold texts, and nobody sees it.
func (w *Writer) removeTemporary() error {
	for _, dir := range []string{w.dir, filepath.Join(w.dir, eventsDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
		for _, entry := range entries {
			if !temporaryPattern.MatchString(entry.Name()) {
				continue
			}
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return fmt.Errorf("bundle: %w", err)
			}
		}
	}
	return nil
}

// resume reads the segments that are there.
func (w *Writer) resume() error {
	b := &Bundle{w.manifest, filesIn(w.dir)}
	f := b.Former()
	for {
		hash, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s cannot be gone on with: %w", w.dir, err)
		}
		w.last, w.head = hash, audit.Head(w.head, hash)
	}
	if hex.EncodeToString(w.head[:]) != w.manifest.HistorySHA256 {
		return fmt.Errorf("%s cannot be gone on with: its events are not those of its manifest", w.dir)
	}
	return nil
}

// Last is the sequence of the last event in the bundle, and its hash; 0 for none.
func (w *Writer) Last() (sequence int64, hash [sha256.Size]byte) {
	return w.manifest.Events + int64(w.pending), w.last
}

// Append adds the next events. Each must prove its hash: a bundle is made of history
// that is sound, and integrity audit says what is not.
func (w *Writer) Append(events []audit.Event) error {
	if err := w.begin(); err != nil {
		return err
	}
	last, _ := w.Last()
	lines, errs := make([][]byte, len(events)), make([]error, len(events))
	audit.Spread(len(events), func(i int) {
		if errs[i] = sound(&events[i], last+1+int64(i)); errs[i] == nil {
			lines[i], errs[i] = line(&events[i], w.manifest.Texts)
		}
	})
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	for i := range events {
		w.text.Write(lines[i])
		w.last, w.head = events[i].Hash, audit.Head(w.head, events[i].Hash)
		if w.pending++; w.pending == w.config.SegmentEvents || w.text.Len() >= segmentBytes {
			if err := w.segment(); err != nil {
				return err
			}
		}
	}
	if w.archive != nil { // what is complete of it goes on its way
		return w.archive.Flush()
	}
	return nil
}

// DamagedError names an event that no bundle is made of.
type DamagedError struct {
	Sequence int64
	Found    string
}

// Error names the event.
func (d DamagedError) Error() string {
	return fmt.Sprintf("the history is damaged at sequence %d (%s): integrity audit says more", d.Sequence, d.Found)
}

func sound(e *audit.Event, sequence int64) error {
	if e.Sequence != sequence {
		return DamagedError{sequence, "it is missing"}
	}
	if e.Fault != "" {
		return DamagedError{sequence, e.Fault}
	}
	body, err := domain.DecodeBody(e.Type, e.V, e.Data)
	if err != nil {
		return DamagedError{sequence, err.Error()}
	}
	e.Body = body
	if domain.LeafHash(e.Leaf()) != e.Hash {
		return DamagedError{sequence, "its hash does not belong to it"}
	}
	if canonical, err := e.Canonical(); err != nil || !bytes.Equal(canonical, e.Data) {
		return DamagedError{sequence, "its data is not in canonical form"}
	}
	return nil
}

// segment writes what is pending as one file, then the manifest that names it.
func (w *Writer) segment() error {
	first := w.manifest.Events + 1
	last, _ := w.Last()
	s := Segment{
		File:  describe(segmentFile(first), w.text.Bytes()),
		First: first, Last: last, HistorySHA256: hex.EncodeToString(w.head[:]),
	}
	if err := w.put(s.File.File, w.text.Bytes()); err != nil {
		return err
	}
	w.text.Reset()
	w.pending = 0
	w.manifest.Segments = append(w.manifest.Segments, s)
	w.manifest.Events, w.manifest.HistorySHA256 = last, s.HistorySHA256
	return w.writeManifest()
}

// Close writes what is left and says that the bundle is complete.
func (w *Writer) Close() (Manifest, error) {
	if err := w.begin(); err != nil {
		return w.manifest, err
	}
	if w.pending > 0 {
		if err := w.segment(); err != nil {
			return w.manifest, err
		}
	}
	w.manifest.Complete = true
	err := w.writeManifest()
	if err == nil && w.archive != nil {
		err = w.archive.Close()
	}
	return w.manifest, err
}

// writeManifest leaves a manifest that is not the last one out of an archive, in which nothing can be replaced.
func (w *Writer) writeManifest() error {
	if w.archive != nil && !w.manifest.Complete {
		return nil
	}
	text, err := w.manifest.text()
	if err != nil {
		return err
	}
	return w.put(ManifestFile, text)
}
