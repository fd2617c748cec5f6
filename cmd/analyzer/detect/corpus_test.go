package detect

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
)

// sample is one file of the corpus. The corpus is generated for every run with libraries that write such files. Files
// that no library writes are built by hand.
type sample struct {
	name, declared string
	content        []byte
}

const (
	typePDF  = "application/pdf"
	typeDOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	typeXLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	typeDOCM = "application/vnd.ms-word.document.macroEnabled.12"
	typeZip  = "application/zip"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// corpus creates all samples once.
func corpus(t testing.TB) []sample {
	t.Helper()
	if made == nil {
		made = makeCorpus(t)
	}
	return made
}

var made []sample

func makeCorpus(t testing.TB) []sample {
	t.Helper()
	plain := writtenPDF(t, nil)
	docx := office1(t, officeTypes[typeDOCX], nil, nil, nil)
	bomb := zipOf(t, entry{"zeros", make([]byte, 24<<20)})
	return append(images(t), []sample{
		{"plain.pdf", typePDF, plain},
		{"script.pdf", typePDF, writtenPDF(t, func(c *model.Context) {
			c.RootDict["OpenAction"] = types.Dict{"S": types.Name("JavaScript"), "JS": types.StringLiteral("app.alert\\(1\\)")}
		})},
		{
			"hidden-name.pdf", typePDF,
			rawPDF(
				"<< /Type /Catalog /Pages 2 0 R /OpenAction 3 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>",
				"<< /S /J#61vaScript /#4a#53 (x) >>",
			),
		},
		{
			"links.pdf", typePDF,
			rawPDF(
				"<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>",
				"<< /S /URI /URI (https://example.org/) >>",
			),
		},
		{"attachment.pdf", typePDF, attachedPDF(t, plain)},
		{"owner-password.pdf", typePDF, encryptedPDF(t, plain, "", "owner")},
		{"user-password.pdf", typePDF, encryptedPDF(t, plain, "user", "owner")},
		{"updated.pdf", typePDF, updatedPDF(plain)},
		{"word.pdf", typePDF, wordPDF("<< /Type /Catalog /Pages 2 0 R >>", "<< /Innocent true >>")},
		{
			"word-script.pdf", typePDF,
			wordPDF("<< /Type /Catalog /Pages 2 0 R /OpenAction 4 0 R >>", "<< /S /JavaScript /JS (x) >>"),
		},
		{"word-updated.pdf", typePDF, updatedWord()},
		{"hybrid-script.pdf", typePDF, hybridPDF("XRefStm")},
		{"trailer-word.pdf", typePDF, trailerWord()},
		{"hybrid-escaped.pdf", typePDF, hybridPDF("XRef#53tm")},
		{"signed.pdf", typePDF, signedPDF(0)},
		{"signed-then-changed.pdf", typePDF, signedPDF(100)},
		{"truncated.pdf", typePDF, plain[:len(plain)*2/3]},
		{"bomb.pdf", typePDF, bombPDF(t)},
		{"gif.pdf", typePDF, polyglot(t, plain)},
		{"gif.gif", "image/gif", polyglot(t, plain)},
		{"declared-only.pdf", typePDF, []byte("this is no PDF at all\n")},

		{"plain.docx", typeDOCX, docx},
		// cmd/lab/judges has a sample from another library
		{"plain.xlsx", typeXLSX, office1(t, officeTypes[typeXLSX], nil, nil, nil)},
		{"link.xlsx", typeXLSX, office1(t, officeTypes[typeXLSX], nil, []string{"hyperlink"}, nil)},
		{
			"macro-as.docx", typeDOCX,
			office1(t, officeTypes[strings.ToLower(typeDOCM)], []string{"application/vnd.ms-office.vbaProject"}, nil, nil),
		},
		{
			"macro.docm", typeDOCM,
			office1(t, officeTypes[strings.ToLower(typeDOCM)], []string{"application/vnd.ms-office.vbaProject"}, nil, nil),
		},
		{"template.docx", typeDOCX, office1(t, officeTypes[typeDOCX], nil, []string{"attachedTemplate"}, nil)},
		{
			"object.docx", typeDOCX,
			office1(
				t, officeTypes[typeDOCX], []string{"application/vnd.openxmlformats-officedocument.oleObject"}, nil,
				[]string{"oleObject"},
			),
		},
		{"truncated.docx", typeDOCX, docx[:len(docx)/2]},
		{"macro.doc", "application/msword", compound("WordDocument", "Macros", "_VBA_PROJECT")},
		{"plain.doc", "application/msword", compound("WordDocument", "1Table")},
		{"encrypted.docx", typeDOCX, compound("EncryptionInfo", "EncryptedPackage")},

		{"plain.png", "image/png", picture(t, "png")},
		{"software.png", "image/png", pngText(t, "Software\x00Adobe Photoshop 27.0")},
		{"plain.jpg", "image/jpeg", picture(t, "jpeg")},
		{"camera.jpg", "image/jpeg", exifJPEG(t, "GIMP 3.0", true)},
		{"firmware.jpg", "image/jpeg", exifJPEG(t, "Ver.1.02", false)},
		{"truncated.jpg", "image/jpeg", exifJPEG(t, "GIMP 3.0", true)[:60]},
		{"truncated.png", "image/png", picture(t, "png")[:60]},
		{"plain.gif", "image/gif", picture(t, "gif")},
		{"png-as.jpg", "image/jpeg", picture(t, "png")},

		{"plain.zip", typeZip, zipOf(t, entry{"a.txt", []byte("a")}, entry{"d/b.txt", []byte("b")})},
		{"bomb.zip", typeZip, bomb},
		{"nested.zip", typeZip, zipOf(t, entry{"inner.zip", zipOf(t, entry{"a.txt", []byte("a")})})},
		{"deep.zip", typeZip, deepZip(t, 4)},
		{"too-deep.zip", typeZip, deepZip(t, 40)},
		{"nested-bomb.zip", typeZip, zipOf(t, entry{"inner.zip", bomb})},
		{"traversal.zip", typeZip, zipOf(t, entry{"../../etc/x", []byte("x")})},
		{"names.zip", typeZip, zipOf(t, entry{"/abs", nil}, entry{`c:\x`, nil}, entry{"same", nil}, entry{"same", nil})},
		{"truncated.zip", typeZip, bomb[:len(bomb)/2]},
		{"backslash.zip", typeZip, zipOf(t, entry{`docs\readme.txt`, []byte("x")})},
		{
			"two-archives.zip", typeZip,
			slices.Concat(zipOf(t, entry{"../../etc/evil", []byte("x")}), zipOf(t, entry{"readme.txt", []byte("x")})),
		},
		{"empty-end.zip", typeZip, slices.Concat(zipOf(t, entry{"../evil", []byte("x")}), zipOf(t))},
		{"other-name.zip", typeZip, localName(zipOf(t, entry{"inside/file", []byte("x")}), "../../file1")},
		{"same-folder-name.zip", typeZip, localName(zipOf(t, entry{"inside/file", []byte("x")}), "inside/fil2")},
		{"before.zip", typeZip, slices.Concat([]byte("#!/bin/sh\n"), zipOf(t, entry{"a.txt", []byte("x")}))},
		{"after.zip", typeZip, slices.Concat(zipOf(t, entry{"a.txt", []byte("x")}), []byte("more"))},
		{"zeros-after.zip", typeZip, slices.Concat(zipOf(t, entry{"a.txt", []byte("x")}), make([]byte, 512))},
		{"gap.zip", typeZip, gapped(t, zipOf(t, entry{"a.txt", []byte("x")}))},
		{"slack.zip", typeZip, slackZip(t)},
		{"comment.zip", typeZip, commented(t, "an ordinary comment")},
		{"archive-in-comment.zip", typeZip, commented(t, string(zipOf(t, entry{"../evil", nil})[:40]))},
		{"other-size.zip", typeZip, otherSize(t)},
		{"other-path.zip", typeZip, extraPath(t, "../../evil")},
		{"other-path-within.zip", typeZip, extraPath(t, "b.txt")},
		{"stale-path.zip", typeZip, staled(extraPath(t, "b.txt"))},
		{"local-path.zip", typeZip, extended(t, slices.Concat(unicodePath("b.txt"), make([]byte, 10)), nil)},
		{"local-size.zip", typeZip, extended(t, zip64Sizes(9), nil)},
		{"local-zip64.zip", typeZip, extended(t, zip64Sizes(1), nil)},
		{
			"archive-in-extra.zip", typeZip,
			extended(t, slices.Concat([]byte{0xfe, 0xca, 34, 0}, zipOf(t, entry{"../x", nil})[:34]), nil),
		},
		{"archive-in-entry.zip", typeZip, extended(t, nil, zipOf(t, entry{"../x", nil}))},
		{"two.docx", typeDOCX, slices.Concat(zipOf(t, entry{"word/vbaProject.bin", []byte("x")}), docx)},
		{"after.docx", typeDOCX, slices.Concat(docx, zipOf(t))},
		{"other-name.docx", typeDOCX, localName(docx, "[content_types].xml")},
		{
			"signed.asice", "application/vnd.etsi.asic-e+zip",
			stored(
				t, entry{"mimetype", []byte("application/vnd.etsi.asic-e+zip")}, entry{"META-INF/manifest.xml", []byte("<x/>")},
			),
		},
		{"plain.xps", "application/vnd.ms-xpsdocument", xps(t)},
		{"plain.tar.gz", "application/gzip", gzipped(t, tarOf(t, tar.Header{Name: "a.txt", Size: 1}))},
		{
			"link.tar", "application/x-tar",
			tarOf(t, tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"}),
		},
		{
			"inside-link.tar", "application/x-tar",
			tarOf(t, tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../e"}),
		},
		{"two.tar", "application/x-tar", slices.Concat(tarOf(t, tar.Header{Name: "a"}), tarOf(t, tar.Header{Name: "../b"}))},
		{"bomb.gz", "application/gzip", gzipped(t, make([]byte, 24<<20))},
		{"some.7z", "application/x-7z-compressed", []byte("7z\xbc\xaf\x27\x1c\x00\x04" + strings.Repeat("\x00", 64))},
		{"zip-in.pdf", typePDF, append(bytes.Clone(plain), zipOf(t, entry{"a.txt", []byte("a")})...)},

		{"plain.txt", "text/plain", []byte("An ordinary text.\nΕλληνικά, кириллица, 日本語のテキスト.\n")},
		{"hidden.txt", "text/plain", []byte("pay\u200bment \U000e0041\U000e0042\n")},
		{
			"emoji.txt", "text/plain",
			[]byte(
				"\ufefffamily \U0001f468\u200d\U0001f469\u200d\U0001f467 heart \u2764\ufe0f England " +
					"\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f\n",
			),
		},
		{"override.txt", "text/plain", []byte("access = \u202e\u2066// admin\u2069\n")},
		{"mixed.txt", "text/plain", []byte("p\u0430ypal and \u03b1lpha and ordinary\n")},
		{"utf16.txt", "text/plain", utf16le("\ufeffhidden \u200b here")},
		{"latin1.txt", "text/plain", []byte("caf\xe9 au lait, d\xe9j\xe0 vu\n")},
		{"data.json", "application/json", []byte(`{"a": 1}`)},
		{"text-as.bin", "text/plain", noise(2048)},
		{"empty.txt", "text/plain", nil},
		{"noise.bin", "application/octet-stream", noise(2048)},
		{"unknown.bin", "application/x-of-nobody", noise(2048)},
	}...)
}

// writtenPDF returns a page written by pdfcpu, with object streams.
func writtenPDF(t testing.TB, change func(*model.Context)) []byte {
	t.Helper()
	preparePDF()
	conf := model.NewDefaultConfiguration()
	c := must[*model.Context](t)(pdfcpu.CreateContextWithXRefTable(conf, types.PaperSize["A4"]))
	if change != nil {
		change(c)
	}
	var out bytes.Buffer
	check(t, api.WriteContext(c, &out))
	return out.Bytes()
}

func attachedPDF(t testing.TB, plain []byte) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "attached.txt")
	check(t, os.WriteFile(path, []byte("attached"), 0o600))
	var out bytes.Buffer
	check(t, api.AddAttachments(bytes.NewReader(plain), &out, []string{path}, false, nil))
	return out.Bytes()
}

func encryptedPDF(t testing.TB, plain []byte, user, owner string) []byte {
	t.Helper()
	conf := model.NewAESConfiguration(user, owner, 256)
	conf.Cmd = model.ENCRYPT
	var out bytes.Buffer
	check(t, api.Encrypt(bytes.NewReader(plain), &out, conf))
	return out.Bytes()
}

// rawPDF returns a PDF with the objects 1, 2, … as given, and a cross-reference table.
func rawPDF(objects ...string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
	offsets := make([]int, len(objects))
	for i, o := range objects {
		offsets[i] = b.Len()
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	start := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, start)
	return b.Bytes()
}

// updatedPDF appends a revision with one more object.
func updatedPDF(_ []byte) []byte {
	first := rawPDF("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>")
	previous := bytes.Index(first, []byte("xref\n0"))
	b := bytes.NewBuffer(bytes.Clone(first))
	at := b.Len()
	b.WriteString("3 0 obj\n<< /Added true >>\nendobj\n")
	start := b.Len()
	fmt.Fprintf(
		b, "xref\n3 1\n%010d 00000 n \ntrailer\n<< /Size 4 /Root 1 0 R /Prev %d >>\nstartxref\n%d\n%%%%EOF\n", at, previous,
		start,
	)
	return b.Bytes()
}

// hybridBody returns a body with object 4 in an object stream, and a cross-reference stream that lists the object; the
// tables mark it as free.
func hybridBody(catalogue, hidden string) (body []byte, table string, stream int) {
	b := bytes.NewBuffer(bytes.Clone([]byte("%PDF-1.7\r\n%\xb5\xb5\xb5\xb5\r\n")))
	offsets := []int{0, 0, 0, 0}
	for i, o := range []string{
		catalogue, "<< /Type /Pages /Kids [] /Count 0 >>",
		fmt.Sprintf("<< /Type /ObjStm /N 1 /First 4 /Length %d >>\r\nstream\r\n4 0 %s\r\nendstream", len(hidden)+4, hidden),
	} {
		offsets[i+1] = b.Len()
		fmt.Fprintf(b, "%d 0 obj\r\n%s\r\nendobj\r\n", i+1, o)
	}
	stream = b.Len()
	rows := []byte{0, 0, 0, 255}
	for _, offset := range offsets[1:] {
		rows = append(rows, 1, byte(offset>>8), byte(offset), 0)
	}
	rows = append(rows, 2, 0, 3, 0, 1, byte(stream>>8), byte(stream), 0)
	fmt.Fprintf(
		b,
		"5 0 obj\r\n<< /Type /XRef /Size 6 /W [1 2 1] /Root 1 0 R /Length %d >>\r\nstream\r\n%s\r\nendstream\r\nendobj\r\n",
		len(rows), rows,
	)
	table = fmt.Sprintf(
		"xref\r\n0 6\r\n0000000004 65535 f\r\n%010d 00000 n\r\n%010d 00000 n\r\n%010d 00000 n\r\n0000000000 65535 "+
			"f\r\n%010d 00000 n\r\n",
		offsets[1], offsets[2], offsets[3], stream,
	)
	return b.Bytes(), table, stream
}

// wordPDF returns a PDF that ends as Word's do: with a second section that has no entries and refers to the
// cross-reference stream.
func wordPDF(catalogue, hidden string) []byte {
	body, table, stream := hybridBody(catalogue, hidden)
	b := bytes.NewBuffer(body)
	first := b.Len()
	fmt.Fprintf(b, "%strailer\r\n<</Size 6/Root 1 0 R>>\r\nstartxref\r\n%d\r\n%%%%EOF\r\n", table, first)
	second := b.Len()
	fmt.Fprintf(
		b, "xref\r\n0 0\r\ntrailer\r\n<</Size 6/Root 1 0 R/Prev %d/XRefStm %d>>\r\nstartxref\r\n%d\r\n%%%%EOF", first,
		stream, second,
	)
	return b.Bytes()
}

// updatedWord appends a revision to such a file.
func updatedWord() []byte {
	word := wordPDF("<< /Type /Catalog /Pages 2 0 R >>", "<< /Innocent true >>")
	previous := bytes.LastIndex(word, []byte("xref\r\n0 0"))
	b := bytes.NewBuffer(append(word, "\r\n"...))
	at := b.Len()
	b.WriteString("6 0 obj\n<< /Added true >>\nendobj\n")
	start := b.Len()
	fmt.Fprintf(
		b, "xref\n6 1\n%010d 00000 n \ntrailer\n<< /Size 7 /Root 1 0 R /Prev %d >>\nstartxref\n%d\n%%%%EOF\n", at, previous,
		start,
	)
	return b.Bytes()
}

// hybridPDF returns a PDF with a hybrid cross-reference: its table marks the object with a script as free, while the
// cross-reference stream of the same section gives its position.
func hybridPDF(name string) []byte {
	body, table, stream := hybridBody(
		"<< /Type /Catalog /Pages 2 0 R /OpenAction 4 0 R >>", "<< /S /JavaScript /JS (x) >>",
	)
	b := bytes.NewBuffer(body)
	first := b.Len()
	fmt.Fprintf(b, "%strailer\r\n<</Size 6/Root 1 0 R/%s %d>>\r\nstartxref\r\n%d\r\n%%%%EOF", table, name, stream, first)
	return b.Bytes()
}

// trailerWord returns a PDF with the word trailer in its text, long before the end.
func trailerWord() []byte {
	text := "(trailer) Tj " + strings.Repeat("(x) Tj ", 2*maxTrailer/7)
	stream := fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(text), text)
	return rawPDF("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>", stream)
}

