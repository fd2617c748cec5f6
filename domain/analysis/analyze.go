package analysis

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/gabriel-vasile/mimetype"
)

// Detectors lists all detectors in the order of the results.
func Detectors() []Detector {
	var list []Detector
	for _, d := range detectors() {
		list = append(list, d.Detector)
	}
	return list
}

// Analyze runs all detectors and calls done with each result as it comes, in the
// order of Detectors. It never fails: what cannot be read is inconclusive.
func Analyze(in Input, done func(Result)) {
	s := newSubject(in)
	for _, d := range detectors() {
		done(d.decide(s))
	}
}

// detector is a Detector and what it does.
type detector struct {
	Detector
	run func(*subject) verdict
}

//go:embed detectors.json
var catalogue []byte

// detectors lists the families in their order, with what the catalogue says of each.
var detectors = sync.OnceValue(func() (list []detector) {
	if err := json.Unmarshal(catalogue, &list); err != nil {
		panic("detectors.json is part of the program: " + err.Error())
	}
	for i, d := range list {
		list[i].run = looks[d.ID]
	}
	return list
})

// looks is what each detector does, by its id.
var looks = map[string]func(*subject) verdict{
	"content-type":            contentType,
	"pdf-structure":           pdfStructure,
	"pdf-incremental-updates": pdfOnly(pdfUpdates),
	"pdf-active-content":      pdfWalk(pdfActive),
	"pdf-embedded-files": pdfWalk(func(p *pdfFile) verdict {
		return p.embedded.verdict("The PDF holds no other files.", Low, "The PDF holds other files.")
	}),
	"pdf-encryption": pdfOnly(pdfEncryption),
	"pdf-signatures": pdfWalk(pdfSignatures),
	"pdf-metadata": pdfWalk(func(p *pdfFile) verdict {
		return p.meta.verdict("The PDF holds no metadata.", Info, "The PDF holds metadata.")
	}),
	"office-macros":           office((*subject).ooxmlMacros, (*subject).binaryMacros),
	"office-external-targets": office((*subject).ooxmlExternal, nil),
	"office-embedded-objects": office((*subject).ooxmlObjects, (*subject).binaryObjects),
	"image-metadata": imageDetector(func(i *imageFile) verdict {
		return i.metadata.verdict("The image holds no metadata.", Info, "The image holds metadata.")
	}),
	"image-location": imageDetector(func(i *imageFile) verdict {
		return i.gps.verdict("The image's metadata holds no place.", Medium, "The image's metadata holds a place.")
	}),
	"image-software":    imageDetector(imageSoftware),
	"archive-expansion": archive(archiveExpansion),
	"archive-nesting":   archive(archiveNesting),
	"archive-names":     archive(archiveNames),
	"text-hidden-characters": text("The text holds no invisible characters.", "The text holds invisible or control characters.",
		func(t *textFile) *tally { return t.hidden }),
	"text-bidi-controls": text("The text holds no bidirectional control characters.", "The text holds bidirectional control characters.",
		func(t *textFile) *tally { return t.bidi }),
	"text-mixed-scripts": text("No word mixes scripts.", "Words mix letters of several scripts.", func(t *textFile) *tally { return t.mixed }),
}

// verdict is what of a result differs from file to file.
type verdict struct {
	outcome  Outcome
	severity Severity
	summary  string
	evidence []Evidence
}

func nothing(summary string) verdict {
	return verdict{outcome: Clear, severity: None, summary: summary}
}
func notApplicable(summary string) verdict {
	return verdict{outcome: NotApplicable, severity: None, summary: summary}
}
func inconclusive(summary string, evidence ...Evidence) verdict {
	return verdict{outcome: Inconclusive, severity: None, summary: summary, evidence: evidence}
}
func finding(s Severity, summary string, evidence ...Evidence) verdict {
	return verdict{outcome: Finding, severity: s, summary: summary, evidence: evidence}
}

// verdict is a finding of what was counted, if anything was.
func (t *tally) verdict(none string, severity Severity, some string) verdict {
	if t.count() == 0 {
		return nothing(none)
	}
	return finding(severity, some, t.list()...)
}

// counted is evidence of one structure without places.
func counted(unit Unit, structure string, count int64) []Evidence {
	return []Evidence{{Structure: structure, Count: count, Unit: unit, Positions: []int64{}}}
}

// decide keeps a panic of a parser from the other detectors.
func (d detector) decide(s *subject) (r Result) {
	defer func() {
		if recover() != nil {
			r = d.result(Inconclusive, None, "The parser failed on this file.")
		}
	}()
	v := d.run(s)
	return d.result(v.outcome, v.severity, v.summary, v.evidence...)
}

// subject is the file, and what detectors share of it.
type subject struct {
	Input
	head       []byte         // the first headSize bytes
	detected   *mimetype.MIME // of head
	unreadable error          // the content could not be read at all

	// Each of them reads the file once; all but zip answer nil where it is of another kind.
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
	s.detected = mimetype.Detect(s.head)
	return s
}

// section reads the content from its beginning.
func (s *subject) section() *io.SectionReader { return io.NewSectionReader(s.Content, 0, s.Size) }

// is reports whether the detected type, or one that it is a kind of, is among types.
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

// pdfOffset is where a PDF begins: within the first 1,024 bytes, as readers accept it; -1 where none does.
func (s *subject) pdfOffset() int64 {
	return int64(bytes.Index(s.head[:min(len(s.head), 1024)], []byte("%PDF-")))
}

// mediaType is a media type in lower case without its parameters.
func mediaType(text string) string {
	text, _, _ = strings.Cut(text, ";")
	return strings.ToLower(strings.TrimSpace(text))
}

// guarded runs a parser and makes an error of its panic.
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

// tally gathers evidence by structure.
type tally struct {
	unit  Unit
	found map[string]*Evidence
}

func newTally(unit Unit) *tally { return &tally{unit: unit, found: map[string]*Evidence{}} }

// add counts a structure; position -1 says that it has no place. Positions must come in ascending order; one that comes twice is kept once.
func (t *tally) add(structure string, position int64) { t.addAll(structure, 1, position) }

func (t *tally) addAll(structure string, count, position int64) {
	e := t.found[structure]
	if e == nil {
		e = &Evidence{Structure: structure, Unit: t.unit, Positions: []int64{}}
		t.found[structure] = e
	}
	e.Count += count
	if n := len(e.Positions); position >= 0 && n < MaxPositions && (n == 0 || e.Positions[n-1] != position) {
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

// list is the evidence by the names of its structures.
func (t *tally) list() []Evidence {
	list := make([]Evidence, 0, len(t.found))
	for _, e := range t.found {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Evidence) int { return strings.Compare(a.Structure, b.Structure) })
	return list
}
