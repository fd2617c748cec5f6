package detect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

// detect returns the type of content with these first bytes.
func detect(head []byte) *mimetype.MIME {
	if bytes.HasPrefix(head, []byte("II\x2b\x00\x08\x00\x00\x00")) ||
		bytes.HasPrefix(head, []byte("MM\x00\x2b\x00\x08\x00\x00")) {
		return mimetype.Lookup("image/tiff") // BigTIFF
	}
	m := mimetype.Detect(head)
	if m.Is("application/octet-stream") && bytes.HasPrefix(head, []byte("ID3")) {
		return mimetype.Lookup("audio/mpeg") // the first frame comes after a picture
	}
	return m
}

// otherNames are the other media types that browsers, mail programs and servers use for an apparent type, in addition
// to mimetype's aliases.
var otherNames = map[string][]string{
	"image/jpeg":          {"image/jpg", "image/pjpeg", "image/x-jpeg", "image/x-jpg", "image/jfif"},
	"image/png":           {"image/x-png"},
	"image/x-icon":        {"image/vnd.microsoft.icon", "image/ico", "image/icon", "application/ico"},
	"image/heic":          {"image/heif", "image/heic-sequence", "image/heif-sequence"},
	"image/heif":          {"image/heic", "image/heic-sequence", "image/heif-sequence", "image/avif"},
	"image/heic-sequence": {"image/heic", "image/heif", "image/heif-sequence"},
	"image/heif-sequence": {"image/heic", "image/heif", "image/heic-sequence"},
	"image/avif":          {"image/avif-sequence", "image/heif"},
	"image/bmp":           {"image/x-windows-bmp", "image/x-bitmap"},
	"image/svg+xml":       {"image/svg"},
	"image/vnd.adobe.photoshop": {
		"image/photoshop", "image/x-photoshop", "image/psd", "application/x-photoshop", "application/psd",
	},
	"image/vnd.djvu": {"image/x-djvu", "image/x.djvu", "image/vnd.djvu+multipage"},
	"image/tiff": {
		"image/tif", "image/x-tif", "image/x-tiff", "application/tiff", "image/x-adobe-dng", "image/dng",
		"image/x-nikon-nef", "image/x-canon-cr2", "image/x-sony-arw",
		"image/x-pentax-pef",
	},

	"audio/x-m4a": {"audio/mp4", "audio/m4a", "audio/x-mp4", "audio/mp4a-latm", "audio/aac"},
	"audio/mp4":   {"audio/x-m4a", "audio/m4a", "audio/x-mp4", "audio/mp4a-latm"},
	"video/mp4": {
		"audio/mp4", "audio/x-m4a", "audio/m4a", "audio/x-mp4", "video/x-m4v", "video/x-mp4", "application/mp4",
	},
	"video/x-m4v":     {"video/m4v"},
	"video/quicktime": {"video/x-quicktime", "audio/quicktime"},
	"audio/mpeg":      {"audio/x-mp3", "audio/mpeg3", "audio/x-mpeg-3", "audio/mpg", "audio/x-mpg"},
	"audio/wav":       {"audio/x-pn-wav"},
	"audio/flac":      {"audio/x-flac"},
	"audio/aac":       {"audio/x-aac", "audio/aacp", "audio/x-hx-aac-adts", "audio/vnd.dlna.adts"},
	"audio/ogg":       {"audio/opus", "audio/vorbis", "audio/x-vorbis+ogg"},
	"audio/aiff":      {"audio/aif"},
	"video/matroska":  {"audio/x-matroska", "audio/matroska"},
	"video/x-msvideo": {"video/vnd.avi", "video/x-avi"},
	"video/x-ms-asf":  {"audio/x-ms-wma"},
	"video/mpeg":      {"video/mpg", "video/x-mpeg"},
	"video/3gpp2":     {"audio/3gpp2"},
	"application/pdf": {
		"application/acrobat", "application/vnd.pdf", "text/pdf", "text/x-pdf", "application/illustrator",
		"application/vnd.adobe.illustrator",
	},
	"application/zip": {"multipart/x-zip", "application/zip-compressed", "application/x-compressed"},
	"application/gzip": {
		"application/x-tgz", "application/tgz", "application/x-gtar", "application/x-compressed-tar",
		"application/x-compressed", "image/svg+xml",
	},

	"application/x-tar": {"application/tar", "application/x-gtar"},
	"application/x-bzip2": {
		"application/bzip2", "application/x-bzip", "application/x-bzip-compressed-tar",
		"application/x-bzip2-compressed-tar",
	},
	"application/x-xz": {"application/x-xz-compressed-tar"},
	"application/vnd.rar": { // Windows where WinRAR is installed
		"application/rar", "application/x-compressed",
	},
	"application/x-7z-compressed": {"application/7z", "application/x-compressed"},
	"application/zstd":            {"application/x-zstd", "application/x-zstd-compressed-tar"},
	"application/postscript": {
		"application/eps", "application/x-eps", "image/eps", "image/x-eps", "application/illustrator",
	},
	"application/msword": {"application/x-msword", "application/doc", "application/vnd.msword"},
	"application/vnd.ms-excel": {
		"application/x-msexcel", "application/x-excel", "application/excel", "application/x-xls",
	},
	"application/vnd.ms-powerpoint": {"application/x-mspowerpoint", "application/powerpoint"},
	"application/vnd.ms-outlook":    {"application/x-msg"},
	"text/rtf": { // Windows where Word is installed
		"application/msword", "application/x-rtf", "text/richtext",
	},
	"text/csv":                  {"application/vnd.ms-excel"}, // Windows where Excel is installed
	"text/tab-separated-values": {"application/vnd.ms-excel"},
	"text/plain":                {"application/vnd.ms-excel"}, // a CSV file whose first lines do not look like one

	"application/pkcs7-signature": {
		"application/x-pkcs7-signature", "application/pkcs7-mime", "application/x-pkcs7-mime", "application/cms",
	},
	"application/vnd.microsoft.portable-executable": {
		"application/x-msdownload", "application/x-msdos-program", "application/x-dosexec",
		"application/x-ms-dos-executable", "application/exe",
	},
	"application/vnd.ms-visio.drawing.main+xml": {"application/vnd.ms-visio.drawing", "application/vnd.visio"},
	"application/vnd.ms-xpsdocument":            {"application/oxps"},
	"font/woff":                                 {"application/font-woff", "application/x-font-woff"},
}