// signedPDF returns a PDF with a signature dictionary whose range leaves out missing bytes at the end of the file.
func signedPDF(missing int) []byte {
	build := func(length int) []byte {
		return rawPDF("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>",
			fmt.Sprintf(
				"<< /Type /Sig /Filter /Adobe.PPKLite /SubFilter /ETSI.CAdES.detached /ByteRange [0 %8d %8d %8d] /Contents <%s> >>",
				100, 200, length, strings.Repeat("00", 32),
			))
	}
	return build(len(build(0)) - 200 - missing)
}

// bombPDF returns a PDF with an object stream of a few KB that unpacks to 128 MiB through two filters.
func bombPDF(t testing.TB) []byte {
	t.Helper()
	var once, twice bytes.Buffer
	w := zlib.NewWriter(&once)
	zeros := make([]byte, 1<<20)
	for range 1 << 7 {
		must[int](t)(w.Write(zeros))
	}
	check(t, w.Close())
	w = zlib.NewWriter(&twice)
	must[int](t)(w.Write(once.Bytes()))
	check(t, w.Close())

	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	at := b.Len()
	fmt.Fprintf(
		&b,
		"1 0 obj\n<< /Type /ObjStm /N 1 /First 4 /Filter [/FlateDecode /FlateDecode] /Length %d "+
			">>\nstream\n%s\nendstream\nendobj\n",
		twice.Len(), twice.Bytes(),
	)
	start := b.Len()
	rows := []byte{0, 0, 0, 255, 1, byte(at >> 8), byte(at), 0, 2, 0, 1, 0, 1, byte(start >> 8), byte(start), 0}
	fmt.Fprintf(
		&b,
		"3 0 obj\n<< /Type /XRef /Size 4 /W [1 2 1] /Root 2 0 R /Length %d "+
			">>\nstream\n%s\nendstream\nendobj\nstartxref\n%d\n%%%%EOF\n",
		len(rows), rows, start,
	)
	return b.Bytes()
}

