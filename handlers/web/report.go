package web

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"integrityledger/domain/evidence"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
)

// Report is the content of an evidence report: what its files prove about a record, in words for people. Without Own it
// names no reference, no other version and no person.
type Report struct {
	Language evidence.Language
	PublicID string
	URL      string // of the record's page, as in its QR code
	MadeAt   time.Time
	Record   evidence.RecordPayload
	KeyID    string
	// FingerprintSHA256 is of the signing key.
	FingerprintSHA256 string
	State             string                // current, superseded or revoked, at MadeAt
	Vouching          Vouching              // by what Files prove; unknown while the proof of inclusion is missing
	Files             []evidence.ReportFile // the first is the receipt or the evidence
	Own               *OwnReport            // nil in the public report
}

// OwnReport is what only the organization's own report shows.
type OwnReport struct {
	References evidence.References
	RevokedAt  *time.Time
	Versions   []RecordRow // of the document, the highest first
	More       bool        // there are lower versions
}

// FileName returns the name of a report as a file. The organization's own report is named as private.
func (r Report) FileName() string {
	if r.Own != nil {
		return "integrity-report-private-" + r.PublicID + ".pdf"
	}
	return "integrity-report-" + r.PublicID + ".pdf"
}

// reportTexts are the texts of a report. A text with a verb of package fmt takes the values that its comment says.
type reportTexts struct {
	Title                                      string
	Made                                       string // time, address
	Lead, Private, PublicNote                  string
	PublicDisclosed                            string // title of the section that ends with the operator's text
	Record, SHA256, Size, Type                 string
	Bytes                                      string // number
	Generated, Received, State, Seen           string // Seen: time
	Alone, Unknown, VouchHow                   string // VouchHow: address
	References, Company, Source                string
	Document, Version, Versions, Earlier       string
	RevokedAt, Former                          string // Former: public id
	States                                     map[string]string
	Ways, Online, OnlineText                   string // OnlineText: address
	Offline, OfflineText, Others               string
	OthersText, OthersToken, OthersProof, Keys string // OthersProof: name of a file
	Files                                      string
	Purposes                                   map[evidence.FilePurpose]string
	Page                                       string // number, number of all
}

// maxReportPages is the largest number of pages of a report.
const maxReportPages = 2

// Report renders an evidence report as PDF/A-3b with its files attached. The same content makes the same bytes.
func (s *Site) Report(r Report) ([]byte, error) {
	t := s.catalogue(r.Language, Record)
	code, err := DrawQR(r.URL)
	if err != nil {
		return nil, err
	}
	// Operators write texts of any length, so longer ones are printed smaller, down to a print that can still be read.
	for scale := largestReport; ; scale -= 0.07 {
		sheet := newSheet(scale, t.Report.Title+" · "+r.PublicID, t.Report.Page)
		s.writeReport(sheet, t, r, code)
		if sheet.PageCount() > maxReportPages && scale > smallestReport {
			continue
		}
		document := archived{
			title: t.Report.Title + " " + r.PublicID, language: r.Language, at: r.MadeAt, producer: "Integrity Ledger",
		}
		for _, f := range r.Files {
			document.files = append(document.files, attachedFile{f, t.Report.Purposes[f.Purpose()]})
		}
		return document.write(sheet.Fpdf)
	}
}

// Scales of the print.
const largestReport, smallestReport = 1.12, 0.4

