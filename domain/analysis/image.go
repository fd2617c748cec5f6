package analysis

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bep/imagemeta"
)

// Limits of what is read of an image's metadata.
const (
	maxTags    = 5000
	maxTagSize = 10000 // bytes; larger values are skipped
)

// imageFile is what was read of an image's metadata. Its pixels are never decoded.
type imageFile struct {
	supported bool
	err       error

	metadata, gps, software *tally
}

var imageFormats = []struct {
	mediaType string
	format    imagemeta.ImageFormat
}{
	{"image/jpeg", imagemeta.JPEG}, {"image/png", imagemeta.PNG}, {"image/tiff", imagemeta.TIFF}, {"image/webp", imagemeta.WebP},
	{"image/heic", imagemeta.HEIF}, {"image/heif", imagemeta.HEIF}, {"image/avif", imagemeta.AVIF},
}

// editors are programs by the words that they leave in an image, in lower case; the first that fits counts.
var editors = []struct{ word, name string }{
	{"photoshop", "Adobe Photoshop"}, {"lightroom", "Adobe Lightroom"}, {"illustrator", "Adobe Illustrator"}, {"indesign", "Adobe InDesign"},
	{"affinity", "Affinity"}, {"canva", "Canva"}, {"capture one", "Capture One"}, {"corel", "Corel"}, {"darktable", "darktable"}, {"digikam", "digiKam"},
	{"faceapp", "FaceApp"}, {"facetune", "Facetune"}, {"figma", "Figma"}, {"gimp", "GIMP"}, {"graphicsmagick", "GraphicsMagick"}, {"imagemagick", "ImageMagick"},
	{"inkscape", "Inkscape"}, {"irfanview", "IrfanView"}, {"krita", "Krita"}, {"paint.net", "paint.net"}, {"photopea", "Photopea"}, {"photoscape", "PhotoScape"},
	{"picasa", "Picasa"}, {"picsart", "PicsArt"}, {"pixelmator", "Pixelmator"}, {"rawtherapee", "RawTherapee"}, {"snapseed", "Snapseed"}, {"xnview", "XnView"},
}

const unknownProgram = "another program"

func imageSoftware(i *imageFile) verdict {
	if i.software.has(unknownProgram) && len(i.software.found) == 1 {
		return finding(Info, "The image's metadata names a program that is not a well-known editor.", i.software.list()...)
	}
	return i.software.verdict("The image's metadata names no program.", Low, "The image's metadata names a program that edits images.")
}

func imageDetector(look func(*imageFile) verdict) func(*subject) verdict {
	return func(s *subject) verdict {
		i := s.image()
		switch {
		case i == nil && strings.HasPrefix(mediaType(s.DeclaredType), "image/"):
			return inconclusive("The file is declared an image but does not look like one.")
		case i == nil:
			return notApplicable("The file is no image.")
		case !i.supported:
			return inconclusive("Images of this format are not looked into.")
		}
		v := look(i)
		if v.outcome == Clear && i.err != nil {
			return inconclusive("The image cannot be read whole.")
		}
		return v
	}
}

// readImage reads the metadata.
func (s *subject) readImage() *imageFile {
	if !strings.HasPrefix(s.detected.String(), "image/") {
		return nil
	}
	i := &imageFile{metadata: newTally(Bytes), gps: newTally(Bytes), software: newTally(Bytes)}
	for _, f := range imageFormats {
		if s.is(f.mediaType) {
			i.supported = true
			i.err = guarded(func() error { return i.read(s, f.format) })
			break
		}
	}
	return i
}