// polyglot puts a GIF image in front of a PDF.
func polyglot(t testing.TB, pdf []byte) []byte {
	t.Helper()
	return append(picture(t, "gif"), pdf...)
}

type entry struct {
	name    string
	content []byte
}

func zipOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		must[int](t)(must[io.Writer](t)(w.Create(e.name)).Write(e.content))
	}
	check(t, w.Close())
	return b.Bytes()
}

// stored returns a ZIP file whose first entry is not compressed, as packages begin.
func stored(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if i == 0 {
			header.Method, header.CRC32 = zip.Store, crc32.ChecksumIEEE(e.content)
			header.CompressedSize64, header.UncompressedSize64 = uint64(len(e.content)), uint64(len(e.content))
			must[int](t)(must[io.Writer](t)(w.CreateRaw(header)).Write(e.content))
			continue
		}
		must[int](t)(must[io.Writer](t)(w.CreateHeader(header)).Write(e.content))
	}
	check(t, w.Close())
	return b.Bytes()
}

func xps(t testing.TB) []byte {
	t.Helper()
	return zipOf(t,
		entry{"[Content_Types].xml", []byte(`<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">` +
			`<Default Extension="fdseq" ContentType="application/vnd.ms-package.xps-fixeddocumentsequence+xml"/></Types>`)},
		entry{"FixedDocSeq.fdseq", []byte("<x/>")})
}