func (s *Site) writeReport(p *sheet, t *texts, r Report, code *Drawing) {
	w := t.Report
	p.heading(w.Title, code, r.URL)
	p.paragraph(fmt.Sprintf(w.Made, date(r.Language, r.MadeAt), s.BaseURL))
	p.paragraph(w.Lead)
	limits, points := Record.Limits(r.Language, s.Relationship[r.Language])
	switch {
	case r.Own != nil:
		p.paragraph(w.Private)
	case s.Relationship[r.Language] == "":
		p.paragraph(w.PublicNote)
	default:
		p.paragraph(fmt.Sprintf(w.PublicDisclosed, limits))
	}

	p.section(w.Record)
	p.code(w.SHA256, r.Record.SHA256.String())
	received := evidence.FormatTime(r.Record.ReceivedAt)
	p.fact(w.Received, date(r.Language, r.Record.ReceivedAt)+" ("+received+"). "+t.Declared)
	p.fact(w.State, fmt.Sprintf(w.Seen, date(r.Language, r.MadeAt))+" "+t.Seen[r.State])
	vouch := t.Vouch
	vouch.Alone = w.Alone
	p.fact(vouch.Label, cmp.Or(r.Vouching.line(vouch, r.Language), w.Unknown)+" "+
		fmt.Sprintf(w.VouchHow, s.BaseURL+Path(r.Language, TrustPath)))
	p.fact(w.Size, fmt.Sprintf(w.Bytes, r.Record.SizeBytes))
	p.fact(w.Type, r.Record.MimeType)
	p.fact(w.Generated, generated(r))
	p.code(t.PublicID, r.PublicID)
	if r.Record.PublicID != r.PublicID {
		p.fact("", fmt.Sprintf(w.Former, r.Record.PublicID))
	}
	p.code(t.KeyID, r.KeyID)
	p.code(t.Fingerprint, r.FingerprintSHA256)

	if own := r.Own; own != nil {
		p.section(w.References)
		p.fact(w.Company, own.References.CompanyReference)
		p.fact(w.Source, own.References.Source)
		p.fact(w.Document, own.References.DocumentReference)
		p.fact(w.Version, fmt.Sprint(own.References.Version))
		if own.RevokedAt != nil {
			p.fact(w.RevokedAt, date(r.Language, *own.RevokedAt))
		}
		p.section(w.Versions)
		for _, v := range own.Versions {
			p.row(
				fmt.Sprint(w.Version, " ", v.Version), w.States[v.Status], date(r.Language, v.ReceivedAt), v.PublicID,
				v.PublicID == r.PublicID,
			)
		}
		if own.More {
			p.paragraph(w.Earlier)
		}
	}

	p.section(limits)
	for _, point := range points {
		p.point(point)
	}

	if p.PageNo() == 1 {
		p.AddPage()
	}
	p.section(w.Ways)
	p.way("1", w.Online, fmt.Sprintf(w.OnlineText, r.URL))
	p.way("2", w.Offline, w.OfflineText, "integrity verify "+r.FileName()+" integrity-trusted-keys.json "+
		t.FileArgument)
	others := []string{"sha256sum " + t.FileArgument, "pdfdetach -saveall " + r.FileName()}
	text := []string{w.OthersText}
	for _, f := range r.Files {
		if f.Purpose() == evidence.ProofFile {
			text = append(text, fmt.Sprintf(w.OthersProof, f.Name))
		}
	}
	if token, checkpoint, chain := evidence.TokenIn(r.Files); token != "" {
		text = append(text, w.OthersToken)
		others = append(others, "openssl ts -verify -partial_chain -in "+token+" -data "+checkpoint+" -CAfile "+chain)
	}
	p.way("3", w.Others, strings.Join(append(text, w.Keys), " "), others...)

	p.section(w.Files)
	for rest := r.Files; len(rest) > 0; {
		purpose, names := rest[0].Purpose(), []string{}
		for _, f := range rest {
			if f.Purpose() == purpose {
				names = append(names, f.Name)
			}
		}
		p.file(strings.Join(names, ", "), w.Purposes[purpose])
		rest = slices.DeleteFunc(slices.Clone(rest), func(f evidence.ReportFile) bool { return f.Purpose() == purpose })
	}
}

// generated returns the declared time, for people and in full.
func generated(r Report) string {
	text := string(r.Record.GeneratedAt)
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return date(r.Language, at) + " (" + text + ")"
	}
	return text
}

// Fonts of a sheet, and its measures in millimetres. Sizes of fonts are in points.
const (
	plainFont, monoFont = "go", "gomono"

	marginX, marginY = 18.0, 15.0
	sheetWidth       = 210 - 2*marginX
	labelWidth       = 44.0
	codeSide         = 36.0
)