func (i *imageFile) read(s *subject, format imagemeta.ImageFormat) error {
	broken := segments(s, i.metadata, func(words string, at int64) { i.software.add(program(words), at) })
	tags := 0
	ends := &endWatcher{ReadSeeker: s.section()}
	_, err := imagemeta.Decode(imagemeta.Options{
		R: ends, ImageFormat: format, Sources: imagemeta.EXIF | imagemeta.IPTC | imagemeta.XMP, LimitNumTags: maxTags, LimitTagSize: maxTagSize,
		ShouldHandleTag: func(imagemeta.TagInfo) bool { tags++; return true },
		HandleTag: func(tag imagemeta.TagInfo) error {
			i.tag(tag)
			return nil
		},
	})
	switch {
	case broken != nil:
		return broken
	case err != nil:
		return err
	case tags >= maxTags:
		return errLimit
	case ends.missed && !s.is("image/jpeg", "image/png", "image/webp"):
		// The others were walked to their end; these refer to places that the file does not have.
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (i *imageFile) tag(tag imagemeta.TagInfo) {
	i.metadata.add(tag.Source.String()+" entry", -1)
	if strings.HasPrefix(tag.Tag, "GPS") && tag.Tag != "GPSInfoIFDPointer" && tag.Tag != "GPSVersionID" {
		i.gps.add(tag.Source.String()+" GPS entry", -1)
	}
	switch tag.Tag {
	case "Software", "ProcessingSoftware", "CreatorTool", "OriginatingProgram", "HistorySoftwareAgent", "SoftwareAgent":
		i.software.add(program(fmt.Sprint(tag.Value)), -1)
	}
}

// program is one of our names for what the metadata says, never its own words.
func program(words string) string {
	words = strings.ToLower(words)
	for _, e := range editors {
		if strings.Contains(words, e.word) {
			return e.name
		}
	}
	return unknownProgram
}

// endWatcher notices a read behind the end.
type endWatcher struct {
	io.ReadSeeker
	missed bool
}

func (w *endWatcher) Read(p []byte) (int, error) {
	n, err := w.ReadSeeker.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		w.missed = true
	}
	return n, err
}

// segments finds where a container keeps metadata, and whether it goes on to its end. An error means that the file ends,
// or stops making sense, before that.
func segments(s *subject, found *tally, software func(words string, at int64)) error {
	switch {
	case s.is("image/jpeg"):
		return jpegSegments(s, found)
	case s.is("image/png"):
		return pngChunks(s, found, software)
	case s.is("image/webp"):
		return riffChunks(s, found)
	}
	return nil
}

func (s *subject) at(offset int64, buffer []byte) error {
	if offset < 0 || offset+int64(len(buffer)) > s.Size {
		return io.ErrUnexpectedEOF
	}
	_, err := s.Content.ReadAt(buffer, offset)
	return err
}

// jpegSegments walks the segments up to the image's own data (ITU-T T.81, annex B), and looks for the end marker.
func jpegSegments(s *subject, found *tally) error {
	var head [4]byte
	var name [32]byte
	for offset := int64(2); ; {
		if err := s.at(offset, head[:]); err != nil {
			return err
		}
		if head[0] != 0xff {
			return errParser
		}
		if head[1] == 0xff { // fill byte
			offset++
			continue
		}
		size := int64(binary.BigEndian.Uint16(head[2:]))
		if size < 2 {
			return errParser
		}
		n := min(int64(len(name)), size-2)
		if err := s.at(offset+4, name[:n]); err != nil {
			return err
		}
		switch text := name[:n]; {
		case head[1] == 0xe1 && bytes.HasPrefix(text, []byte("Exif\x00")):
			found.add("EXIF segment", offset)
		case head[1] == 0xe1 && bytes.HasPrefix(text, []byte("http://ns.adobe.com/")):
			found.add("XMP segment", offset)
		case head[1] == 0xed && bytes.HasPrefix(text, []byte("Photoshop 3.0\x00")):
			found.add("IPTC segment", offset)
		case head[1] == 0xfe:
			found.add("comment", offset)
		case head[1] == 0xda:
			return jpegEnd(s)
		}
		offset += 2 + size
	}
}

// jpegEnd looks for the end marker in the last bytes; some programs append thumbnails or maker's data behind it.
func jpegEnd(s *subject) error {
	tail := make([]byte, min(s.Size, 1<<20))
	if err := s.at(s.Size-int64(len(tail)), tail); err != nil {
		return err
	}
	if !bytes.Contains(tail, []byte{0xff, 0xd9}) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// pngChunks walks the chunks to the last one (ISO/IEC 15948, 11.2).
func pngChunks(s *subject, found *tally, software func(words string, at int64)) error {
	var head [8]byte
	for offset := int64(8); ; {
		if err := s.at(offset, head[:]); err != nil {
			return err
		}
		size := int64(binary.BigEndian.Uint32(head[:4]))
		if offset+12+size > s.Size {
			return io.ErrUnexpectedEOF
		}
		switch string(head[4:]) {
		case "eXIf":
			found.add("EXIF chunk", offset)
		case "tIME":
			found.add("time chunk", offset)
		case "tEXt", "zTXt", "iTXt":
			text := make([]byte, min(size, 512))
			if err := s.at(offset+8, text); err != nil {
				return err
			}
			keyword, words, _ := bytes.Cut(text, []byte{0})
			if string(keyword) == "XML:com.adobe.xmp" {
				found.add("XMP chunk", offset)
				break
			}
			found.add("text chunk", offset)
			if string(keyword) == "Software" {
				software(string(words), offset)
			}
		case "IEND":
			return nil
		}
		offset += 12 + size
	}
}

// riffChunks walks the chunks of a WebP file (RFC 9649, section 2).
func riffChunks(s *subject, found *tally) error {
	var head [8]byte
	if err := s.at(0, head[:]); err != nil {
		return err
	}
	end := 8 + int64(binary.LittleEndian.Uint32(head[4:]))
	if end > s.Size {
		return io.ErrUnexpectedEOF
	}
	for offset := int64(12); offset+8 <= end; {
		if err := s.at(offset, head[:]); err != nil {
			return err
		}
		switch string(head[:4]) {
		case "EXIF":
			found.add("EXIF chunk", offset)
		case "XMP ":
			found.add("XMP chunk", offset)
		}
		size := int64(binary.LittleEndian.Uint32(head[4:]))
		offset += 8 + size + size%2
	}
	return nil
}