// packageTypes are package formats in ZIP files. Packages that begin with an entry named mimetype declare their type
// there.
var packageTypes = []string{
	"application/vnd.etsi.asic-e+zip", "application/vnd.etsi.asic-s+zip", "application/epub+zip",
	"application/vnd.ms-xpsdocument", "application/oxps",
	"application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text-template",
	"application/vnd.oasis.opendocument.text-master",
	"application/vnd.oasis.opendocument.text-web", "application/vnd.oasis.opendocument.spreadsheet",
	"application/vnd.oasis.opendocument.spreadsheet-template",
	"application/vnd.oasis.opendocument.presentation", "application/vnd.oasis.opendocument.presentation-template",
	"application/vnd.oasis.opendocument.graphics",
	"application/vnd.oasis.opendocument.graphics-template", "application/vnd.oasis.opendocument.formula",
	"application/vnd.oasis.opendocument.chart",
	"application/vnd.oasis.opendocument.image", "application/vnd.oasis.opendocument.base",
	"application/vnd.oasis.opendocument.database",
	"application/vnd.sun.xml.writer", "application/vnd.sun.xml.calc", "application/vnd.sun.xml.impress",
	"application/vnd.sun.xml.draw",
	"application/vnd.apple.pages", "application/vnd.apple.numbers", "application/vnd.apple.keynote",
	"application/x-iwork-pages-sffpages",
	"application/x-iwork-numbers-sffnumbers", "application/x-iwork-keynote-sffkey", "application/java-archive",
	"application/vnd.android.package-archive",
	"application/vnd.google-earth.kmz", "application/vnd.recordare.musicxml", "application/vnd.ms-visio.drawing",
	"application/vnd.visio", "application/vnd.comicbook+zip",
	"application/x-cbz", "application/x-xpinstall", "model/3mf",
	"application/vnd.ms-package.3dmanufacturing-3dmodel+xml", "image/openraster", "application/x-krita",
}

// saysPackage returns the one of packageTypes that a mimetype entry names, or "".
func saysPackage(text string) string {
	if i := slices.Index(packageTypes, strings.TrimSpace(text)); i >= 0 {
		return packageTypes[i]
	}
	return ""
}

// knownType reports whether this version recognises content of a media type.
func knownType(name string) bool {
	if mimetype.Lookup(name) != nil || officeTypes[name] != "" || slices.Contains(packageTypes, name) {
		return true
	}
	for _, names := range otherNames {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// isCalled reports whether the declared type is a known name for content of the detected type.
func (s *subject) isCalled(declared, detected string) bool {
	if slices.Contains(otherNames[detected], declared) {
		return true
	}
	for m := s.detected; m != nil; m = m.Parent() {
		name := mediaType(m.String())
		if name == "text/plain" && detected != name {
			break // plain text must not be markup or a script
		}
		if slices.Contains(otherNames[name], declared) {
			return true
		}
	}
	return false
}

// anything are media types that say nothing about the content.
var anything = []string{
	"", "application/octet-stream", "binary/octet-stream", "application/x-download", "application/force-download",
	"application/unknown",
}
