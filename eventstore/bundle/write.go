package bundle

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/say"
)

// Limits at which a segment ends. Besides the pending segment, a Writer keeps only one manifest entry per segment in
// memory.
const (
	segmentEvents = 20_000 // the default
	segmentBytes  = 4 << 20
)

// ErrOther means that a directory holds a bundle of another organization, issuer or setting.
var ErrOther = say.New("it holds another bundle")

// ErrNotExtended means that the history does not continue the bundle's history.
var ErrNotExtended = say.New(
	"the history does not continue the bundle's: run integrity audit --against to see where it differs",
)

// Writer creates or updates a bundle.
type Writer struct {
	dir      string
	archive  *zip.Writer // nil if the bundle is a directory
	manifest Manifest
	head     [sha256.Size]byte
	last     [sha256.Size]byte // hash of the last event
	text     bytes.Buffer      // of the next segment
	pending  int               // events in text
	config   Config
	begun    bool
}

// Config configures a Writer.
type Config struct {
	Organization domain.OrganizationID
	Issuer       string
	Texts        bool // whether to include erasable texts
	TrustedKeys  []byte
	Checkpoint   string // of the transparency log; may be empty
	Now          string // in the format of evidence.FormatTime
	// SegmentEvents is the maximum number of events in a file; 0 means 20,000.
	SegmentEvents int
	// Replace writes a file atomically. The file must be on disk when Replace returns.
	Replace func(path string, text []byte) error
}

// Create prepares a bundle in dir, or continues the existing one, after reading all its files to compare them with its
// manifest. Nothing is written before the first Append or Close.
func Create(dir string, c Config) (*Writer, error) {
	w := newWriter(c)
	w.dir = dir
	known, err := filesIn(dir).readManifest()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case known.Organization != c.Organization || known.Issuer != c.Issuer || known.Texts != c.Texts:
		return nil, say.Errorf(
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

// NewArchive creates a bundle as one zip file, which it writes to to while events are appended. The manifest comes
// last, so an interrupted export is neither a bundle nor a valid zip file.
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

// put writes a file. The name uses slashes.
func (w *Writer) put(name string, text []byte) error {
	if w.archive == nil {
		return w.config.Replace(filepath.Join(w.dir, filepath.FromSlash(name)), text)
	}
	header := &zip.FileHeader{Name: name, Method: zip.Deflate}
	header.Modified, _ = time.Parse(time.RFC3339, w.config.Now) // reading the bundle refuses an invalid time
	header.SetMode(0o600)
	file, err := w.archive.CreateHeader(header)
	if err == nil {
		_, err = file.Write(text)
	}
	if err != nil {
		return say.Errorf("bundle: %w", err)
	}
	return nil
}

// begin marks the bundle as incomplete before anything is changed.
func (w *Writer) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	if w.archive == nil {
		if err := os.MkdirAll(filepath.Join(w.dir, eventsDir), 0o700); err != nil {
			return say.Errorf("bundle: %w", err)
		}
		if err := w.removeTemporary(); err != nil {
			return err
		}
	}
	w.manifest.Complete, w.manifest.ExportedAt = false, w.config.Now
	w.manifest.TrustedKeys, w.manifest.Checkpoint = Describe(TrustedKeysFile, w.config.TrustedKeys), nil
	if w.config.Checkpoint != "" {
		f := Describe(CheckpointFile, []byte(w.config.Checkpoint))
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

// Describe returns the entry of a file in a manifest.
func Describe(name string, text []byte) File {
	sum := sha256.Sum256(text)
	return File{name, int64(len(text)), hex.EncodeToString(sum[:])}
}

// temporaryPattern matches the temporary files that a killed export leaves behind.
var temporaryPattern = regexp.MustCompile(
	`^\.(manifest\.json|trusted-keys\.json|checkpoint|[0-9]{12,19}\.ndjson)\.[0-9]+$`,
)

// removeTemporary removes the hidden files that killed exports have left, because they may contain texts.
func (w *Writer) removeTemporary() error {
	for _, dir := range []string{w.dir, filepath.Join(w.dir, eventsDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return say.Errorf("bundle: %w", err)
		}
		for _, entry := range entries {
			if !temporaryPattern.MatchString(entry.Name()) {
				continue
			}
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return say.Errorf("bundle: %w", err)
			}
		}
	}
	return nil
}

// resume reads the existing segments.
func (w *Writer) resume() error {
	b := &Bundle{w.manifest, filesIn(w.dir)}
	f := b.Former()
	for {
		hash, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return say.Errorf("%s cannot be continued: %w", w.dir, err)
		}
		w.last, w.head = hash, audit.Head(w.head, hash)
	}
	if hex.EncodeToString(w.head[:]) != w.manifest.HistorySHA256 {
		return say.Errorf("%s cannot be continued: its events differ from its manifest", w.dir)
	}
	return nil
}

// Last returns the sequence and hash of the last event in the bundle, 0 if it has no events.
func (w *Writer) Last() (sequence int64, hash [sha256.Size]byte) {
	return w.manifest.Events + int64(w.pending), w.last
}

// Append adds the next events. Each must match its hash, because a bundle contains only sound history. Otherwise the
// error is a DamagedError; integrity audit gives details.
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
	if w.archive != nil { // send the complete part
		return w.archive.Flush()
	}
	return nil
}

// DamagedError means that an event is damaged and cannot be exported.
type DamagedError struct {
	Sequence int64
	Found    say.Sentence
}

func (d DamagedError) sentence() say.Sentence {
	return say.Sentencef(
		"the history is damaged at sequence %d (%s): run integrity audit for details", d.Sequence, d.Found,
	)
}

func (d DamagedError) Error() string { return d.sentence().String() }

// Say implements say.Phrase.
func (d DamagedError) Say(c say.Catalogue) (string, bool) { return d.sentence().Say(c) }

func sound(e *audit.Event, sequence int64) error {
	if e.Sequence != sequence {
		return DamagedError{sequence, say.Sentencef("it is missing")}
	}
	if e.Fault.Format != "" {
		return DamagedError{sequence, e.Fault}
	}
	body, err := domain.DecodeBody(e.Type, e.V, e.Data)
	if err != nil {
		return DamagedError{sequence, say.Sentencef("%v", err)}
	}
	e.Body = body
	if domain.LeafHash(e.Leaf()) != e.Hash {
		return DamagedError{sequence, say.Sentencef("its hash does not belong to it")}
	}
	if canonical, err := e.Canonical(); err != nil || !bytes.Equal(canonical, e.Data) {
		return DamagedError{sequence, say.Sentencef("its data is not in canonical form")}
	}
	return nil
}

// segment writes the pending events to a file, then the manifest that names it.
func (w *Writer) segment() error {
	first := w.manifest.Events + 1
	last, _ := w.Last()
	s := Segment{
		File:  Describe(segmentFile(first), w.text.Bytes()),
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

// Close writes the remaining events and marks the bundle as complete.
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

// writeManifest writes the manifest. It leaves all but the last one out of an archive, in which files cannot be
// replaced.
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
