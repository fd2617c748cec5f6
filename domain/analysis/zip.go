package analysis

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"io"
	"path"
	"strings"
)

// Limits of what is unpacked of a package's own tables (its documents and media never are).
const (
	maxPart   = 8 << 20  // bytes of one table
	maxParts  = 64 << 20 // bytes of all tables of one file
	partsFrom = 4 << 20  // bytes from which these may be at most highRatio times the file's size
)

// zipFile is the directory of a ZIP file and, if it is an Office Open XML package, its tables.
type zipFile struct {
	reader *zip.Reader
	err    error  // it is no ZIP file, or its directory cannot be read
	office string // media type of the Office package; empty for another file

	types         []partType
	relationships []relationship
	tables        error // a table of the package that could not be read whole
}

// partType is the content type of a part, or of all parts of an extension, and the entry that says so.
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

// isZip reports whether the content begins as a ZIP file.
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
	z.tables = guarded(func() error { return z.readTables(unpackedBudget(s.Size, partsFrom, maxParts)) })
	return z
}

// zipEnd finds the end record of a ZIP file (APPNOTE 4.3.16), whose comment must end with the file; -1 if it has none.
func zipEnd(s *subject) int64 {
	const record, comment = 22, 1<<16 - 1
	size := min(s.Size, record+comment)
	tail := make([]byte, size)
	if n, err := s.Content.ReadAt(tail, s.Size-size); int64(n) < size {
		_ = err
		return -1
	}
	for at := len(tail) - record; at >= 0; at-- {
		if bytes.HasPrefix(tail[at:], []byte("PK\x05\x06")) && at+record+int(binary.LittleEndian.Uint16(tail[at+20:])) == len(tail) {
			return s.Size - size + int64(at)
		}
	}
	return -1
}

// readTables reads content types and relationships, if it is an Office package; budget is how many bytes of them.
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
	for media, main := range officeTypes {
		if t == main && (z.office == "" || media < z.office) {
			z.office = media
		}
	}
}

func (z *zipFile) relationship(e xml.StartElement, entry int64) {
	if e.Name.Local == "Relationship" {
		z.relationships = append(z.relationships, relationship{path.Base(attribute(e, "Type")), strings.EqualFold(attribute(e, "TargetMode"), "External"), entry})
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

// budgetReader adds to what is used, and fails with errLimit where io.LimitReader would pretend that the content ends.
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
