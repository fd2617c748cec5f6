package detect

import (
	"bytes"
	"strings"
	"testing"

	"integrityledger/domain/analysis"
)

// isoFile returns the beginning of an ISO base media file.
func isoFile(brand string, compatible ...string) []byte {
	body := brand + "\x00\x00\x00\x00" + strings.Join(compatible, "")
	return append([]byte{0, 0, 0, byte(8 + len(body))}, "ftyp"+body+strings.Repeat("\x00", 64)...)
}

// TestOtherNames: content has the declared type under each name that programs use for it, and under no other.
func TestOtherNames(t *testing.T) {
	const csv, rtf = "a;b\r\n1;2\r\n", `{\rtf1\ansi text}`
	bigTIFF := append([]byte("II\x2b\x00\x08\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00"), make([]byte, 64)...)
	for name, c := range map[string]struct {
		content []byte
		is      string // separated by spaces
		isNot   string
	}{
		"JPEG": {
			content: picture(t, "jpeg"), is: "image/jpeg image/jpg image/pjpeg IMAGE/JPG",
			isNot: "image/png application/msword",
		},
		"PNG":     {content: picture(t, "png"), is: "image/png image/x-png", isNot: "image/jpg"},
		"BigTIFF": {content: bigTIFF, is: "image/tiff image/tif image/x-tiff", isNot: "image/jpeg"},
		"ICO": {
			content: append([]byte("\x00\x00\x01\x00\x01\x00\x10\x10\x00\x00\x01\x00\x20\x00"), make([]byte, 64)...),
			is:      "image/x-icon image/vnd.microsoft.icon image/ico", isNot: "image/bmp",
		},
		"HEIC": {content: isoFile("heic", "mif1", "heic"), is: "image/heic image/heif", isNot: "image/jpeg"},
		"HEIF": {content: isoFile("mif1", "mif1", "heic"), is: "image/heic image/heif", isNot: "image/png"},
		"M4A":  {content: isoFile("M4A ", "M4A ", "mp42"), is: "audio/mp4 audio/x-m4a audio/m4a", isNot: "audio/mpeg"},
		"MP4":  {content: isoFile("isom", "isom", "mp41"), is: "video/mp4 audio/mp4", isNot: "video/webm"},
		"MP3": {
			content: append([]byte("ID3\x03\x00\x00\x00\x00\x00\x00"), make([]byte, 64)...), is: "audio/mpeg audio/mp3",
			isNot: "audio/wav",
		},
		"CSV": {
			content: []byte(csv),
			is:      "text/csv application/vnd.ms-excel text/plain application/csv text/comma-separated-values",
			isNot:   "application/pdf application/msword",
		},
		"RTF": {
			content: []byte(rtf), is: "text/rtf application/rtf application/msword application/x-rtf",
			isNot: "application/vnd.ms-excel",
		},
		"HTML": {
			content: []byte("<!DOCTYPE html><html><body>x</body></html>"), is: "text/html",
			isNot: "application/vnd.ms-excel application/msword",
		},
		"XML": {
			content: []byte("<?xml version=\"1.0\"?><a/>"),
			is:      "text/xml application/xml application/xhtml+xml application/vnd.oasis.opendocument.text-flat-xml",
		},
		"mail":   {content: []byte("From: a@example.org\r\nSubject: x\r\n\r\ntext\r\n"), is: "message/rfc822 text/plain"},
		"JSON":   {content: []byte("{}"), is: "application/json text/plain application/ld+json", isNot: "image/jpg"},
		"script": {content: []byte("var a = 1;\n"), is: "text/javascript application/javascript application/x-javascript"},
		"ZIP": {
			content: zipOf(t, entry{"a", nil}), is: "application/zip application/x-zip-compressed application/x-zip",
			isNot: "application/gzip " + typeDOCX,
		},
		"DOCX": {
			content: office1(t, officeTypes[typeDOCX], nil, nil, nil),
			is:      typeDOCX + " application/zip application/x-zip-compressed",
			isNot:   typeXLSX + " application/vnd.etsi.asic-e+zip",
		},
		"DOCM": {content: office1(t, officeTypes[strings.ToLower(typeDOCM)], nil, nil, nil), is: typeDOCM, isNot: typeDOCX},
		"ASiC": {
			content: stored(t, entry{"mimetype", []byte("application/vnd.etsi.asic-e+zip")}),
			is:      "application/vnd.etsi.asic-e+zip application/zip",
			isNot:   "application/vnd.etsi.asic-s+zip application/epub+zip " + typeDOCX,
		},
		"ODT template": {
			content: stored(t, entry{"mimetype", []byte("application/vnd.oasis.opendocument.text-template")}),
			is:      "application/vnd.oasis.opendocument.text-template application/vnd.oasis.opendocument.text application/zip", isNot: "application/vnd.oasis.opendocument.spreadsheet",
		},
		"XPS": {content: xps(t), is: "application/vnd.ms-xpsdocument application/oxps", isNot: typeDOCX},
		"7z": {
			content: []byte("7z\xbc\xaf\x27\x1c\x00\x04" + strings.Repeat("\x00", 64)),
			is:      "application/x-7z-compressed application/x-compressed",
		},
		"RAR": {
			content: []byte("Rar!\x1a\x07\x01\x00" + strings.Repeat("\x00", 64)),
			is:      "application/vnd.rar application/x-compressed",
		},
		"bz2": {
			content: []byte("BZh91AY&SY"), is: "application/x-bzip2 application/x-bzip-compressed-tar",
			isNot: "application/x-xz-compressed-tar",
		},
		"EPS": {
			content: []byte("%!PS-Adobe-3.0 EPSF-3.0\n"), is: "application/postscript image/x-eps application/illustrator",
			isNot: "image/png",
		},
		"ADTS": {
			content: []byte("\xff\xf1\x50\x80\x02\x1f\xfc" + strings.Repeat("\x00", 64)), is: "audio/aac audio/vnd.dlna.adts",
			isNot: "audio/wav",
		},
		"gzip": {
			content: gzipped(t, []byte("x")), is: "application/gzip application/x-gzip application/x-tgz",
			isNot: "application/zip",
		},
		"PDF": {
			content: rawPDF("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>"),
			is:      "application/pdf application/x-pdf application/acrobat", isNot: "text/plain",
		},
		"DOC": {
			content: compound("WordDocument"), is: "application/msword application/x-msword", isNot: "application/vnd.ms-excel",
		},
	} {
		for fits, list := range map[bool]string{true: c.is, false: c.isNot} {
			for declared := range strings.FieldsSeq(list) {
				if r := find(t, analyze(c.content, declared), "content-type"); (r.Outcome == analysis.Clear) != fits {
					t.Errorf("%s declared %s is %s: %s %v", name, declared, r.Outcome, r.Summary, r.Evidence)
				}
			}
		}
	}
	der := append([]byte{0x30, 0x80, 0x06, 0x09}, bytes.Repeat([]byte{0x9c}, 64)...)
	if r := find(t, analyze(der, "application/pkcs7-mime"), "content-type"); r.Outcome == analysis.Finding {
		t.Errorf("a CMS message: %+v", r)
	}
}
