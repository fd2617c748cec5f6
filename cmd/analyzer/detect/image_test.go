package detect

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"integrityledger/domain/analysis"
)

// packet returns an XMP packet with properties as attributes.
func packet(properties string) string {
	return `<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">` +
		`<rdf:Description rdf:about="" xmlns:exif="e" xmlns:xmp="x" xmlns:xmpMM="m" xmlns:stEvt="s" xmlns:xmpNote="n" ` +
		properties + `</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="w"?>`
}

const xmpPlace = `exif:GPSLatitude="40,30N" exif:GPSLongitude="3,40W">`

// xmpHistory names a program only in the history.
const xmpHistory = `><xmpMM:History><rdf:Seq><rdf:li stEvt:action="saved" stEvt:softwareAgent="Adobe Photoshop 27.0"/></rdf:Seq></xmpMM:History>`

// exifBlock returns the TIFF file of exifJPEG.
func exifBlock(t testing.TB, software string, place bool) []byte {
	t.Helper()
	image := exifJPEG(t, software, place)
	return image[12 : 4+int(binary.BigEndian.Uint16(image[4:]))]
}

func pngChunk(name, content string) []byte {
	chunk := append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), name+content...)
	return binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
}

// pngWith inserts a chunk after the header, or before the end.
func pngWith(t testing.TB, atEnd bool, name, content string) []byte {
	t.Helper()
	plain := picture(t, "png")
	at := 8 + 25
	if atEnd {
		at = len(plain) - 12
	}
	return slices.Concat(plain[:at], pngChunk(name, content), plain[at:])
}

func deflated(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	must[int](t)(w.Write([]byte(text)))
	check(t, w.Close())
	return b.String()
}

func rawProfile(name, content string) string {
	return fmt.Sprintf(
		"Raw profile type %s\x00\n%s\n%8d\n%s\n", name, name, len(content), hex.EncodeToString([]byte(content)),
	)
}

// jpegWith inserts segments after an image's beginning.
func jpegWith(t testing.TB, marker byte, contents ...string) []byte {
	t.Helper()
	plain := picture(t, "jpeg")
	image := bytes.Clone(plain[:2])
	for _, content := range contents {
		image = append(binary.BigEndian.AppendUint16(append(image, 0xff, marker), uint16(len(content)+2)), content...)
	}
	return append(image, plain[2:]...)
}

func resource(id uint16, content []byte) string {
	block := binary.BigEndian.AppendUint16([]byte("8BIM"), id)
	block = binary.BigEndian.AppendUint32(append(block, 0, 0), uint32(len(content)))
	block = append(block, content...)
	return string(append(block, make([]byte, len(content)%2)...))
}

// extendedXMP returns a packet that continues in further segments.
func extendedXMP(t testing.TB, packet string, complete bool) []byte {
	t.Helper()
	id, size := strings.Repeat("A", 32), uint32(len(packet))
	segment := func(from, to int) string {
		return xmpExtension + id + string(binary.BigEndian.AppendUint32(
			binary.BigEndian.AppendUint32(nil, size), uint32(from),
		)) + packet[from:to]
	}
	segments := []string{xmpHeader + strings.Replace(xmpStart, "ID", id, 1), segment(0, 100), segment(100, len(packet))}
	if !complete {
		segments = segments[:2]
	}
	return jpegWith(t, 0xe1, segments...)
}

var xmpStart = packet(`xmpNote:HasExtendedXMP="ID">`)

func webpWith(name, content string) []byte {
	chunk := func(name, content string) string {
		return name + string(binary.LittleEndian.AppendUint32(
			nil, uint32(len(content)),
		)) + content + strings.Repeat("\x00", len(content)%2)
	}
	body := "WEBP" + chunk("VP8L", "\x2f\x0f\xc0\x03\x00\x07\x10\x11") + chunk(name, content)
	return []byte("RIFF" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(body)))) + body)
}

