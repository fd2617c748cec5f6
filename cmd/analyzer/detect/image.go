package detect

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"integrityledger/domain/analysis"
)

// Limits on reading an image's metadata.
const (
	maxTags     = 100_000  // entries of all kinds
	maxSteps    = 200_000  // segments, chunks, blocks and directories
	maxMetadata = 16 << 20 // unpacked bytes in total
	maxProgram  = 1000     // bytes of a program's name
	maxDeep     = 4        // nesting of metadata, such as an image in EXIF
)

// imageFile collects an image's metadata. Pixels are never decoded.
type imageFile struct {
	supported bool
	err       error

	metadata, gps, software *tally
	unread                  *tally // parts that may be metadata but were not read

	tags    int
	steps   int
	used    int64 // bytes of metadata read so far
	extends bool  // XMP says that it continues elsewhere
}

// imageReaders walk through image containers. Each calls the metadata readers for the parts it finds.
var imageReaders = []struct {
	mediaType string
	read      func(*imageFile, *imagePart) error
}{
	{"image/jpeg", (*imageFile).jpeg}, {"image/png", (*imageFile).png}, {"image/tiff", (*imageFile).tiff},
	{"image/webp", (*imageFile).webp}, {"image/gif", (*imageFile).gif},
	{"image/heic", (*imageFile).heif}, {"image/heif", (*imageFile).heif}, {"image/heic-sequence", (*imageFile).heif},
	{"image/heif-sequence", (*imageFile).heif},
	{"image/avif", (*imageFile).heif},
}

// editors are programs and the lower-case words that they leave in an image. The first match counts.
var editors = []struct{ word, name string }{
	{"photoshop", "Adobe Photoshop"}, {"lightroom", "Adobe Lightroom"}, {"adobe illustrator", "Adobe Illustrator"},
	{"illustrator", "Adobe Illustrator"}, {"indesign", "Adobe InDesign"},
	{"affinity", "Affinity"}, {"canva", "Canva"}, {"capture one", "Capture One"}, {"corel", "Corel"},
	{"darktable", "darktable"}, {"digikam", "digiKam"},
	{"faceapp", "FaceApp"}, {"facetune", "Facetune"}, {"figma", "Figma"}, {"gimp", "GIMP"},
	{"graphicsmagick", "GraphicsMagick"}, {"imagemagick", "ImageMagick"},
	{"inkscape", "Inkscape"}, {"irfanview", "IrfanView"}, {"krita", "Krita"}, {"paint.net", "paint.net"},
	{"photopea", "Photopea"}, {"photoscape", "PhotoScape"},
	{"picasa", "Picasa"}, {"picsart", "PicsArt"}, {"pixelmator", "Pixelmator"}, {"rawtherapee", "RawTherapee"},
	{"snapseed", "Snapseed"}, {"xnview", "XnView"},
}

// ordinary are editors' words that mean nothing in ordinary text.
var ordinary = []string{"illustrator", "affinity", "capture one"}

const unknownProgram = "another program"

func imageSoftware(i *imageFile) verdict {
	if i.software.has(unknownProgram) && len(i.software.found) == 1 {
		return finding(analysis.Info, "The image's metadata names a program that is not a well-known editor.",
			i.software.list()...)
	}
	return i.software.verdict(
		"The image's metadata names no program.", analysis.Low, "The image's metadata names a program that edits images.",
	)
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
		switch {
		case v.outcome == analysis.Clear && i.err != nil:
			return inconclusive("The image cannot be read whole.", i.unread.list()...)
		case v.outcome == analysis.Clear && i.unread.count() > 0:
			return inconclusive("Parts of the image that may hold metadata are not read.", i.unread.list()...)
		}
		return v
	}
}

// readImage reads the metadata.
func (s *subject) readImage() *imageFile {
	if !strings.HasPrefix(s.detected.String(), "image/") {
		return nil
	}
	i := &imageFile{
		metadata: newTally(analysis.Bytes), gps: newTally(analysis.Bytes), software: newTally(analysis.Bytes),
		unread: newTally(analysis.Bytes),
	}
	for _, f := range imageReaders {
		if s.is(f.mediaType) {
			i.supported = true
			i.err = guarded(func() error { return f.read(i, &imagePart{ReaderAt: s.Content, size: s.Size}) })
			break
		}
	}
	return i
}

