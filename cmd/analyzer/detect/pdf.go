package detect

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"integrityledger/domain/analysis"

	"github.com/pdfcpu/pdfcpu/pkg/log"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
)

// pdfFile collects a PDF's markers, found by searching, and its objects, found by a parser.
type pdfFile struct {
	context    *model.Context
	err        error // set if the parser could not read it
	locked     bool  // needs a password
	unreadable int64 // objects of the cross-reference table that could not be read

	ends        []int64 // offsets of %%EOF
	startxrefs  int
	encryptWord bool // /Encrypt appears
	hybrid      bool // a section has both entries and a cross-reference stream
	tails       int  // sections without entries that only refer to an earlier stream, as at the end of Word's files

	active, embedded, signed, meta *tally
	worst                          analysis.Severity // the most severe of active
	lastSignature                  bool              // a signature covers the file to its end
}

// maxPDFDepth is how deeply PDF objects may be nested.
const maxPDFDepth = 100

// pdfLimits limits what the parser unpacks; a stream may unpack to at most highRatio times the file's size. Images and
// fonts are never unpacked.
func pdfLimits(size int64) model.ResourceLimits {
	return model.ResourceLimits{
		MaxStreamBytes: 64 << 20, MaxDecodeBytes: unpackedBudget(size, 1<<20, 32<<20), MaxImagePixels: 1, MaxImageBytes: 1,
		MaxObjectCount: 1_000_000, MaxObjectStreamCount: 100_000, MaxObjectStreamFirst: 4 << 20, MaxXRefEntries: 1_000_000,
		MaxRecursionDepth: maxPDFDepth,
	}
}

// preparePDF keeps the parser away from configuration directories, and makes it read objects in order. Without a logger
// for statistics it would read them in map order, and its repairs would differ from run to run.
var preparePDF = sync.OnceFunc(func() {
	model.ConfigPath = "disable"
	log.SetStatsLogger(silent{})
})

// silent is a logger that logs nothing.
type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}
func (silent) Fatalf(string, ...any) {}
func (silent) Fatalln(...any)        {}

func (s *subject) readPDF() *pdfFile {
	if s.pdfOffset() < 0 {
		return nil
	}
	p := &pdfFile{
		active: newTally(analysis.Objects), embedded: newTally(analysis.Objects), signed: newTally(analysis.Objects),
		meta: newTally(analysis.Objects), worst: analysis.Info,
	}
	if p.err = p.search(s); p.err != nil {
		return p
	}
	preparePDF()
	p.err = guarded(func() (err error) {
		conf := model.NewDefaultConfiguration()
		conf.Cmd, conf.Offline, conf.Optimize, conf.Limits = model.LISTINFO, true, false, pdfLimits(s.Size)
		if p.context, err = pdfcpu.Read(s.section(), conf); err != nil {
			return err
		}
		return p.walk(s.Size)
	})
	p.locked = errors.Is(p.err, pdfcpu.ErrWrongPassword)
	return p
}

// search finds end markers and cross-reference tables anywhere in the file.
func (p *pdfFile) search(s *subject) error {
	const size, overlap = 1 << 20, maxTrailer // a marker may cross the end of a window
	r := bufio.NewReaderSize(s.section(), size)
	for start := int64(0); ; {
		window, err := r.Peek(size)
		atEnd := errors.Is(err, io.EOF)
		if err != nil && !atEnd {
			return err
		}
		until := len(window)
		if !atEnd {
			until -= overlap
		}
		for at := 0; at < until; at++ {
			next := bytes.IndexAny(window[at:until], "%st/")
			if next < 0 {
				break
			}
			at += next
			switch rest := window[at:]; {
			case bytes.HasPrefix(rest, []byte("%%EOF")):
				p.ends = append(p.ends, start+int64(at))
			case bytes.HasPrefix(rest, []byte("startxref")):
				p.startxrefs++
			case bytes.HasPrefix(rest, []byte("/Encrypt")):
				p.encryptWord = true
			case trailerStart.Match(rest):
				if err := p.trailer(s, rest[:min(len(rest), maxTrailer)], start+int64(at)); err != nil {
					return err
				}
			}
		}
		if atEnd {
			return nil
		}
		_, _ = r.Discard(until) // was peeked
		start += int64(until)
	}
}

// maxTrailer is how much of a trailer is examined.
const maxTrailer = 16 << 10

