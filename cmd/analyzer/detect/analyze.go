// Package detect examines the bytes of a file and reports the structures that it finds: a content that does not fit the
// declared type, scripts and attachments of a PDF, macros of an Office file, metadata of an image, entries of an
// archive, invisible characters in a text.
//
// The detectors maintain these invariants:
//
//   - The same input gives the same results, byte for byte: no clock, no randomness, no environment, no map order.
//   - Evidence consists of names of structures, counts and positions. It never contains a piece of the file: no text,
//     no entry's name, no coordinates, no author.
//   - Results say nothing about the author or tool that wrote the content, or about its truth.
//   - "clear" means that the content was examined completely. Content that could not be read, or that exceeded a
//     limit, is "inconclusive".
//   - A parser that panics makes only its own family of detectors inconclusive.
//
// The parsers process hostile files with third-party code. Run them on untrusted files only in the child process of
// cmd/analyzer, which limits memory and time; this package limits only the output of decompression.
package detect

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"integrityledger/domain/analysis"

	"github.com/gabriel-vasile/mimetype"
)

// Input is the file to examine.
type Input struct {
	Content io.ReaderAt
	Size    int64 // bytes of Content to read, from offset 0
	// DeclaredType is the declared media type, without parameters, or empty.
	DeclaredType string
	// FileName is the declared name, or empty. Only its extension is used.
	FileName string
}

// detector is a Detector and its implementation.
type detector struct {
	analysis.Detector
	run func(*subject) verdict
}

// detectors lists the detectors in order.
var detectors = sync.OnceValue(func() (list []detector) {
	for _, d := range analysis.Detectors() {
		list = append(list, detector{d, looks[d.ID]})
	}
	return list
})

// Analyze runs all detectors and calls done with each result as it is ready, in the order of Detectors. It never fails:
// content that cannot be read gives inconclusive results.
func Analyze(in Input, done func(analysis.Result)) {
	s := newSubject(in)
	for _, d := range detectors() {
		done(d.decide(s))
	}
}

// looks maps each detector's ID to its implementation.
var looks = map[string]func(*subject) verdict{
	"content-type":            contentType,
	"pdf-structure":           pdfStructure,
	"pdf-incremental-updates": pdfOnly(pdfUpdates),
	"pdf-active-content":      pdfWalk(pdfActive),
	"pdf-embedded-files": pdfWalk(func(p *pdfFile) verdict {
		return p.embedded.verdict("The PDF holds no other files.", analysis.Low, "The PDF holds other files.")
	}),
	"pdf-encryption": pdfOnly(pdfEncryption),
	"pdf-signatures": pdfWalk(pdfSignatures),
	"pdf-metadata": pdfWalk(func(p *pdfFile) verdict {
		return p.meta.verdict("The PDF holds no metadata.", analysis.Info, "The PDF holds metadata.")
	}),
	"office-macros":           office((*subject).ooxmlMacros, (*subject).binaryMacros),
	"office-external-targets": office((*subject).ooxmlExternal, nil),
	"office-embedded-objects": office((*subject).ooxmlObjects, (*subject).binaryObjects),
	"image-metadata": imageDetector(func(i *imageFile) verdict {
		return i.metadata.verdict("The image holds no metadata.", analysis.Info, "The image holds metadata.")
	}),
	"image-location": imageDetector(func(i *imageFile) verdict {
		return i.gps.verdict("The image's metadata holds no place.", analysis.Medium, "The image's metadata holds a place.")
	}),
	"image-software":    imageDetector(imageSoftware),
	"archive-expansion": archive(archiveExpansion),
	"archive-nesting":   archive(archiveNesting),
	"archive-names":     archive(archiveNames),
	"text-hidden-characters": text(
		"The text holds no invisible characters.", "The text holds invisible or control characters.", hiddenTally,
	),
	"text-bidi-controls": text(
		"The text holds no bidirectional control characters.", "The text holds bidirectional control characters.", bidiTally,
	),
	"text-mixed-scripts": text("No word mixes scripts.", "Words mix letters of several scripts.",
		func(t *textFile) *tally {
			return t.mixed
		}),
}

// verdict is the part of a result that differs from file to file.
type verdict struct {
	outcome  analysis.Outcome
	severity analysis.Severity
	summary  string
	evidence []analysis.Evidence
}

func nothing(summary string) verdict { return verdict{analysis.Clear, analysis.None, summary, nil} }
func notApplicable(summary string) verdict {
	return verdict{analysis.NotApplicable, analysis.None, summary, nil}
}
func inconclusive(summary string, evidence ...analysis.Evidence) verdict {
	return verdict{analysis.Inconclusive, analysis.None, summary, evidence}
}
func finding(s analysis.Severity, summary string, evidence ...analysis.Evidence) verdict {
	return verdict{analysis.Finding, s, summary, evidence}
}

