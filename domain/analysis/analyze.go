// Package analysis looks at the bytes of a file and says what structures they hold: whether the content fits the
// declared type, scripts and attachments of a PDF, macros of an Office file, metadata of an image, entries of an
// archive, invisible characters of a text.
//
// What must stay true:
//
//   - The same input gives the same results, byte for byte: no clock, no
//     randomness, no environment, no map order.
//   - Evidence is names of structures, counts and positions. It never holds a
//     piece of the file: no text, no entry's name, no coordinates, no author.
//   - Nothing is said about who or what wrote the content, or whether it is true.
//   - "clear" is said only of what was looked at whole. What could not be read,
//     or went past a limit, is "inconclusive".
//   - A parser that panics makes its family inconclusive and no other.
//
// The parsers read hostile files with other people's code, so the bytes of a stranger belong into the child process of
// cmd/analyzer, which bounds memory and time; here only what a library unpacks is bounded.
package analysis

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gabriel-vasile/mimetype"
)

// Input is the file to look at.
type Input struct {
	Content io.ReaderAt
	Size    int64 // bytes of Content, from 0
	// DeclaredType is the media type that was declared with the file, without parameters; empty for none.
	DeclaredType string
	// FileName is the declared name; empty for none. Only its extension is used.
	FileName string
}

// Outcome is what a detector came to (contract section 7).
type Outcome string

// The outcomes. Clear says that the detector saw everything it looks at and found
// nothing; NotApplicable that the file is of another kind.
const (
	Clear         Outcome = "clear"
	Finding       Outcome = "finding"
	Inconclusive  Outcome = "inconclusive"
	NotApplicable Outcome = "not_applicable"
)

// Outcomes lists all outcomes.
func Outcomes() []Outcome { return []Outcome{Clear, Finding, Inconclusive, NotApplicable} }

// Severity says how much attention a finding deserves; None where there is no finding.
type Severity string

// The severities. Info is a fact without a risk of its own, such as a signature.
const (
	None   Severity = "none"
	Info   Severity = "info"
	Low    Severity = "low"
	Medium Severity = "medium"
	High   Severity = "high"
)

// Severities lists all severities, lowest first.
func Severities() []Severity { return []Severity{None, Info, Low, Medium, High} }

// Unit is what positions count.
type Unit string

// The units of positions.
const (
	Bytes   Unit = "byte"   // offset from the file's first byte, which is 0
	Objects Unit = "object" // number of an indirect object of a PDF
	Entries Unit = "entry"  // index in the archive's directory, from 0; of an archive in an archive: of the outermost one
)

// MaxPositions is how many positions an Evidence holds; Count is exact all the same.
const MaxPositions = 16

// Evidence is where a structure was found, and how often.
type Evidence struct {
	Structure string  `json:"structure"` // a name of the format or of this package, never one of the file's own words
	Count     int64   `json:"count"`
	Unit      Unit    `json:"unit"`
	Positions []int64 `json:"positions"` // ascending, the first MaxPositions; empty where the structure has no place of its own
}

// Result is what one detector says of the file. Its JSON form is that of contract
// section 7; all members are always present.
type Result struct {
	ID          string     `json:"id"`
	Version     int        `json:"version"` // raised when the same bytes may give another result
	Outcome     Outcome    `json:"outcome"`
	Severity    Severity   `json:"severity"`
	Summary     string     `json:"summary"` // one sentence
	Evidence    []Evidence `json:"evidence"`
	Limitations []string   `json:"limitations"` // what the detector does not see
}

// Report is a whole analysis.
type Report struct {
	Results []Result `json:"results"` // one a detector, in the order of Detectors
	// Elapsed is the time that each of Results took, in their order. What detectors share, such as parsing
	// the file, is counted with the first of them. All zero where the analysis came to nothing.
	Elapsed []time.Duration `json:"elapsed"`
	// Failure is empty where the analysis ran to its end.
	Failure Reason `json:"-"`
}

// Detector names a detector.
type Detector struct {
	ID          string
	Version     int
	Looks       string   // what it looks for, a phrase
	Limitations []string // as in its results
}

// Limitations holds of every analysis, whatever its results.
func Limitations() []string {
	return []string{
		"The analysis looks at structures of the file. It does not say who or what made the content, or whether it is true, safe or lawful.",
		"It is no malware scan: nothing is executed, and no signature of known malware is looked for.",
		"Encrypted content is not looked into.",
	}
}

// Reason says why a whole analysis came to nothing.
type Reason string

// The reasons of an analysis that did not end.
const (
	ReasonTime      Reason = "The analysis did not end within its time limit."
	ReasonCPU       Reason = "The analysis used more processor time than its limit."
	ReasonMemory    Reason = "The analysis needed more memory than its limit."
	ReasonCrash     Reason = "The analysis ended abnormally."
	ReasonAnswer    Reason = "The analysis gave no readable answer."
	ReasonIsolation Reason = "The analysis could not be isolated on this machine, so it was not run."
)

// Undecided is the report of an analysis that came to nothing: every detector is inconclusive.
func Undecided(reason Reason) Report {
	r := Report{Failure: reason}
	for _, d := range Detectors() {
		r.Results, r.Elapsed = append(r.Results, d.result(Inconclusive, None, string(reason))), append(r.Elapsed, 0)
	}
	return r
}

// result makes a result of the detector.
func (d Detector) result(o Outcome, s Severity, summary string, evidence ...Evidence) Result {
	if evidence == nil {
		evidence = []Evidence{}
	}
	return Result{ID: d.ID, Version: d.Version, Outcome: o, Severity: s, Summary: summary, Evidence: evidence, Limitations: append([]string{}, d.Limitations...)}
}

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
	"image-software":         imageDetector(imageSoftware),
	"archive-expansion":      archive(archiveExpansion),
	"archive-nesting":        archive(archiveNesting),
	"archive-names":          archive(archiveNames),
	"text-hidden-characters": text("The text holds no invisible characters.", "The text holds invisible or control characters.", hiddenTally),
	"text-bidi-controls":     text("The text holds no bidirectional control characters.", "The text holds bidirectional control characters.", bidiTally),
	"text-mixed-scripts":     text("No word mixes scripts.", "Words mix letters of several scripts.", func(t *textFile) *tally { return t.mixed }),
}

// verdict is what of a result differs from file to file.
type verdict struct {
	outcome  Outcome
	severity Severity
	summary  string
	evidence []Evidence
}

func nothing(summary string) verdict       { return verdict{Clear, None, summary, nil} }
func notApplicable(summary string) verdict { return verdict{NotApplicable, None, summary, nil} }
func inconclusive(summary string, evidence ...Evidence) verdict {
	return verdict{Inconclusive, None, summary, evidence}
}
func finding(s Severity, summary string, evidence ...Evidence) verdict {
	return verdict{Finding, s, summary, evidence}
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
	s.detected = detect(s.head)
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

// add counts a structure; position -1 says that it has no place. A position is kept if it is higher than those before.
func (t *tally) add(structure string, position int64) { t.addAll(structure, 1, position) }

func (t *tally) addAll(structure string, count, position int64) {
	e := t.found[structure]
	if e == nil {
		e = &Evidence{Structure: structure, Unit: t.unit, Positions: []int64{}}
		t.found[structure] = e
	}
	e.Count += count
	if n := len(e.Positions); position >= 0 && n < MaxPositions && (n == 0 || e.Positions[n-1] < position) {
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
	list := []Evidence{}
	for _, structure := range slices.Sorted(maps.Keys(t.found)) {
		list = append(list, *t.found[structure])
	}
	return list
}