// otherSize returns a ZIP file with an entry whose own header ends it earlier, so that the rest of its data reads as
// another entry.
func otherSize(t testing.TB) []byte {
	t.Helper()
	archive := stored(t, entry{"a", zipOf(t, entry{"../evil", nil})})
	binary.LittleEndian.PutUint16(archive[6:], 0)
	binary.LittleEndian.PutUint32(archive[18:], 0)
	binary.LittleEndian.PutUint32(archive[22:], 0)
	return archive
}

// extraPath returns a ZIP file with another name for an entry in an extra field.
func extraPath(t testing.TB, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	must[io.Writer](t)(w.CreateHeader(&zip.FileHeader{Name: "a.txt", Extra: unicodePath(name)}))
	check(t, w.Close())
	return b.Bytes()
}

// unicodePath returns a Unicode path extra field that renames a.txt.
func unicodePath(name string) []byte {
	extra := binary.LittleEndian.AppendUint16([]byte{0x75, 0x70}, uint16(5+len(name)))
	return append(binary.LittleEndian.AppendUint32(append(extra, 1), crc32.ChecksumIEEE([]byte("a.txt"))), name...)
}

// staled changes the checksum of the Unicode path fields of b.txt, as a tool does that renames an entry without
// updating them: such a field must be ignored.
func staled(archive []byte) []byte {
	return bytes.ReplaceAll(archive, unicodePath("b.txt")[5:9], []byte("\x01\x02\x03\x04"))
}