var (
	trailerStart = regexp.MustCompile(`^trailer[\x00\t\n\f\r ]*(<<|%)`) // a word in a text is not followed by a dictionary
	nextTrailer  = regexp.MustCompile(trailerStart.String()[1:])
	escapedName  = regexp.MustCompile(`#[0-9A-Fa-f]{2}`)
	emptySection = regexp.MustCompile(`(%%EOF)?[\x00\t\n\f\r ]*xref[\x00\t\n\f\r ]+0 0[\x00\t\n\f\r ]*$`)
)

// trailer checks a trailer for a hybrid cross-reference (ISO 32000-2, 7.5.8.4). If the section marks an object as free
// and the stream lists it, programs see one or the other. Word ends its files with a section without entries, after the
// end of the body: that is harmless, because there is nothing to choose from, and no change to the file.
func (p *pdfFile) trailer(s *subject, text []byte, at int64) error {
	text, _, ends := bytes.Cut(text, []byte("startxref"))
	if next := nextTrailer.FindIndex(text[1:]); next != nil {
		text = text[:1+next[0]] // the next trailer is examined separately, so that no byte is read twice
	}
	text = escapedName.ReplaceAllFunc(text, func(escape []byte) []byte {
		c, _ := hex.DecodeString(string(escape[1:])) // two digits
		return c
	})
	if !bytes.Contains(text, []byte("/XRefStm")) {
		p.hybrid = p.hybrid || !ends && len(text) == maxTrailer
		return nil
	}
	before := make([]byte, min(at, 64))
	if err := readAt(s.Content, at-int64(len(before)), before); err != nil {
		return err
	}
	switch section := emptySection.FindSubmatch(before); {
	case section == nil:
		p.hybrid = true
	case section[1] != nil:
		p.tails++
	}
	return nil
}

// actions are the action types (ISO 32000-2, 12.6.4) that do more than navigate within the document, with their
// severity.
var actions = map[string]analysis.Severity{
	"JavaScript": analysis.High, "Launch": analysis.High, "SubmitForm": analysis.Medium, "ImportData": analysis.Medium,
	"GoToE": analysis.Medium, "RichMediaExecute": analysis.Medium,
	"Rendition": analysis.Medium, "Movie": analysis.Low, "Sound": analysis.Low, "GoToR": analysis.Low,
	"URI": analysis.Info,
}

// walk examines every object of the cross-reference table, even if nothing refers to it.
func (p *pdfFile) walk(size int64) error {
	table := p.context.XRefTable
	for _, number := range slices.Sorted(maps.Keys(table.Table)) {
		entry := table.Table[number]
		if entry == nil || entry.Free {
			continue
		}
		object, err := table.Dereference(entry.Object)
		if err != nil || object == nil && entry.Offset != nil && *entry.Offset != 0 {
			p.unreadable++
			continue
		}
		if err := p.object(object, int64(number), size, 0); err != nil {
			return err
		}
	}
	return p.info()
}