// sheet is A4 paper that is written from top to bottom.
type sheet struct {
	*fpdf.Fpdf
	scale float64
}

func newSheet(scale float64, foot, page string) *sheet {
	p := &sheet{fpdf.New("P", "mm", "A4", ""), scale}
	for _, f := range []struct {
		family, style string
		ttf           []byte
	}{{plainFont, "", goregular.TTF}, {plainFont, "B", gobold.TTF}, {monoFont, "", gomono.TTF}} {
		p.AddUTF8FontFromBytes(f.family, f.style, bytes.Clone(f.ttf)) // fpdf may change it
	}
	const all = "{all}"
	p.AliasNbPages(all)
	p.SetMargins(marginX, marginY, marginX)
	p.SetCellMargin(0)
	p.SetAutoPageBreak(true, marginY+4)
	p.SetFooterFunc(func() {
		p.SetY(-marginY)
		p.font(plainFont, "", 7.5)
		p.SetTextColor(90, 90, 90)
		p.CellFormat(sheetWidth/2, 4, printable(foot), "", 0, "L", false, 0, "")
		p.CellFormat(sheetWidth/2, 4, fmt.Sprintf(page, fmt.Sprint(p.PageNo()), all), "", 0, "R", false, 0, "")
		p.SetTextColor(0, 0, 0)
	})
	p.AddPage()
	return p
}

// letters are those of the fonts: what they lack must not be printed, because PDF/A requires all of it to be visible.
var letters = sync.OnceValue(func() *sfnt.Font {
	font, err := sfnt.Parse(goregular.TTF)
	if err != nil {
		panic("the font is part of the program: " + err.Error())
	}
	return font
})