func gifWith(t testing.TB, extension string) []byte {
	t.Helper()
	plain := picture(t, "gif")
	return slices.Concat(plain[:len(plain)-1], []byte(extension), plain[len(plain)-1:])
}

// gifXMP returns a GIF with an XMP packet that a reader of blocks skips to its end.
func gifXMP(packet string) string {
	magic := []byte{1}
	for n := 255; n >= 0; n-- {
		magic = append(magic, byte(n))
	}
	return "\x21\xff\x0bXMP DataXMP" + packet + string(magic) + "\x00"
}

// tiffWith returns a TIFF file with one directory and one entry of bytes.
func tiffWith(tag uint16, content string) []byte { return tiffKind(tag, 7, content) }

func tiffEntry(file []byte, tag, kind uint16, count, value uint32) []byte {
	le := binary.LittleEndian
	return le.AppendUint32(le.AppendUint32(le.AppendUint16(le.AppendUint16(file, tag), kind), count), value)
}

func tiffKind(tag, kind uint16, content string) []byte {
	le := binary.LittleEndian
	file := le.AppendUint32([]byte("II\x2a\x00"), 8)
	file = le.AppendUint16(le.AppendUint16(le.AppendUint16(file, 1), tag), kind)
	file = le.AppendUint32(le.AppendUint32(le.AppendUint32(file, uint32(len(content))), 26), 0)
	return append(file, content...)
}

// tiffSub returns a TIFF file with an entry 1 in a directory of the tag's kind; a second directory refers to it.
func tiffSub(tag uint16) []byte {
	le := binary.LittleEndian
	file := le.AppendUint32([]byte("II\x2a\x00"), 8)
	file = le.AppendUint32(tiffEntry(le.AppendUint16(file, 1), tagSubIFDs, 4, 1, 26), 0)
	file = le.AppendUint32(tiffEntry(le.AppendUint16(file, 1), tag, 4, 1, 44), 0)
	return le.AppendUint32(tiffEntry(le.AppendUint16(file, 1), 1, 2, 2, 'N'), 0)
}

// tiffShared returns a TIFF file whose EXIF and GPS pointers lead to the same directory.
func tiffShared() []byte {
	le := binary.LittleEndian
	file := le.AppendUint16(le.AppendUint32([]byte("II\x2a\x00"), 8), 2)
	file = le.AppendUint32(tiffEntry(tiffEntry(file, tagEXIF, 4, 1, 38), tagGPS, 4, 1, 38), 0)
	return le.AppendUint32(tiffEntry(le.AppendUint16(file, 1), 1, 2, 2, 'N'), 0)
}

func box(name string, content ...string) string {
	body := name + strings.Join(content, "")
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))) + body
}

// heicWith returns a HEIF file with one item and its content.
func heicWith(kind, mime, content string) []byte {
	be := binary.BigEndian
	ftyp := box("ftyp", "heic\x00\x00\x00\x00mif1heic")
	info := box("infe", "\x02\x00\x00\x00\x00\x01\x00\x00", kind, "\x00", mime)
	meta := func(offset uint32) string {
		place := "\x00\x00\x00\x00\x44\x00\x00\x01\x00\x01\x00\x00\x00\x01" + string(
			be.AppendUint32(be.AppendUint32(nil, offset), uint32(len(content))),
		)
		return box(
			"meta", "\x00\x00\x00\x00", box("hdlr", strings.Repeat("\x00", 24)), box("iinf", "\x00\x00\x00\x00\x00\x01", info),
			box("iloc", place),
		)
	}
	return []byte(ftyp + meta(uint32(len(ftyp)+len(meta(0))+8)) + box("mdat", content))
}

