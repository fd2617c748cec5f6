package detect

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"integrityledger/domain/analysis"

	"github.com/richardlehane/mscfb"
)

// officeTypes maps the media type of an Office Open XML file to the content type of its main part, both in lower case.
// The main part's content type, never a name, decides whether a file may contain macros.
var officeTypes = map[string]string{
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document":   "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.template":   "application/vnd.openxmlformats-officedocument.wordprocessingml.template.main+xml",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":         "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.template":      "application/vnd.openxmlformats-officedocument.spreadsheetml.template.main+xml",
	"application/vnd.openxmlformats-officedocument.presentationml.presentation": "application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml",
	"application/vnd.openxmlformats-officedocument.presentationml.slideshow":    "application/vnd.openxmlformats-officedocument.presentationml.slideshow.main+xml",
	"application/vnd.openxmlformats-officedocument.presentationml.template":     "application/vnd.openxmlformats-officedocument.presentationml.template.main+xml",
	"application/vnd.ms-word.document.macroenabled.12":                          "application/vnd.ms-word.document.macroenabled.main+xml",
	"application/vnd.ms-word.template.macroenabled.12":                          "application/vnd.ms-word.template.macroenabledtemplate.main+xml",
	"application/vnd.ms-excel.sheet.macroenabled.12":                            "application/vnd.ms-excel.sheet.macroenabled.main+xml",
	"application/vnd.ms-excel.template.macroenabled.12":                         "application/vnd.ms-excel.template.macroenabled.main+xml",
	"application/vnd.ms-excel.addin.macroenabled.12":                            "application/vnd.ms-excel.addin.macroenabled.main+xml",
	"application/vnd.ms-excel.sheet.binary.macroenabled.12":                     "application/vnd.ms-excel.sheet.binary.macroenabled.main",
	"application/vnd.ms-powerpoint.presentation.macroenabled.12":                "application/vnd.ms-powerpoint.presentation.macroenabled.main+xml",
	"application/vnd.ms-powerpoint.slideshow.macroenabled.12":                   "application/vnd.ms-powerpoint.slideshow.macroenabled.main+xml",
	"application/vnd.ms-powerpoint.template.macroenabled.12":                    "application/vnd.ms-powerpoint.template.macroenabled.main+xml",
	"application/vnd.ms-powerpoint.addin.macroenabled.12":                       "application/vnd.ms-powerpoint.addin.macroenabled.main+xml",
}

const noOffice = "The file is no Office file."

// office examines a file as Office Open XML or, if binary is not nil, as a compound file.
func office(ooxml, binary func(*subject) verdict) func(*subject) verdict {
	return func(s *subject) verdict {
		switch {
		case s.is(oleStorage):
			if binary == nil {
				return inconclusive("The older binary Office formats are not looked into.")
			}
			return binary(s)
		case s.is(
			"application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.spreadsheet",
			"application/vnd.oasis.opendocument.presentation", "application/vnd.oasis.opendocument.graphics",
		):
			return inconclusive("OpenDocument files are not looked into.")
		}
		z := s.zip()
		declared := officeTypes[mediaType(s.DeclaredType)] != ""
		switch {
		case z.err != nil && declared:
			return inconclusive("The file is declared an Office file but cannot be read as one.")
		case z.err != nil:
			return notApplicable(noOffice)
		case z.tables != nil && (declared || z.office != "" || len(z.types) > 0):
			return inconclusive("A table of the Office file cannot be read whole.")
		case z.office == "" && declared:
			return inconclusive("The file is declared an Office file but names no main part of one.")
		case z.office == "":
			return notApplicable(noOffice)
		}
		v := ooxml(s)
		if v.outcome == analysis.Clear && z.hidden() {
			return inconclusive(hiddenBytes)
		}
		return v
	}
}

func (s *subject) ooxmlMacros() verdict {
	found := newTally(analysis.Entries)
	for _, t := range s.zip().types {
		switch t.contentType {
		case "application/vnd.ms-office.vbaproject":
			found.add("VBA project", t.entry)
		case "application/vnd.ms-excel.macrosheet+xml", "application/vnd.ms-excel.intlmacrosheet+xml",
			"application/vnd.ms-excel.macrosheet", "application/vnd.ms-excel.intlmacrosheet":
			found.add("Excel 4.0 macro sheet", t.entry)
		case "application/vnd.ms-word.vbadata+xml":
			found.add("VBA data", t.entry)
		}
	}
	for _, r := range s.zip().relationships {
		switch r.kind {
		case "vbaProject":
			found.add("VBA project relationship", r.entry)
		case "xlMacrosheet", "xlIntlMacrosheet":
			found.add("Excel 4.0 macro sheet relationship", r.entry)
		}
	}
	return found.verdict("The file declares no part that holds macros.", analysis.High, "The file holds macros.")
}