// printable replaces what the fonts lack.
func printable(text string) string {
	var buffer sfnt.Buffer
	return strings.Map(func(r rune) rune {
		if i, err := letters().GlyphIndex(&buffer, r); err != nil || i == 0 {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
}

func (p *sheet) font(family, style string, size float64) { p.SetFont(family, style, size*p.scale) }

// text writes lines of text between the left edge, in millimetres from the margin, and the right margin.
func (p *sheet) text(left, line float64, text string) {
	p.SetX(marginX + left)
	p.MultiCell(sheetWidth-left, line*p.scale, printable(text), "", "L", false)
}

func (p *sheet) heading(title string, code *Drawing, url string) {
	quiet := quietZone * codeSide / float64(code.width) // it extends into the margin
	left := marginX + sheetWidth - codeSide + quiet
	p.drawCode(code, left, marginY-quiet, codeSide)
	p.LinkString(left, marginY-quiet, codeSide, codeSide, url)
	p.SetRightMargin(marginX + codeSide + 4)
	p.font(plainFont, "B", 9)
	p.SetTextColor(90, 90, 90)
	p.CellFormat(0, 5*p.scale, "Integrity Ledger", "", 1, "L", false, 0, "")
	p.SetTextColor(0, 0, 0)
	p.font(plainFont, "B", 20)
	p.CellFormat(0, 11*p.scale, title, "", 1, "L", false, 0, "")
	p.Ln(1)
}

// drawCode draws a QR code of side millimetres, including its quiet zone.
func (p *sheet) drawCode(d *Drawing, x, y, side float64) {
	module := side / float64(d.width)
	p.SetFillColor(0, 0, 0)
	for _, m := range d.modules {
		p.Rect(x+float64(m.X)*module, y+float64(m.Y)*module, module, module, "F")
	}
}

// paragraph writes text beside the QR code, or below it.
func (p *sheet) paragraph(text string) {
	p.font(plainFont, "", 9)
	_, _, right, _ := p.GetMargins()
	p.MultiCell(210-marginX-right, 4.4*p.scale, printable(text), "", "L", false)
	p.Ln(1.2 * p.scale)
}

// section begins below the QR code. It begins a page unless a few lines have room.
func (p *sheet) section(title string) {
	if p.SetRightMargin(marginX); p.PageNo() == 1 {
		p.SetY(max(p.GetY(), marginY+codeSide-4))
	}
	if p.GetY() > 297-marginY-4-18*p.scale {
		p.AddPage()
	}
	p.Ln(1.5 * p.scale)
	p.font(plainFont, "B", 11)
	p.text(0, 5.2, title)
	y := p.GetY() + 0.5
	p.SetDrawColor(150, 150, 150)
	p.SetLineWidth(0.2)
	p.Line(marginX, y, marginX+sheetWidth, y)
	p.Ln(1.8 * p.scale)
}

func (p *sheet) label(text string) {
	p.font(plainFont, "", 8.5)
	p.SetTextColor(70, 70, 70)
	top := p.GetY()
	p.MultiCell(labelWidth-2, 4.2*p.scale, printable(text), "", "L", false)
	p.SetTextColor(0, 0, 0)
	p.SetY(top)
}

// fact writes a label and its value beside it.
func (p *sheet) fact(label, value string) {
	p.beside(label, func() {
		p.font(plainFont, "", 8.8)
		p.text(labelWidth, 4.2, value)
	})
}

// code is fact with a value of a fixed width.
func (p *sheet) code(label, value string) {
	p.beside(label, func() {
		p.font(monoFont, "", 8)
		p.text(labelWidth, 4.2, value)
	})
}

// beside writes a label, and with write the value to its right.
func (p *sheet) beside(label string, write func()) {
	p.keep(9)
	top := p.GetY()
	p.label(label)
	p.font(plainFont, "", 8.5)
	lines := len(p.SplitText(printable(label), labelWidth-2))
	write()
	p.SetY(max(p.GetY(), top+float64(lines)*4.2*p.scale) + 0.6*p.scale)
}

// keep begins a page unless millimetres have room, so that a label and its value stay together.
func (p *sheet) keep(room float64) {
	if p.GetY()+room*p.scale > 297-marginY-4 {
		p.AddPage()
	}
}

func (p *sheet) row(version, state, received, publicID string, here bool) {
	p.keep(5)
	style := ""
	if here {
		style = "B"
	}
	for _, cell := range []struct {
		width float64
		text  string
	}{{26, version}, {28, state}, {64, received}} {
		p.font(plainFont, style, 8.5)
		p.CellFormat(cell.width, 4.3*p.scale, printable(cell.text), "", 0, "L", false, 0, "")
	}
	p.font(monoFont, "", 8)
	p.CellFormat(0, 4.3*p.scale, publicID, "", 1, "L", false, 0, "")
}

func (p *sheet) point(text string) {
	p.font(plainFont, "", 8.3)
	p.keep(5)
	top := p.GetY()
	p.CellFormat(4, 3.8*p.scale, "•", "", 0, "L", false, 0, "")
	p.SetY(top)
	p.text(4, 3.8, text)
	p.Ln(0.5 * p.scale)
}

func (p *sheet) way(number, title, text string, commands ...string) {
	p.keep(14)
	p.font(plainFont, "B", 9)
	p.text(0, 4.4, number+". "+title)
	p.font(plainFont, "", 8.5)
	p.text(5, 4, text)
	p.font(monoFont, "", 7.2)
	p.SetFillColor(240, 240, 240)
	p.SetCellMargin(1)
	for _, command := range commands {
		p.Ln(0.6 * p.scale)
		p.SetX(marginX + 5)
		p.MultiCell(sheetWidth-5, 4.4*p.scale, printable(command), "", "L", true)
	}
	p.SetCellMargin(0)
	p.Ln(1.2 * p.scale)
}

func (p *sheet) file(names, purpose string) {
	p.keep(8)
	p.font(monoFont, "", 7.5)
	p.text(0, 3.8, names)
	p.font(plainFont, "", 8.3)
	p.text(5, 3.8, purpose)
	p.Ln(0.5 * p.scale)
}