// images are files with metadata in each place where programs write it, and with content that is not read.
func images(t testing.TB) []sample {
	t.Helper()
	exif, place, history := exifBlock(t, "GIMP 3.0", true), packet(xmpPlace), packet(xmpHistory)
	twice := exifJPEG(t, "GIMP 3.0", true)
	segment := twice[2 : 4+int(binary.BigEndian.Uint16(twice[4:]))]
	innocent := exifJPEG(t, "Ver.1.02", false)
	version := []byte("\x00\x00\x00\x01\x01\x00\x00\x00\x09\x00P\x00h\x00o\x00t\x00o\x00s\x00h\x00o\x00p")
	iptc := []byte("\x1c\x02\x41\x00\x09GIMP 3.0 ")
	return []sample{
		{"xmp.png", "image/png", pngWith(t, false, "iTXt", "XML:com.adobe.xmp\x00\x00\x00\x00\x00"+place)},
		{
			"xmp-packed.png", "image/png",
			pngWith(t, false, "iTXt", "XML:com.adobe.xmp\x00\x01\x00\x00\x00"+deflated(t, place)),
		},
		{"xmp-at-end.png", "image/png", pngWith(t, true, "iTXt", "XML:com.adobe.xmp\x00\x00\x00\x00\x00"+place)},
		{"xmp-text.png", "image/png", pngWith(t, true, "tEXt", "Comment\x00"+place)},
		{"xmp-history.png", "image/png", pngWith(t, false, "iTXt", "XML:com.adobe.xmp\x00\x00\x00\x00\x00"+history)},
		{"xmp-broken.png", "image/png", pngWith(t, false, "iTXt", "XML:com.adobe.xmp\x00\x00\x00\x00\x00"+history[:200])},
		{"raw-exif.png", "image/png", pngWith(t, true, "tEXt", rawProfile("exif", "Exif\x00\x00"+string(exif)))},
		{
			"raw-app1-packed.png", "image/png",
			pngWith(
				t, true, "zTXt",
				"Raw profile type APP1\x00\x00"+deflated(t, strings.SplitN(rawProfile("APP1", xmpHeader+place), "\x00", 2)[1]),
			),
		},
		{"raw-xmp.png", "image/png", pngWith(t, true, "tEXt", rawProfile("xmp", place))},
		{"raw-8bim.png", "image/png", pngWith(t, true, "tEXt", rawProfile("8bim", resource(0x0404, iptc)))},
		{"raw-iptc.png", "image/png", pngWith(t, true, "tEXt", rawProfile("iptc", string(iptc)))},
		{"raw-other.png", "image/png", pngWith(t, true, "tEXt", rawProfile("other", "some"))},
		{"raw-broken.png", "image/png", pngWith(t, true, "tEXt", "Raw profile type exif\x00\nexif\n 99\n4142\n")},
		{"exif.png", "image/png", pngWith(t, true, "eXIf", string(exif))},
		{"exif-preamble.png", "image/png", pngWith(t, false, "eXIf", "Exif\x00\x00"+string(exif))},
		{"software-packed.png", "image/png", pngWith(t, false, "zTXt", "Software\x00\x00"+deflated(t, "GIMP 3.0"))},
		{"software-broken.png", "image/png", pngWith(t, false, "zTXt", "Software\x00\x00GIMP 3.0")},
		{"software-itxt.png", "image/png", pngWith(t, false, "iTXt", "Software\x00\x00\x00en\x00Software\x00GIMP 3.0")},
		{"credentials.png", "image/png", pngWith(t, false, "caBX", "jumb")},
		{"raw-lower-case.png", "image/png", pngWith(t, true, "tEXt", strings.ToLower(rawProfile("exif", string(exif))))},
		{"canvas.png", "image/png", pngWith(t, false, "tEXt", "Description\x00Oil on canvas, with corelike shapes")},
		{"xmp-geo.png", "image/png", pngWith(t, false, "tEXt", "XMP\x00"+packet(`exif:lat="40.5" exif:long="-3.7">`))},
		{
			"xmp-inner.png", "image/png",
			pngWith(t, false, "tEXt", "XMP\x00"+packet(`><exif:GPSLatitude><x>40</x></exif:GPSLatitude>`)),
		},
		{"after.png", "image/png", append(picture(t, "png"), "more"...)},
		{"zeros-after.png", "image/png", append(picture(t, "png"), make([]byte, 100)...)},

		{
			"second-exif.jpg", "image/jpeg",
			slices.Concat(
				innocent[:4+int(binary.BigEndian.Uint16(innocent[4:]))], segment,
				innocent[4+int(binary.BigEndian.Uint16(innocent[4:])):],
			),
		},
		{"xmp.jpg", "image/jpeg", jpegWith(t, 0xe1, xmpHeader+place)},
		{"extended-xmp.jpg", "image/jpeg", extendedXMP(t, place, true)},
		{"extended-xmp-cut.jpg", "image/jpeg", extendedXMP(t, place, false)},
		{"photoshop-exif.jpg", "image/jpeg", jpegWith(t, 0xed, photoshopBlock+resource(0x0422, exif))},
		{
			"photoshop-xmp.jpg", "image/jpeg",
			jpegWith(t, 0xed, photoshopBlock+resource(0x03ed, []byte("x"))+resource(0x0424, []byte(place))),
		},
		{"photoshop-version.jpg", "image/jpeg", jpegWith(t, 0xed, photoshopBlock+resource(0x0421, version))},
		{
			"photoshop-split.jpg", "image/jpeg",
			jpegWith(
				t, 0xed, photoshopBlock+resource(0x0424, []byte(place))[:50], photoshopBlock+resource(0x0424, []byte(place))[50:],
			),
		},
		{
			"photoshop-thumbnail.jpg", "image/jpeg",
			jpegWith(t, 0xed, photoshopBlock+resource(0x040c, append(make([]byte, 28), twice...))),
		},
		{"second-picture.jpg", "image/jpeg", slices.Concat(picture(t, "jpeg"), make([]byte, 7), twice)},
		{"credentials.jpg", "image/jpeg", jpegWith(t, 0xeb, "JP\x00\x01jumb")},
		{"comment.jpg", "image/jpeg", jpegWith(t, 0xfe, "Created with GIMP")},
		{"comment-utf16.jpg", "image/jpeg", jpegWith(t, 0xfe, string(utf16le(place)))},
		{"extension.jpg", "image/jpeg", jpegWith(t, 0xf7, place)},
		{"after.jpg", "image/jpeg", append(picture(t, "jpeg"), "more"...)},

		{"exif.webp", "image/webp", webpWith("EXIF", "Exif\x00\x00"+string(exif))},
		{"xmp.webp", "image/webp", webpWith("XMP ", place)},
		{"plain.webp", "image/webp", webpWith("ICCP", "x")},
		{"other.webp", "image/webp", webpWith("abcd", place)},
		{"after.webp", "image/webp", append(webpWith("ICCP", "xx"), "more"...)},
		{"xmp.gif", "image/gif", gifWith(t, gifXMP(place))},
		{"comment.gif", "image/gif", gifWith(t, "\x21\xfe\x11Created with GIMP\x00")},
		{"other.gif", "image/gif", gifWith(t, "\x21\xff\x0bOTHER KIND1\x01x\x00")},
		{"xmp.tif", "image/tiff", tiffWith(tagXMP, place)},
		{"photoshop.tif", "image/tiff", tiffWith(tagPhotoshop, resource(0x0422, exif))},
		{"sub.tif", "image/tiff", tiffSub(tagGPS)},
		{"shared.tif", "image/tiff", tiffShared()},
		{"utf8.tif", "image/tiff", tiffKind(tagSoftware, 129, "GIMP 3.0")},
		// Its entries have the numbers of location entries.
		{"interoperability.tif", "image/tiff", tiffSub(tagInteroperability)},
		{"loop.tif", "image/tiff", append([]byte("II\x2a\x00\x08\x00\x00\x00\x00\x00\x08\x00\x00\x00"), make([]byte, 8)...)},
		{
			"big.tif", "image/tiff",
			append([]byte(
				"II\x2b\x00\x08\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x31\x01\x02\x00\x08\x00\x00\x00\x00\x00\x00\x00GIMP 3.0",
			), make([]byte, 8)...),
		},
		{"exif.heic", "image/heic", heicWith("Exif", "", "\x00\x00\x00\x06Exif\x00\x00"+string(exif))},
		{"xmp.heic", "image/heif", heicWith("mime", "application/rdf+xml\x00", place)},
		{"packed.heic", "image/heic", heicWith("mime", "application/rdf+xml\x00deflate\x00", place)},
		{"plain.heic", "image/heic", heicWith("hvc1", "", "x")},
		{"other.heic", "image/heic", append(heicWith("hvc1", "", "x"), box("uuid", strings.Repeat("x", 20))...)},
		{"xmp-box.heic", "image/heic", append(heicWith("hvc1", "", "x"), box("uuid", uuidXMP, place)...)},
	}
}

