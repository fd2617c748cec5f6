package web

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"integrityledger/domain/evidence"

	"codeberg.org/go-pdf/fpdf"
)

// sRGB is the colour space of the pages, sRGB2014.icc of the International Color Consortium, whose terms are in
// icc/LICENSE.color.org.
//
//go:embed icc/sRGB2014.icc
var sRGB []byte

// archived describes a document that is written as PDF/A-3b (ISO 19005-3): all fonts are in it, its colours are
// defined, it has XMP metadata, and each attached file says how it relates to the document.
type archived struct {
	title    string
	language evidence.Language
	at       time.Time
	producer string
	files    []attachedFile // the first is the data that the pages show
}

type attachedFile struct {
	evidence.ReportFile
	description string
}

// write ends the pages and returns the document. The package fpdf writes pages and fonts, but it knows neither file
// identifiers nor relationships of attached files, and its links lack the flag that PDF/A requires. Its last object is
// the catalog, which is replaced here together with all that follows. The same pages and files make the same bytes.
func (a archived) write(pages *fpdf.Fpdf) ([]byte, error) {
	pages.SetCatalogSort(true)
	pages.SetCreationDate(a.at.UTC())
	pages.SetModificationDate(a.at.UTC())
	pages.SetProducer(a.producer, true)
	pages.SetTitle(a.title, true)
	var made bytes.Buffer
	if err := pages.Output(&made); err != nil {
		return nil, fmt.Errorf("PDF: %w", err)
	}
	// Type is optional in an annotation, so F can take its place without moving anything. The streams are compressed.
	text := bytes.ReplaceAll(
		made.Bytes(), []byte("/Type /Annot /Subtype /Link "), []byte("/Subtype /Link /F 4         "),
	)
	p, err := openObjects(text)
	if err != nil {
		return nil, err
	}
	catalog, info := p.next-1, p.next-2
	p.truncate(catalog)
	metadata := p.stream("/Type /Metadata /Subtype /XML", a.metadata(), false)
	profile := p.stream("/N 3", sRGB, true)
	var names, related []string
	for i, f := range a.files {
		reference := fmt.Sprintf("%d 0 R", p.attach(f, a.at, i == 0))
		names, related = append(names, textString(f.Name)+" "+reference), append(related, reference)
	}
	slices.Sort(names) // a name tree is in order (ISO 32000-2, 7.9.6)
	root := p.add(fmt.Sprintf(
		"<</Type /Catalog /Pages 1 0 R /Lang (%s) /Metadata %d 0 R /PageMode /UseAttachments /ViewerPreferences "+
			"<</DisplayDocTitle true>> /OutputIntents [<</Type /OutputIntent /S /GTS_PDFA1 /OutputConditionIdentifier "+
			"(sRGB2014) /Info (sRGB) /DestOutputProfile %d 0 R>>] /AF [%s] /Names <</EmbeddedFiles <</Names [%s]>>>>>>",
		a.language, metadata, profile, strings.Join(related, " "), strings.Join(names, " "),
	))
	return p.end(root, info), nil
}

// objects are the numbered objects of a PDF.
type objects struct {
	bytes.Buffer
	offsets []int // by number, from 1
	next    int   // the number of the next object
}

var startOfTable = regexp.MustCompile(`startxref\s+(\d+)\s+%%EOF\s*$`)

const tableEntry = len("0000000000 00000 n \n")

// openObjects reads the cross-reference table of a PDF that fpdf wrote, and cuts the table off.
func openObjects(text []byte) (*objects, error) {
	found := startOfTable.FindSubmatch(text)
	if found == nil || !bytes.HasPrefix(text, []byte("%PDF-1.")) {
		return nil, errors.New("PDF: it has no cross-reference table")
	}
	at, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return nil, fmt.Errorf("PDF: %w", err)
	}
	var count int
	if _, err := fmt.Sscanf(string(text[at:]), "xref\n0 %d\n", &count); err != nil {
		return nil, fmt.Errorf("PDF: cross-reference table: %w", err)
	}
	p := &objects{next: count, offsets: []int{0}}
	entries := text[at+len(fmt.Sprintf("xref\n0 %d\n", count)):]
	for i := 1; i < count; i++ {
		offset, err := strconv.Atoi(string(entries[i*tableEntry : i*tableEntry+10]))
		if err != nil {
			return nil, fmt.Errorf("PDF: cross-reference table: %w", err)
		}
		p.offsets = append(p.offsets, offset)
	}
	copy(text, "%PDF-1.7") // what is added needs it
	p.Write(text[:at])
	return p, nil
}