// program returns our name for the program in the metadata, never the metadata's own words.
func program(words string) string {
	words = strings.ToLower(words)
	for _, e := range editors {
		if strings.Contains(words, e.word) {
			return e.name
		}
	}
	return unknownProgram
}

// names counts the program that the metadata names, if it names one.
func (i *imageFile) names(words string, at int64) {
	if words = strings.Trim(words, "\x00 \t\r\n"); words != "" {
		i.software.add(program(words[:min(len(words), maxProgram)]), at)
	}
}

// comment looks for a well-known program, or the name of a location property, in free text. UTF-16 text is read as
// ASCII, without its zero bytes.
func (i *imageFile) comment(words []byte, at int64) {
	text := strings.ToLower(string(bytes.ReplaceAll(words, []byte{0}, nil)))
	if strings.Contains(text, "gpslatitude") {
		i.gps.add("text GPS entry", at)
	}
	for _, e := range editors {
		if !slices.Contains(ordinary, e.word) && hasWord(text, e.word) {
			i.software.add(e.name, at)
			return
		}
	}
}

// hasWord reports whether text contains word as a whole word: "canva" does not match "canvas".
func hasWord(text, word string) bool {
	for before, after, found := strings.Cut(text, word); found; before, after, found = strings.Cut(after, word) {
		last, _ := utf8.DecodeLastRuneInString(before)
		next, _ := utf8.DecodeRuneInString(after)
		if !unicode.IsLetter(last) && !unicode.IsLetter(next) {
			return true
		}
	}
	return false
}

// place counts a property that names a location, whatever its value.
func (i *imageFile) place(source, property string, at int64) {
	switch name := strings.ToLower(property); {
	case name == "gpsversionid" || name == "gpsinfo" || name == "gpsinfoifdpointer": // these contain no location
	case strings.HasPrefix(name, "gps") || strings.Contains(name, "latitude") || strings.Contains(name, "longitude"),
		name == "lat", name == "long", name == "lat_long": // W3C Basic Geo
		i.gps.add(source+" GPS entry", at)
	}
}

// entry counts a metadata entry.
func (i *imageFile) entry(source string) error {
	i.metadata.add(source+" entry", -1)
	if i.tags++; i.tags > maxTags {
		return errLimit
	}
	return nil
}

// step counts a part of a container: a file has room for tens of millions of empty ones.
func (i *imageFile) step() error {
	if i.steps++; i.steps > maxSteps {
		return errLimit
	}
	return nil
}

// sub reads one piece of metadata. If the piece cannot be read, the rest of the image still is.
func (i *imageFile) sub(kind string, at int64, read func() error) error {
	err := guarded(read)
	if errors.Is(err, errLimit) {
		return err
	}
	if err != nil {
		i.unread.add(kind+" that cannot be read", at)
	}
	return nil
}

// imagePart is an image, or a part of its metadata that is read like one.
type imagePart struct {
	io.ReaderAt
	size  int64
	depth int // of images within metadata
}

func (p *imagePart) at(offset int64, buffer []byte) error {
	if offset < 0 || offset > p.size-int64(len(buffer)) {
		return io.ErrUnexpectedEOF
	}
	return readAt(p, offset, buffer)
}

// place converts an offset to a position in the file. In a part that has no file offsets it returns -1.
func (p *imagePart) place(offset int64) int64 {
	if p.depth > 0 {
		return -1
	}
	return offset
}

// part returns metadata in memory as a part.
func (p *imagePart) part(text []byte) *imagePart {
	return &imagePart{ReaderAt: bytes.NewReader(text), size: int64(len(text)), depth: p.depth + 1}
}

// load reads a piece of metadata.
func (i *imageFile) load(p *imagePart, offset, size int64) ([]byte, error) {
	if size < 0 || offset < 0 || size > p.size-offset {
		return nil, io.ErrUnexpectedEOF
	}
	if err := i.charge(size); err != nil {
		return nil, err
	}
	text := make([]byte, size)
	return text, p.at(offset, text)
}

// charge counts bytes of metadata.
func (i *imageFile) charge(size int64) error {
	if i.used += size; i.used > maxMetadata {
		return errLimit
	}
	return nil
}

// rest checks the bytes after the end of an image. Zeros are ignored.
func (i *imageFile) rest(p *imagePart, offset int64) error {
	n, first, err := notZero(io.NewSectionReader(p, offset, p.size-offset))
	if n > 0 {
		i.unread.addAll("bytes after the end of the image", n, p.place(offset+first))
	}
	return err
}
