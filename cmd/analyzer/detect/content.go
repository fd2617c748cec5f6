package detect

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"integrityledger/domain/analysis"

	"github.com/gabriel-vasile/mimetype"
)

// Markers by which programs recognise a format, even in a file that begins as another one.
const (
	structurePDF  = "PDF header"
	structureZip  = "ZIP end of central directory"
	structureHTML = "HTML element"
)

// contentType compares the content's apparent type with the declared type, and looks for a second type in it.
func contentType(s *subject) verdict {
	if s.unreadable != nil {
		return inconclusive("The content could not be read.")
	}
	if s.Size == 0 {
		return finding(analysis.Low, "The file is empty.")
	}
	detected := s.contentName()
	seen := newTally(analysis.Bytes)
	seen.add("content "+detected, 0)
	others := newTally(analysis.Bytes)
	if at := s.pdfOffset(); at >= 0 && detected != "application/pdf" {
		others.add(structurePDF, at)
	} else if at > 0 {
		others.add("bytes before the "+structurePDF, 0)
	}
	if !s.isZip() {
		if at := zipEnd(s); at >= 0 {
			others.add(structureZip, at)
		}
	}
	if s.is("image/gif", "image/jpeg", "image/png", "image/bmp", "application/pdf") {
		for _, mark := range []string{"<script", "<html"} {
			if at := bytes.Index(bytes.ToLower(s.head), []byte(mark)); at >= 0 {
				others.add(structureHTML, int64(at))
			}
		}
	}
	misnamed := s.misnamed(detected)
	evidence := append(seen.list(), others.list()...)
	if misnamed {
		evidence = append(evidence, counted(analysis.Bytes, "extension of another type", 1)...)
	}
	declared := mediaType(s.DeclaredType)
	untyped := slices.Contains(anything, declared)
	fits := untyped || s.fits(declared, detected)
	switch {
	case detected == encryptedOffice && officeTypes[declared] != "":
		return inconclusive("The content is an encrypted Office file; its type is not known.", evidence...)
	case !fits && others.count() > 0:
		return finding(analysis.High, "The content is not of the declared type and can be read as more than one type.",
			append(evidence, declaredEvidence(declared)...)...)
	case !fits:
		return finding(analysis.Medium, "The content is not of the declared type.",
			append(evidence, declaredEvidence(declared)...)...)
	case others.count() > 0:
		return finding(analysis.High, "The content can be read as more than one type.", evidence...)
	case misnamed:
		return finding(analysis.Low, "The file's name has the extension of another type.", evidence...)
	case untyped:
		return verdict{
			analysis.Inconclusive, analysis.None, fmt.Sprintf("No type was declared; the content looks like %s.", detected),
			evidence,
		}
	case detected == "application/octet-stream":
		return inconclusive("The content has no signature that this version knows.", evidence...)
	}
	return verdict{analysis.Clear, analysis.None, "The content looks like the declared type.", evidence}
}

// declaredEvidence names the declared type only if it is a known one: any other text comes from the declarer.
func declaredEvidence(declared string) []analysis.Evidence {
	name := "declared type of another name"
	if knownType(declared) {
		name = "declared " + declared
	}
	return counted(analysis.Bytes, name, 1)
}

const (
	oleStorage      = "application/x-ole-storage"
	encryptedOffice = "encrypted Office file" // which kind is unknown
)

// contentName returns the content's apparent type. An Office file's type follows from its own table of contents.
func (s *subject) contentName() string {
	if z := s.zip(); z.err == nil && z.office != "" {
		return z.office
	} else if z.err == nil && z.packaged != "" {
		return z.packaged
	}
	detected := mediaType(s.detected.String())
	if detected != oleStorage {
		return detected
	}
	names, err := s.binaryNames()
	switch {
	case err != nil:
		return detected
	case names["EncryptedPackage"] > 0:
		return encryptedOffice
	case names["WordDocument"] > 0:
		return "application/msword"
	case names["Workbook"] > 0, names["Book"] > 0:
		return "application/vnd.ms-excel"
	case names["PowerPoint Document"] > 0:
		return "application/vnd.ms-powerpoint"
	}
	return detected
}

// extensions are the file name extensions by which programs choose, and their types.
var extensions = map[string]string{
	".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".tgz": "application/gzip",
	".tar": "application/x-tar", ".7z": "application/x-7z-compressed",
	".doc": "application/msword", ".xls": "application/vnd.ms-excel", ".ppt": "application/vnd.ms-powerpoint",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".docm": "application/vnd.ms-word.document.macroenabled.12",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".xlsm": "application/vnd.ms-excel.sheet.macroenabled.12",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".pptm": "application/vnd.ms-powerpoint.presentation.macroenabled.12",
	".png":  "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".tif": "image/tiff", ".tiff": "image/tiff",
	".txt": "text/plain", ".csv": "text/csv", ".md": "text/markdown", ".json": "application/json",
	".xml": "application/xml", ".html": "text/html", ".htm": "text/html",
}

// misnamed reports whether the name has another type's extension.
func (s *subject) misnamed(detected string) bool {
	named := extensions[strings.ToLower(path.Ext(s.FileName))]
	return named != "" && detected != encryptedOffice && !s.fits(named, detected)
}

// fits reports whether content of the detected type may have the declared type.
func (s *subject) fits(declared, detected string) bool {
	known := officeTypes[detected] != "" || slices.Contains(packageTypes, detected)
	switch {
	case declared == detected || s.isCalled(declared, detected):
		return true
	case s.is(declared) && (!known || s.is(detected)):
		return true // or a subtype
	case s.is("text/plain"):
		// Formats without a signature: text fits any declared kind of text.
		return textual(declared)
	case known:
		return declared == "application/zip" || mimetype.Lookup("application/zip").Is(declared) ||
			slices.Contains(otherNames["application/zip"], declared)
	case detected == "application/zip" && (strings.HasSuffix(declared, "+zip") || slices.Contains(packageTypes, declared)):
		return true // a package without its own signature
	case detected == "application/octet-stream" && bytes.HasPrefix(s.head, []byte{0x30}) &&
		slices.Contains(otherNames["application/pkcs7-signature"], declared):
		return true // DER
	}
	return detected == "application/octet-stream" && !knownType(declared)
}