// zip64Sizes returns an extra field with 64-bit sizes, and the 32-bit values that make programs use them.
func zip64Sizes(size uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte{1, 0, 16, 0}, size), size)
}

// extended returns a ZIP file with an entry of one byte, an extra field in its own header only, and a comment in the
// directory.
func extended(t testing.TB, extra, comment []byte) []byte {
	t.Helper()
	archive := stored(t, entry{"a.txt", []byte("x")})
	binary.LittleEndian.PutUint16(archive[6:], 0) // no data descriptor
	const head = 30 + len("a.txt")
	directory := bytes.Index(archive, []byte("PK\x01\x02"))
	local := slices.Concat(archive[:head], extra, archive[head:][:1])
	binary.LittleEndian.PutUint16(local[28:], uint16(len(extra)))
	binary.LittleEndian.PutUint32(local[14:], crc32.ChecksumIEEE([]byte("x")))
	size := uint32(1)
	if bytes.HasPrefix(extra, []byte{1, 0}) {
		size = 1<<32 - 1
	}
	binary.LittleEndian.PutUint32(local[18:], size)
	binary.LittleEndian.PutUint32(local[22:], size)
	central := bytes.Clone(archive[directory : directory+46+len("a.txt")])
	binary.LittleEndian.PutUint16(central[8:], 0)
	binary.LittleEndian.PutUint16(central[32:], uint16(len(comment)))
	central = append(central, comment...)
	end := bytes.Clone(archive[len(archive)-22:])
	binary.LittleEndian.PutUint32(end[12:], uint32(len(central)))
	binary.LittleEndian.PutUint32(end[16:], uint32(len(local)))
	return slices.Concat(local, central, end)
}