func (p *pdfFile) object(o types.Object, number, size int64, depth int) error {
	if depth > maxPDFDepth {
		return errLimit
	}
	var d types.Dict
	switch o := o.(type) {
	case types.Array:
		for _, item := range o {
			if err := p.object(item, number, size, depth+1); err != nil {
				return err
			}
		}
		return nil
	case types.Dict:
		d = o
	case types.StreamDict:
		d = o.Dict
	case types.ObjectStreamDict:
		d = o.Dict
	case types.XRefStreamDict:
		d = o.Dict
	default:
		return nil
	}
	p.dict(d, number, size)
	for _, key := range slices.Sorted(maps.Keys(d)) {
		if err := p.object(d[key], number, size, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (p *pdfFile) dict(d types.Dict, number, size int64) {
	kind, subtype, action := p.name(d, "Type"), p.name(d, "Subtype"), p.name(d, "S")

	act := func(s analysis.Severity, structure string) {
		p.active.add(structure, number)
		p.worst = higher(p.worst, s)
	}
	if severity, ok := actions[action]; ok && (kind == "" || kind == "Action") {
		act(severity, action+" action")
	}
	if has(d, "JS") && action != "JavaScript" {
		act(analysis.High, "JS entry")
	}
	if has(d, "JavaScript") {
		act(analysis.High, "JavaScript name tree")
	}
	if has(d, "XFA") {
		act(analysis.Medium, "XFA form")
	}
	if has(d, "AA") {
		act(analysis.Low, "additional actions")
	}
	opened, _ := p.context.Dereference(d["OpenAction"])
	if _, ok := opened.(types.Dict); ok {
		act(analysis.Low, "OpenAction")
	}
	switch subtype {
	case "RichMedia", "3D", "Movie", "Screen", "Sound":
		act(analysis.Low, subtype+" annotation")
	case "FileAttachment":
		p.embedded.add("FileAttachment annotation", number)
	}
	if kind == "EmbeddedFile" {
		p.embedded.add("embedded file stream", number)
	}
	for key, structure := range map[string]string{
		"EF": "file specification", "EmbeddedFiles": "EmbeddedFiles name tree", "Collection": "portfolio",
	} {
		if has(d, key) {
			p.embedded.add(structure, number)
		}
	}
	if kind == "Metadata" || subtype == "XML" && kind == "" {
		p.meta.add("XMP metadata stream", number)
	}
	p.signature(d, kind, number, size)
}

// signature examines a signature dictionary (ISO 32000-2, 12.8.1), or a signature field without one.
func (p *pdfFile) signature(d types.Dict, kind string, number, size int64) {
	if p.name(d, "FT") == "Sig" && !has(d, "V") {
		p.signed.add("empty signature field", number)
	}
	if !has(d, "ByteRange") || !has(d, "Contents") {
		return
	}
	structure := "signature"
	if kind == "DocTimeStamp" {
		structure = "document timestamp"
	}
	p.signed.add(structure, number)
	o, _ := p.context.Dereference(d["ByteRange"])
	list, _ := o.(types.Array)
	if len(list) != 4 {
		p.signed.add("signature with a malformed range", number)
		return
	}
	var at [4]int64
	for i, item := range list {
		at[i] = -1
		if n, ok := item.(types.Integer); ok {
			at[i] = int64(n)
		}
	}
	switch {
	case at[0] != 0 || at[1] < 0 || at[2] < at[1] || at[3] < 0 || at[3] > size-at[2]:
		p.signed.add("signature with a malformed range", number)
	case at[2]+at[3] == size:
		p.lastSignature = true
	default:
		p.signed.add("signature that ends before the end of the file", number)
	}
}

// info reads the names of the entries in the document information dictionary.
func (p *pdfFile) info() error {
	if p.context.Info == nil {
		return nil
	}
	number := int64(p.context.Info.ObjectNumber)
	d, err := p.context.DereferenceDict(*p.context.Info)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(d)) {
		switch key {
		case "Title", "Author", "Subject", "Keywords", "Creator", "Producer", "CreationDate", "ModDate", "Trapped":
			p.meta.add("Info "+key, number)
		default:
			p.meta.add("Info entry of another name", number)
		}
	}
	return nil
}

func has(d types.Dict, key string) bool { return d[key] != nil }

func (p *pdfFile) name(d types.Dict, key string) string {
	o, _ := p.context.Dereference(d[key])
	n, _ := o.(types.Name)
	return string(n)
}

const (
	noPDF       = "The file is no PDF."
	pdfDeclared = "The file is declared a PDF but has no header of one."
	pdfBroken   = "The PDF cannot be read: it is damaged, or goes past a limit."
	pdfLocked   = "The PDF cannot be read without its password."

	unreadableObject = "unreadable object"
)

// pdfOnly applies look to a PDF, whether or not its objects were read.
func pdfOnly(look func(*pdfFile) verdict) func(*subject) verdict {
	return func(s *subject) verdict {
		p := s.pdf()
		switch {
		case p == nil && s.declares("application/pdf"):
			return inconclusive(pdfDeclared)
		case p == nil:
			return notApplicable(noPDF)
		}
		return look(p)
	}
}

// pdfWalk applies look to a PDF whose objects were read. The result is never clear if some objects were not read.
func pdfWalk(look func(*pdfFile) verdict) func(*subject) verdict {
	return pdfOnly(func(p *pdfFile) verdict {
		switch {
		case p.locked:
			return inconclusive(pdfLocked)
		case p.err != nil:
			return inconclusive(pdfBroken)
		}
		v := look(p)
		if v.outcome == analysis.Clear && p.hybrid {
			return inconclusive(
				"The PDF has two cross-reference tables in one section, of which programs read one or the other.",
			)
		}
		if v.outcome == analysis.Clear && p.unreadable > 0 {
			return inconclusive("Some objects of the PDF cannot be read.",
				counted(analysis.Objects, unreadableObject, p.unreadable)...)
		}
		return v
	})
}

func pdfStructure(s *subject) verdict {
	p := s.pdf()
	switch {
	case p == nil && s.declares("application/pdf"):
		return finding(analysis.Medium, pdfDeclared)
	case p == nil:
		return notApplicable(noPDF)
	}
	odd := newTally(analysis.Bytes)
	if at := s.pdfOffset(); at > 0 {
		odd.add("bytes before the header", 0)
	}
	if n := len(p.ends); n == 0 {
		odd.addAll("missing end-of-file marker", 1, -1)
	} else if at := p.ends[n-1]; s.trailing(at + int64(len("%%EOF"))) {
		odd.add("bytes after the last end-of-file marker", at)
	}
	if p.startxrefs == 0 {
		odd.addAll("missing startxref", 1, -1)
	}
	if p.hybrid {
		odd.addAll("cross-reference section with a stream beside it", 1, -1)
	}
	evidence := odd.list()
	if p.unreadable > 0 {
		evidence = append(evidence, counted(analysis.Objects, unreadableObject, p.unreadable)...)
	}
	switch {
	case p.locked:
		return inconclusive(pdfLocked, evidence...)
	case p.err != nil:
		return finding(analysis.Medium, pdfBroken, evidence...)
	case len(evidence) > 0:
		return finding(analysis.Low, "The PDF is not built as it should be.", evidence...)
	}
	return nothing("The PDF's structure can be read.")
}

// trailing reports whether anything but white space follows an offset.
func (s *subject) trailing(from int64) bool {
	r := bufio.NewReader(io.NewSectionReader(s.Content, from, s.Size-from))
	c, err := r.ReadByte()
	for err == nil && strings.IndexByte("\x00\t\n\f\r ", c) >= 0 {
		c, err = r.ReadByte()
	}
	return err == nil
}

func pdfActive(p *pdfFile) verdict {
	some := "The PDF holds active content."
	if p.worst == analysis.Info {
		some = "The PDF holds links."
	}
	return p.active.verdict("The PDF holds no scripts and no actions that reach outside of it.", p.worst, some)
}

func pdfSignatures(p *pdfFile) verdict {
	switch {
	case p.signed.count() == 0:
		return nothing("The PDF holds no signatures.")
	case !p.signed.has("signature", "document timestamp"):
		return finding(analysis.Info, "The PDF holds signature fields without a signature.", p.signed.list()...)
	case !p.lastSignature:
		return finding(analysis.Low, "The PDF holds signatures, none of which covers the file to its end.",
			p.signed.list()...)
	}
	return finding(analysis.Info, "The PDF holds signatures.", p.signed.list()...)
}

func pdfUpdates(p *pdfFile) verdict {
	if len(p.ends) == 0 {
		return inconclusive("The PDF has no end-of-file marker.")
	}
	found := newTally(analysis.Bytes)
	for _, at := range p.ends {
		found.add("end-of-file marker", at)
	}
	revisions := len(p.ends)
	if p.err == nil {
		sections := 1
		for _, entry := range p.context.Table {
			sections = max(sections, entry.Incr)
		}
		found.addAll("cross-reference section", int64(sections), -1)
		if revisions = max(sections, revisions); p.context.Read.Linearized {
			revisions--
		}
	}
	revisions -= min(p.tails, 1) // Word writes one itself; a second one was appended
	switch {
	case revisions > 1:
		return finding(analysis.Info, "The PDF was changed by appending to it.", found.list()...)
	case p.err != nil:
		return inconclusive("The PDF's cross-reference tables cannot be read.", found.list()...)
	}
	return verdict{analysis.Clear, analysis.None, "The PDF was written in one piece.", found.list()}
}

func pdfEncryption(p *pdfFile) verdict {
	switch {
	case p.locked:
		return finding(analysis.Medium, "The PDF is encrypted and needs a password to be opened.")
	case p.err != nil && p.encryptWord:
		return inconclusive("The PDF cannot be read; it seems to be encrypted.")
	case p.err != nil:
		return inconclusive(pdfBroken)
	case p.context.Encrypt != nil || p.context.E != nil:
		t := newTally(analysis.Objects)
		at := int64(-1)
		if p.context.Encrypt != nil {
			at = int64(p.context.Encrypt.ObjectNumber)
		}
		t.add("Encrypt", at)
		return finding(analysis.Low, "The PDF is encrypted; anyone can open it.", t.list()...)
	}
	return nothing("The PDF is not encrypted.")
}