// externalKinds are the relationships whose external target matters, with their severity. Targets that an application
// loads when it opens the file are more severe than links that a reader must click. All other relationships are
// "other".
var externalKinds = map[string]analysis.Severity{
	"hyperlink": analysis.Info, "image": analysis.Low, "audio": analysis.Low, "video": analysis.Low, "media": analysis.Low,
	"externalLinkPath": analysis.Medium, "externalLink": analysis.Medium, "xlExternalLinkPath": analysis.Medium,
	"mailMergeSource": analysis.Medium, "recipientData": analysis.Medium, "linkedMedia": analysis.Low,
	"attachedTemplate": analysis.High, "oleObject": analysis.High, "frame": analysis.High, "subDocument": analysis.High,
	"aFChunk": analysis.High, "package": analysis.High, "control": analysis.High,
}

func (s *subject) ooxmlExternal() verdict {
	found := newTally(analysis.Entries)
	worst := analysis.Info
	for _, r := range s.zip().relationships {
		if !r.external {
			continue
		}
		severity, known := externalKinds[r.kind]
		name := "external " + r.kind
		if !known {
			severity, name = analysis.Medium, "external relationship of another kind"
		}
		found.add(name, r.entry)
		worst = higher(worst, severity)
	}
	some := "Parts of the file lie outside of it."
	if worst == analysis.Info {
		some = "The file holds links."
	}
	return found.verdict("The file refers to nothing outside of it.", worst, some)
}

func (s *subject) ooxmlObjects() verdict {
	found := newTally(analysis.Entries)
	worst := analysis.Low
	for _, t := range s.zip().types {
		switch t.contentType {
		case "application/vnd.ms-office.activex+xml", "application/vnd.ms-office.activex":
			found.add("ActiveX control", t.entry)
			worst = analysis.Medium
		case "application/vnd.openxmlformats-officedocument.oleobject":
			found.add("OLE object", t.entry)
			worst = analysis.Medium
		}
	}
	for _, r := range s.zip().relationships {
		if !r.external &&
			slices.Contains([]string{"oleObject", "control", "activeXControlBinary", "package", "aFChunk"}, r.kind) {
			found.add(r.kind+" relationship", r.entry)
			if r.kind != "package" {
				worst = analysis.Medium
			}
		}
	}
	return found.verdict("The file holds no embedded objects.", worst, "The file holds embedded objects.")
}

// binaryNames counts the names of storages and streams, which show the content of a compound file ([MS-OVBA],
// [MS-OFFCRYPTO], [MS-OLEDS]).
func (s *subject) binaryNames() (map[string]int64, error) {
	names := map[string]int64{}
	err := guarded(func() error {
		r, err := mscfb.New(s.Content)
		if err != nil {
			return err
		}
		for i := int64(0); ; i++ {
			entry, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			// The package moves a name's leading control character to Initial.
			names[entry.Name]++
		}
	})
	return names, err
}

func (s *subject) binary(
	found func(names map[string]int64, t *tally), none string, severity analysis.Severity, some string,
) verdict {
	names, err := s.binaryNames()
	switch {
	case err != nil:
		return inconclusive("The file's directory cannot be read.")
	case names["EncryptedPackage"] > 0:
		return inconclusive("The file is encrypted.")
	}
	t := newTally(analysis.Entries)
	found(names, t)
	return t.verdict(none, severity, some)
}

// addNames counts the wanted names that exist.
func (t *tally) addNames(names map[string]int64, wanted ...string) {
	for _, name := range wanted {
		if n := names[name]; n > 0 {
			t.addAll(name, n, -1)
		}
	}
}

func (s *subject) binaryMacros() verdict {
	return s.binary(func(names map[string]int64, t *tally) {
		t.addNames(names, "_VBA_PROJECT", "_VBA_PROJECT_CUR")
	}, "The file holds no VBA project.", analysis.High, "The file holds macros.")
}

func (s *subject) binaryObjects() verdict {
	return s.binary(func(names map[string]int64, t *tally) {
		t.addNames(names, "ObjectPool", "Ole10Native", "Package")
		for name, n := range names {
			if len(name) > 3 && name[:3] == "MBD" { // [MS-XLS] 2.1.2: storage of an embedded object
				t.addAll("embedding storage", n, -1)
			}
		}
	}, "The file holds no embedded objects.", analysis.Medium, "The file holds embedded objects.")
}

// higher returns the higher of two severities.
func higher(a, b analysis.Severity) analysis.Severity {
	all := analysis.Severities()
	return all[max(slices.Index(all, a), slices.Index(all, b))]
}

// Limits on unpacking a package's tables. Documents and media are never unpacked.
const (
	maxPart   = 8 << 20  // bytes of one table
	maxParts  = 64 << 20 // bytes of all tables of one file
	partsFrom = 4 << 20  // above this many bytes, the tables may have at most highRatio times the file's size
)