func commented(t testing.TB, comment string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	must[io.Writer](t)(w.Create("a.txt"))
	check(t, w.SetComment(comment))
	check(t, w.Close())
	return b.Bytes()
}

// localName changes the first entry's name in its own header to one of the same length.
func localName(archive []byte, name string) []byte {
	changed := bytes.Clone(archive)
	copy(changed[30:], name)
	return changed
}

// gapped inserts bytes between the entries and the directory.
func gapped(t testing.TB, archive []byte) []byte {
	t.Helper()
	const more = "hidden"
	directory := bytes.Index(archive, []byte("PK\x01\x02"))
	changed := slices.Concat(archive[:directory], []byte(more), archive[directory:])
	end := changed[len(changed)-22:]
	binary.LittleEndian.PutUint32(end[16:], uint32(directory+len(more)))
	return changed
}

// slackZip returns a ZIP file with bytes after an entry's compressed data, within the entry's size.
func slackZip(t testing.TB) []byte {
	t.Helper()
	var packed, b bytes.Buffer
	f := must[*flate.Writer](t)(flate.NewWriter(&packed, 9))
	must[int](t)(f.Write([]byte("x")))
	check(t, f.Close())
	packed.WriteString("hidden")
	w := zip.NewWriter(&b)
	raw := must[io.Writer](t)(w.CreateRaw(&zip.FileHeader{
		Name: "a.txt", Method: zip.Deflate, CRC32: crc32.ChecksumIEEE([]byte("x")), UncompressedSize64: 1,
		CompressedSize64: uint64(packed.Len()),
	}))
	must[int](t)(raw.Write(packed.Bytes()))
	check(t, w.Close())
	return b.Bytes()
}