// verdict returns a finding with the counted evidence, or a clear result if nothing was counted.
func (t *tally) verdict(none string, severity analysis.Severity, some string) verdict {
	if t.count() == 0 {
		return nothing(none)
	}
	return finding(severity, some, t.list()...)
}

// counted returns evidence of one structure without positions.
func counted(unit analysis.Unit, structure string, count int64) []analysis.Evidence {
	return []analysis.Evidence{{Structure: structure, Count: count, Unit: unit, Positions: []int64{}}}
}

// decide runs a detector, and keeps a parser's panic from the other detectors.
func (d detector) decide(s *subject) (r analysis.Result) {
	defer func() {
		if recover() != nil {
			r = d.Result(analysis.Inconclusive, analysis.None, "The parser failed on this file.")
		}
	}()
	v := d.run(s)
	return d.Result(v.outcome, v.severity, v.summary, v.evidence...)
}

// subject is a file, and the parts of it that detectors share.
type subject struct {
	Input
	head       []byte         // the first headSize bytes
	detected   *mimetype.MIME // of head
	unreadable error          // the content could not be read at all

	// Each reads the file once. All but zip return nil if the file has another format.
	pdf     func() *pdfFile
	zip     func() *zipFile
	image   func() *imageFile
	archive func() *archiveFile
	text    func() *textFile
}

const headSize = 4096

func newSubject(in Input) *subject {
	s := &subject{Input: in}
	s.pdf, s.zip, s.image = sync.OnceValue(s.readPDF), sync.OnceValue(s.readZip), sync.OnceValue(s.readImage)
	s.archive, s.text = sync.OnceValue(s.readArchive), sync.OnceValue(s.readText)
	s.head = make([]byte, min(in.Size, headSize))
	if n, err := in.Content.ReadAt(s.head, 0); n < len(s.head) {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		s.unreadable = err
		s.head = s.head[:n]
	}
	s.detected = detect(s.head)
	return s
}

// section reads the content from the beginning.
func (s *subject) section() *io.SectionReader { return io.NewSectionReader(s.Content, 0, s.Size) }

// is reports whether the detected type, or one of its parents, is among types.
func (s *subject) is(types ...string) bool {
	for m := s.detected; m != nil; m = m.Parent() {
		if slices.ContainsFunc(types, m.Is) {
			return true
		}
	}
	return false
}

// declares reports whether the declared type is among types.
func (s *subject) declares(types ...string) bool {
	return slices.Contains(types, mediaType(s.DeclaredType))
}

// pdfOffset returns where a PDF begins, or -1. Like PDF readers it accepts any offset in the first 1,024 bytes.
func (s *subject) pdfOffset() int64 {
	return int64(bytes.Index(s.head[:min(len(s.head), 1024)], []byte("%PDF-")))
}

// mediaType returns a media type in lower case, without its parameters.
func mediaType(text string) string {
	text, _, _ = strings.Cut(text, ";")
	return strings.ToLower(strings.TrimSpace(text))
}

// guarded runs a parser and turns a panic into an error.
func guarded(parse func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errParser
		}
	}()
	return parse()
}

var (
	errParser = errors.New("the parser failed")
	errLimit  = errors.New("past a limit")
)

// tally counts evidence by structure.
type tally struct {
	unit  analysis.Unit
	found map[string]*analysis.Evidence
}

func newTally(unit analysis.Unit) *tally {
	return &tally{unit: unit, found: map[string]*analysis.Evidence{}}
}

// add counts a structure. Position -1 means that it has no position. A position is kept if it is higher than those
// before.
func (t *tally) add(structure string, position int64) { t.addAll(structure, 1, position) }

func (t *tally) addAll(structure string, count, position int64) {
	e := t.found[structure]
	if e == nil {
		e = &analysis.Evidence{Structure: structure, Unit: t.unit, Positions: []int64{}}
		t.found[structure] = e
	}
	e.Count += count
	if n := len(e.Positions); position >= 0 && n < analysis.MaxPositions && (n == 0 || e.Positions[n-1] < position) {
		e.Positions = append(e.Positions, position)
	}
}

// has reports whether one of the structures was counted.
func (t *tally) has(structures ...string) bool {
	return slices.ContainsFunc(structures, func(s string) bool { return t.found[s] != nil })
}

func (t *tally) count() (n int64) {
	for _, e := range t.found {
		n += e.Count
	}
	return n
}

// list returns the evidence, sorted by structure name.
func (t *tally) list() []analysis.Evidence {
	list := []analysis.Evidence{}
	for _, structure := range slices.Sorted(maps.Keys(t.found)) {
		list = append(list, *t.found[structure])
	}
	return list
}