// TestHostileImages checks that small files cannot cause unbounded decompression or unbounded steps.
func TestHostileImages(t *testing.T) {
	bomb := deflated(t, strings.Repeat("a", 2*maxMetadata))
	deep := "<a>" + strings.Repeat("<li>", 20_000) + strings.Repeat("x<!---->", maxTags-1) +
		strings.Repeat("</li>", 20_000) + "</a>"
	many := append([]byte("II\x2b\x00\x08\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\x7f\x00\x00\x00\x00"),
		make([]byte, 4096)...)
	places := "\x01\x00\x00\x00\x00\x00\xff\xff" + strings.Repeat("\x00\x01\x00\x00\x00\x00\xff\xff", 60_000)
	heic := []byte(box("ftyp", "heic\x00\x00\x00\x00heic") + box("meta", "\x00\x00\x00\x00", box("iloc", places)))
	repeated := func(begin, part string) []byte { return []byte(begin + strings.Repeat(part, 2*maxSteps)) }
	for name, c := range map[string]struct {
		content []byte
		want    analysis.Outcome
	}{
		"millions of scans": {
			repeated("\xff\xd8\xff\xe0\x00\x02", "\xff\xda\x00\x02"), analysis.Inconclusive,
		},
		"millions of fill bytes": {repeated("\xff\xd8\xff", "\xff"), analysis.Inconclusive},
		"millions of chunks": {
			repeated(string(picture(t, "png")[:33]), "\x00\x00\x00\x00IDAT    "), analysis.Inconclusive,
		},
		"millions of blocks": {
			repeated(string(picture(t, "gif")[:13]), "\x21\xf9\x00"), analysis.Inconclusive,
		},
		"a text that unpacks to much": {pngWith(t, false, "zTXt", "Comment\x00\x00"+bomb), analysis.Inconclusive},
		"XMP of deep elements": {
			pngWith(t, false, "zTXt", "XML:com.adobe.xmp\x00\x00"+deflated(t, deep)), analysis.Inconclusive,
		},
		"XMP that unpacks to much": {
			pngWith(t, false, "iTXt", "XML:com.adobe.xmp\x00\x01\x00\x00\x00"+bomb), analysis.Inconclusive,
		},
		"a directory of billions of entries": {many, analysis.Inconclusive},
		"items of billions of extents":       {heic, analysis.Inconclusive},
	} {
		s := newSubject(Input{Content: bytes.NewReader(c.content), Size: int64(len(c.content))})
		i := s.image()
		if i == nil || i.used > maxMetadata+int64(len(c.content)) || i.tags > maxTags+1 || i.steps > maxSteps+1 {
			t.Errorf("%s: %+v", name, i)
		}
		if r := find(t, analyze(c.content, ""), "image-location"); r.Outcome != c.want {
			t.Errorf("%s: %s, %s", name, r.Outcome, r.Summary)
		}
	}
}