func deepZip(t testing.TB, depth int) []byte {
	t.Helper()
	content := entry{"a.txt", []byte("a")}
	for range depth {
		content = entry{"inner.zip", zipOf(t, content)}
	}
	return content.content
}

func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode = 0o644
		check(t, w.WriteHeader(&h))
		must[int](t)(w.Write(make([]byte, h.Size)))
	}
	check(t, w.Close())
	return b.Bytes()
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	must[int](t)(w.Write(content))
	check(t, w.Close())
	return b.Bytes()
}

// office1 returns a package with a main part of the given content type, parts of other types, and external and internal
// relationships of the main part.
func office1(t testing.TB, main string, parts, external, internal []string) []byte {
	t.Helper()
	var content, relationships strings.Builder
	content.WriteString(`<?xml version="1.0" encoding="UTF-8" standalone="yes"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">` +
		`<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>` +
		`<Override PartName="/word/document.xml" ContentType="` + main + `"/>`)
	for i, p := range parts {
		fmt.Fprintf(&content, `<Override PartName="/word/innocent%d.dat" ContentType="%s"/>`, i, p)
	}
	content.WriteString(`</Types>`)
	const office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
	const open = `<?xml version="1.0" encoding="UTF-8"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">`
	relationships.WriteString(open)
	for i, kind := range external {
		fmt.Fprintf(
			&relationships, `<Relationship Id="e%d" Type="%s%s" Target="https://example.org/t.dotm" TargetMode="External"/>`, i,
			office, kind,
		)
	}
	for i, kind := range internal {
		fmt.Fprintf(&relationships, `<Relationship Id="i%d" Type="%s%s" Target="innocent0.dat"/>`, i, office, kind)
	}
	relationships.WriteString(`</Relationships>`)
	entries := []entry{
		{"[Content_Types].xml", []byte(content.String())},
		{
			"_rels/.rels",
			[]byte(
				open + `<Relationship Id="r" Type="` + office + `officeDocument" Target="word/document.xml"/></Relationships>`,
			),
		},
		{
			"word/document.xml",
			[]byte(
				`<?xml version="1.0"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body/></w:document>`,
			),
		},
		{"word/_rels/document.xml.rels", []byte(relationships.String())},
	}
	for i := range parts {
		entries = append(entries, entry{fmt.Sprintf("word/innocent%d.dat", i), []byte("bytes")})
	}
	return zipOf(t, entries...)
}