// truncate removes the objects from a number on, which are the last.
func (p *objects) truncate(number int) {
	p.Truncate(p.offsets[number])
	p.offsets, p.next = p.offsets[:number], number
}

// add adds an object and returns its number.
func (p *objects) add(object string) int {
	number := p.next
	p.offsets, p.next = append(p.offsets, p.Len()), number+1
	fmt.Fprintf(p, "%d 0 obj\n%s\nendobj\n", number, object)
	return number
}

func (p *objects) stream(entries string, content []byte, compressed bool) int {
	if compressed {
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		_, _ = w.Write(content) // a buffer takes everything
		_ = w.Close()
		entries, content = entries+" /Filter /FlateDecode", b.Bytes()
	}
	return p.add(fmt.Sprintf("<<%s /Length %d>>\nstream\n%s\nendstream", entries, len(content), content))
}

// attach adds a file and returns the number of its specification (ISO 32000-2, 7.11.3).
func (p *objects) attach(f attachedFile, at time.Time, shown bool) int {
	relationship := "Supplement"
	if shown {
		relationship = "Data"
	}
	content := p.stream(fmt.Sprintf(
		"/Type /EmbeddedFile /Subtype /%s /Params <</Size %d /ModDate (D:%sZ)>>",
		strings.ReplaceAll(f.MediaType(), "/", "#2F"), len(f.Content), at.UTC().Format("20060102150405"),
	), f.Content, true)
	return p.add(fmt.Sprintf(
		"<</Type /Filespec /F %[1]s /UF %[1]s /Desc %[2]s /AFRelationship /%[3]s /EF <</F %[4]d 0 R /UF %[4]d 0 R>>>>",
		textString(f.Name), textString(f.description), relationship, content,
	))
}

// end writes the cross-reference table and the trailer. The identifier of the file is a hash of it.
func (p *objects) end(root, info int) []byte {
	sum := sha256.Sum256(p.Bytes())
	id, at := hex.EncodeToString(sum[:16]), p.Len()
	fmt.Fprintf(p, "xref\n0 %d\n0000000000 65535 f \n", p.next)
	for _, offset := range p.offsets[1:] {
		fmt.Fprintf(p, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(
		p, "trailer\n<</Size %d /Root %d 0 R /Info %d 0 R /ID [<%[4]s> <%[4]s>]>>\nstartxref\n%[5]d\n%%%%EOF\n",
		p.next, root, info, id, at,
	)
	return p.Bytes()
}

// textString writes a text string in hexadecimal (ISO 32000-2, 7.9.2.2).
func textString(text string) string {
	b := []byte{0xfe, 0xff}
	for _, unit := range utf16.Encode([]rune(text)) {
		b = append(b, byte(unit>>8), byte(unit))
	}
	return "<" + strings.ToUpper(hex.EncodeToString(b)) + ">"
}

// metadata returns the XMP packet (ISO 16684-1).
func (a archived) metadata() []byte {
	var title, producer bytes.Buffer
	_ = xml.EscapeText(&title, []byte(a.title)) // a buffer takes everything
	_ = xml.EscapeText(&producer, []byte(a.producer))
	return fmt.Appendf(nil, `<?xpacket begin="%s" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:pdf="http://ns.adobe.com/pdf/1.3/" `+
		`xmlns:pdfaid="http://www.aiim.org/pdfa/ns/id/" xmlns:xmp="http://ns.adobe.com/xap/1.0/">
<pdfaid:part>3</pdfaid:part>
<pdfaid:conformance>B</pdfaid:conformance>
<dc:format>application/pdf</dc:format>
<dc:language><rdf:Bag><rdf:li>%s</rdf:li></rdf:Bag></dc:language>
<dc:title><rdf:Alt><rdf:li xml:lang="x-default">%s</rdf:li></rdf:Alt></dc:title>
<pdf:Producer>%s</pdf:Producer>
<xmp:CreateDate>%[5]s</xmp:CreateDate>
<xmp:ModifyDate>%[5]s</xmp:ModifyDate>
</rdf:Description>
</rdf:RDF>
</x:xmpmeta>
<?xpacket end="r"?>`, "\ufeff", a.language, title.Bytes(), producer.Bytes(), a.at.UTC().Format(time.RFC3339))
}