// zipFile is the directory of a ZIP file and, if it is an Office Open XML package, its tables.
type zipFile struct {
	reader *zip.Reader
	err    error  // set if this is not a ZIP file, or its directory cannot be read
	office string // media type of the Office package; empty for other files
	// packaged is the package type, one of packageTypes, that a non-Office package declares; empty if it declares none.
	packaged string

	types         []partType
	relationships []relationship
	tables        error // set if a table could not be read completely

	layout    *zipLayout
	layoutErr error
}

// hidden reports whether another program may find entries that the directory does not list.
func (z *zipFile) hidden() bool {
	return z.layoutErr != nil || z.layout.outside > 0 || z.layout.overlap || z.layout.sizes > 0 ||
		len(z.layout.differing) > 0
}

// partType is the content type of a part, or of all parts with an extension, and the entry that sets it.
type partType struct {
	contentType string // in lower case
	entry       int64
}

// relationship is one of a part's relationships (ECMA-376, part 2).
type relationship struct {
	kind     string // last segment of its type
	external bool
	entry    int64
}

// isZip reports whether the content begins like a ZIP file.
func (s *subject) isZip() bool {
	return bytes.HasPrefix(s.head, []byte("PK\x03\x04")) || bytes.HasPrefix(s.head, []byte("PK\x05\x06"))
}

var errNoZip = errors.New("no ZIP file")

// readZip reads the directory.
func (s *subject) readZip() *zipFile {
	z := &zipFile{err: errNoZip}
	if !s.isZip() && zipEnd(s) < 0 {
		return z
	}
	z.err = guarded(func() (err error) {
		z.reader, err = zip.NewReader(s.Content, s.Size)
		return err
	})
	if z.err != nil && !errors.Is(z.err, zip.ErrInsecurePath) {
		return z
	}
	z.err = nil
	z.layout, z.layoutErr = readZipLayout(s.Content, s.Size, z.reader.File)
	z.packaged = z.mimetype()
	z.tables = guarded(func() error { return z.readTables(unpackedBudget(s.Size, partsFrom, maxParts)) })
	return z
}

// zipEnd finds the end record of a ZIP file whose comment ends with the file, or returns -1.
func zipEnd(s *subject) int64 {
	at, _ := zipEndIn(s.Content, s.Size, true)
	return at
}

// mimetype reads the first entry of packages that begin with an entry of that name.
func (z *zipFile) mimetype() string {
	if len(z.reader.File) == 0 || z.reader.File[0].Name != "mimetype" {
		return ""
	}
	r, err := z.reader.File[0].Open()
	if err != nil {
		return ""
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, 128))
	if err != nil {
		return ""
	}
	return saysPackage(string(text))
}

// readTables reads the content types and relationships of an Office package, up to budget bytes.
func (z *zipFile) readTables(budget int64) error {
	used := int64(0)
	table := func(f *zip.File, entry int, element func(xml.StartElement, int64)) error {
		r, err := f.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		decoder := xml.NewDecoder(&budgetReader{r, &used, min(used+maxPart, budget)})
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if start, ok := token.(xml.StartElement); ok {
				element(start, int64(entry))
			}
		}
	}
	for i, f := range z.reader.File {
		if strings.EqualFold(strings.TrimPrefix(f.Name, "/"), "[Content_Types].xml") {
			if err := table(f, i, z.contentType); err != nil {
				return err
			}
		}
	}
	if z.office == "" {
		return nil
	}
	for i, f := range z.reader.File {
		if strings.EqualFold(path.Ext(f.Name), ".rels") {
			if err := table(f, i, z.relationship); err != nil {
				return err
			}
		}
	}
	return nil
}

func (z *zipFile) contentType(e xml.StartElement, entry int64) {
	if e.Name.Local != "Default" && e.Name.Local != "Override" {
		return
	}
	t := mediaType(attribute(e, "ContentType"))
	z.types = append(z.types, partType{t, entry})
	if t == "application/vnd.ms-package.xps-fixeddocumentsequence+xml" {
		z.packaged = "application/vnd.ms-xpsdocument"
	}
	for media, main := range officeTypes {
		if t == main && (z.office == "" || media < z.office) {
			z.office = media
		}
	}
}

func (z *zipFile) relationship(e xml.StartElement, entry int64) {
	if e.Name.Local == "Relationship" {
		z.relationships = append(
			z.relationships,
			relationship{path.Base(attribute(e, "Type")), strings.EqualFold(attribute(e, "TargetMode"), "External"), entry},
		)
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// budgetReader counts the bytes used, and fails with errLimit at the limit; io.LimitReader would return EOF, as if the
// content ended there.
type budgetReader struct {
	r    io.Reader
	used *int64
	most int64
}

func (b *budgetReader) Read(p []byte) (int, error) {
	left := b.most - *b.used
	if left <= 0 {
		return 0, errLimit
	}
	n, err := b.r.Read(p[:min(int64(len(p)), left)])
	*b.used += int64(n)
	return n, err
}