// compound returns a compound file ([MS-CFB]) with empty storages of the given names.
func compound(names ...string) []byte {
	const free, end, table = 0xffffffff, 0xfffffffe, 0xfffffffd
	put32 := binary.LittleEndian.PutUint32
	head := make([]byte, 512)
	copy(head, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
	copy(head[24:], "\x3e\x00\x03\x00\xfe\xff\x09\x00\x06\x00") // version 3, sectors of 512 bytes
	put32(head[44:], 1)                                         // sectors of the FAT
	put32(head[48:], 1)                                         // first sector of the directory
	put32(head[56:], 4096)
	put32(head[60:], end)
	put32(head[68:], end)
	for i := range 109 {
		put32(head[76+4*i:], free)
	}
	put32(head[76:], 0)
	fat := make([]byte, 512)
	for i := range 128 {
		put32(fat[4*i:], free)
	}
	put32(fat, table)
	put32(fat[4:], end)
	directory := make([]byte, 512)
	for i, name := range append([]string{"Root Entry"}, names...) {
		e := directory[128*i : 128*i+128]
		units := utf16.Encode([]rune(name + "\x00"))
		for j, u := range units {
			binary.LittleEndian.PutUint16(e[2*j:], u)
		}
		binary.LittleEndian.PutUint16(e[64:], uint16(2*len(units)))
		e[66], e[67] = 1, 1
		put32(e[68:], free)
		put32(e[72:], free)
		put32(e[76:], free)
		if i == 0 {
			e[66] = 5
			put32(e[76:], 1)
			put32(e[116:], end)
		} else if i < len(names) {
			put32(e[72:], uint32(i+1)) // a chain of right siblings
		}
	}
	return slices.Concat(head, fat, directory)
}

func picture(t testing.TB, format string) []byte {
	t.Helper()
	img := image.NewPaletted(image.Rect(0, 0, 16, 16), color.Palette{color.Black, color.White})
	for i := range 16 {
		img.SetColorIndex(i, i, 1)
	}
	var b bytes.Buffer
	switch format {
	case "png":
		check(t, png.Encode(&b, img))
	case "gif":
		check(t, gif.Encode(&b, img, nil))
	default:
		check(t, jpeg.Encode(&b, img, nil))
	}
	return b.Bytes()
}

// pngText inserts a tEXt chunk after an image's header.
func pngText(t testing.TB, text string) []byte {
	t.Helper()
	const afterHeader = 8 + 25
	plain := picture(t, "png")
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	chunk = append(chunk, "tEXt"+text...)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
	return append(append(bytes.Clone(plain[:afterHeader]), chunk...), plain[afterHeader:]...)
}

// exifJPEG puts an EXIF segment with the software's name, and optionally a place, in front of an image.
func exifJPEG(t testing.TB, software string, place bool) []byte {
	t.Helper()
	order := binary.BigEndian
	text := append([]byte(software), 0)
	entries := 1
	if place {
		entries = 2
	}
	tiff := []byte("MM\x00\x2a\x00\x00\x00\x08")
	data := 8 + 2 + 12*entries + 4
	field := func(tag, kind uint16, count, value uint32) {
		tiff = order.AppendUint16(order.AppendUint16(tiff, tag), kind)
		tiff = order.AppendUint32(order.AppendUint32(tiff, count), value)
	}
	tiff = order.AppendUint16(tiff, uint16(entries))
	field(0x0131, 2, uint32(len(text)), uint32(data))
	if place {
		field(0x8825, 4, 1, uint32(data+len(text)))
	}
	tiff = append(order.AppendUint32(tiff, 0), text...)
	if place {
		rationals := len(tiff) + 2 + 2*12 + 4
		tiff = order.AppendUint16(tiff, 2)
		field(1, 2, 2, 'N'<<24)
		field(2, 5, 3, uint32(rationals))
		tiff = order.AppendUint32(tiff, 0)
		for _, n := range []uint32{48, 1, 12, 1, 30, 1} {
			tiff = order.AppendUint32(tiff, n)
		}
	}
	segment := append([]byte("Exif\x00\x00"), tiff...)
	head := order.AppendUint16([]byte{0xff, 0xd8, 0xff, 0xe1}, uint16(len(segment)+2))
	return append(append(head, segment...), picture(t, "jpeg")[2:]...)
}

func utf16le(text string) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b
}

// noise returns bytes of no known format, the same every time.
func noise(n int) []byte {
	b := make([]byte, n)
	state := uint32(1)
	for i := range b {
		state = state*1664525 + 1013904223
		b[i] = byte(state >> 24)
	}
	return b
}
