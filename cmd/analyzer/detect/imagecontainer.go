package detect

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const unreadSegment = "segment that is not read"

// jpeg walks the segments of an image, and of the pictures that follow it in a multi-picture file (ITU-T T.81, annex B;
// CIPA DC-007). Metadata may also be between scans.
func (i *imageFile) jpeg(p *imagePart) error {
	for offset := int64(0); ; {
		end, err := i.jpegImage(p, offset)
		if err != nil {
			return err
		}
		var head [3]byte
		// Pictures are often padded with zeros.
		n, first, err := firstNotZero(p, end)
		if err != nil || n == 0 {
			return err
		}
		if next := end + first; p.at(next, head[:]) == nil && string(head[:]) == "\xff\xd8\xff" {
			offset = next
			continue
		}
		return i.rest(p, end)
	}
}

// firstNotZero finds the first byte that is not zero; n is 0 if all are zero.
func firstNotZero(p *imagePart, offset int64) (n int, first int64, err error) {
	r := bufio.NewReader(io.NewSectionReader(p, offset, p.size-offset))
	for ; ; first++ {
		b, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, 0, nil
		}
		if err != nil || b != 0 {
			return 1, first, err
		}
	}
}

// jpegSegments collects the metadata of one image that spans several segments.
type jpegSegments struct {
	photoshop []byte
	extended  map[string][]byte // XMP, by its digest
	whole     map[string]int
}

// jpegImage walks one image, and returns the end of its end marker.
func (i *imageFile) jpegImage(p *imagePart, start int64) (int64, error) {
	var head [4]byte
	s := &jpegSegments{extended: map[string][]byte{}, whole: map[string]int{}}
	for offset := start + 2; ; {
		if err := i.step(); err != nil {
			return 0, err
		}
		if err := p.at(offset, head[:2]); err != nil {
			return 0, err
		}
		if head[0] != 0xff {
			return 0, errParser
		}
		switch marker := head[1]; {
		case marker == 0xff: // fill byte
			offset++
			continue
		case marker == 0xd9:
			return offset + 2, i.jpegEnd(p, s)
		case marker == 0x01 || marker >= 0xd0 && marker <= 0xd7: // without a length
			offset += 2
			continue
		}
		if err := p.at(offset, head[:]); err != nil {
			return 0, err
		}
		size := int64(binary.BigEndian.Uint16(head[2:]))
		if size < 2 {
			return 0, errParser
		}
		if marker := head[1]; marker >= 0xe0 {
			text, err := i.load(p, offset+4, min(size-2, p.size-offset-4)) // in a truncated file, as much as exists
			if err == nil {
				err = i.jpegSegment(p, s, marker, text, p.place(offset))
			}
			if err != nil {
				return 0, err
			}
		}
		if offset+2+size > p.size {
			return 0, io.ErrUnexpectedEOF
		}
		offset += 2 + size
		if head[1] == 0xda {
			next, err := jpegScan(p, offset)
			if err != nil {
				return 0, err
			}
			offset = next
		}
	}
}

// jpegScan finds the marker that ends a scan's data. It reads little at first, because there may be many short scans.
func jpegScan(p *imagePart, offset int64) (int64, error) {
	buffer := make([]byte, 1<<9)
	for ; offset < p.size-1; buffer = make([]byte, min(2*len(buffer), 1<<16)) {
		text := buffer[:min(int64(len(buffer)), p.size-offset)]
		if err := p.at(offset, text); err != nil {
			return 0, err
		}
		for at := 0; at < len(text)-1; at++ {
			next := bytes.IndexByte(text[at:len(text)-1], 0xff)
			if next < 0 {
				break
			}
			at += next
			if c := text[at+1]; c != 0 && c != 0xff && (c < 0xd0 || c > 0xd7) {
				return offset + int64(at), nil
			}
		}
		offset += int64(len(text)) - 1
	}
	return 0, io.ErrUnexpectedEOF
}

const (
	xmpHeader      = "http://ns.adobe.com/xap/1.0/\x00"
	xmpExtension   = "http://ns.adobe.com/xmp/extension/\x00"
	photoshopBlock = "Photoshop 3.0\x00"
)

// jpegSegment reads an application segment, an extension or a comment.
func (i *imageFile) jpegSegment(p *imagePart, s *jpegSegments, marker byte, text []byte, at int64) error {
	begins := func(prefixes ...string) bool {
		for _, prefix := range prefixes {
			if bytes.HasPrefix(text, []byte(prefix)) {
				return true
			}
		}
		return false
	}
	switch {
	case marker == 0xfe:
		i.metadata.add("comment", at)
		i.comment(text, at)
	case marker == 0xe1 && begins("Exif\x00"):
		i.metadata.add("EXIF segment", at)
		return i.exif(p, text[min(len(text), 6):])
	case marker == 0xe1 && begins(xmpHeader):
		i.metadata.add("XMP segment", at)
		return i.xmp(text[len(xmpHeader):])
	case marker == 0xe1 && begins(xmpExtension):
		i.metadata.add("XMP segment", at)
		return i.sub("extended XMP", at, func() error { return s.extend(text[len(xmpExtension):]) })
	case marker == 0xed && begins(photoshopBlock):
		i.metadata.add("IPTC segment", at)
		s.photoshop = append(s.photoshop, text[len(photoshopBlock):]...)
	case marker == 0xe0 && begins("JFIF\x00", "JFXX\x00", "AVI1"), marker == 0xe2 &&
		begins("ICC_PROFILE\x00", "MPF\x00", "urn:iso:std:iso:ts:21496"),
		marker == 0xec && begins("Ducky"), marker == 0xed && begins("Adobe_CM\x00"), marker == 0xee && begins("Adobe"):
	case len(bytes.Trim(text, "\x00")) > 0:
		i.unread.add(unreadSegment, at)
	}
	return nil
}

// extend adds a portion of extended XMP (XMP specification, part 3, 1.1.3.1). Portions must be in order.
func (s *jpegSegments) extend(text []byte) error {
	const digest, head = 32, 32 + 4 + 4
	if len(text) < head {
		return errParser
	}
	id := string(text[:digest])
	if int(binary.BigEndian.Uint32(text[digest+4:])) != len(s.extended[id]) {
		return errParser
	}
	s.whole[id] = int(binary.BigEndian.Uint32(text[digest:]))
	s.extended[id] = append(s.extended[id], text[head:]...)
	return nil
}

// jpegEnd reads the metadata collected from several segments.
func (i *imageFile) jpegEnd(p *imagePart, s *jpegSegments) error {
	if s.photoshop != nil {
		if err := i.photoshop(p, s.photoshop); err != nil {
			return err
		}
	}
	if i.extends && len(s.extended) == 0 {
		i.unread.add("extended XMP that is not there", -1)
	}
	i.extends = false
	for _, id := range slices.Sorted(maps.Keys(s.extended)) {
		text := s.extended[id]
		if len(text) != s.whole[id] {
			i.unread.add("extended XMP that cannot be read", -1)
		} else if err := i.xmp(text); err != nil {
			return err
		}
	}
	return nil
}

// pngHarmless are the chunks without metadata, except about colours, sizes and animation (PNG, third edition, 11), and
// Apple's and ImageMagick's chunks.
const pngHarmless = " IHDR PLTE IDAT IEND tRNS cHRM gAMA iCCP sBIT sRGB bKGD hIST pHYs sPLT acTL fcTL fdAT cICP " +
	"mDCV mDCv cLLI cLLi oFFs pCAL sCAL sTER iDOT CgBI vpAg orNT caNv gIFg gIFx "

// png walks the chunks to the last one, and checks the bytes after it.
func (i *imageFile) png(p *imagePart) error {
	var head [8]byte
	for offset := int64(8); ; {
		if err := i.step(); err != nil {
			return err
		}
		if err := p.at(offset, head[:]); err != nil {
			return err
		}
		size := int64(binary.BigEndian.Uint32(head[:4]))
		if offset+12+size > p.size {
			return io.ErrUnexpectedEOF
		}
		switch name, at := string(head[4:]), p.place(offset); name {
		case "eXIf", "zxIf", "tIME", "tEXt", "zTXt", "iTXt":
			text, err := i.load(p, offset+8, size)
			if err == nil {
				err = i.pngChunk(p, name, text, at)
			}
			if err != nil {
				return err
			}
		case "IEND":
			return i.rest(p, offset+12+size)
		default:
			if !strings.Contains(pngHarmless, " "+name+" ") {
				i.unread.add("chunk that is not read", at)
			}
		}
		offset += 12 + size
	}
}

func (i *imageFile) pngChunk(p *imagePart, name string, text []byte, at int64) error {
	switch name {
	case "eXIf":
		i.metadata.add("EXIF chunk", at)
		return i.exif(p, text)
	case "tIME":
		i.metadata.add("time chunk", at)
		return nil
	case "zxIf":
		i.unread.add("chunk that is not read", at)
		return nil
	}
	keyword, words, ok := bytes.Cut(text, []byte{0})
	packed := false
	switch {
	case !ok:
		i.unread.add("text that cannot be read", at)
		return nil
	case name == "zTXt":
		packed = true
		words = append([]byte{1}, words...) // in the form of an iTXt chunk
		fallthrough
	case name == "iTXt":
		if len(words) < 2 || words[0] > 1 || words[0] == 1 && words[1] != 0 {
			i.unread.add("text that cannot be read", at)
			return nil
		}
		packed = packed || words[0] == 1
		words = words[2:]
		if name == "iTXt" { // language and translated keyword
			_, words, _ = bytes.Cut(words, []byte{0})
			_, words, _ = bytes.Cut(words, []byte{0})
		}
	}
	if packed {
		i.metadata.add("text chunk", at)
		return i.sub("text", at, func() error {
			unpacked, err := i.inflate(words)
			if err != nil {
				return err
			}
			return i.pngText(p, string(keyword), unpacked, at)
		})
	}
	i.metadata.add("text chunk", at)
	return i.pngText(p, string(keyword), words, at)
}

// inflate unpacks a text. Bytes after its end would not be read.
func (i *imageFile) inflate(packed []byte) ([]byte, error) {
	source := bytes.NewReader(packed)
	r, err := zlib.NewReader(source)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(&budgetReader{r, &i.used, maxMetadata})
	if err == nil && source.Len() > 0 {
		err = errParser
	}
	return text, err
}

// xmpStarts matches the beginning of XMP without a packet around it.
var xmpStarts = regexp.MustCompile(`<(\w+:)?(xmpmeta|xapmeta|RDF)[\s>]`)

func (i *imageFile) pngText(p *imagePart, keyword string, words []byte, at int64) error {
	profile, raw := strings.CutPrefix(strings.ToLower(keyword), "raw profile type ")
	switch trimmed := bytes.TrimSpace(words); {
	case keyword == "XML:com.adobe.xmp", bytes.HasPrefix(trimmed, []byte("<?xpacket")),
		xmpStarts.Match(trimmed[:min(len(trimmed), 1000)]):
		i.metadata.add("XMP chunk", at)
		return i.xmp(words)
	case raw:
		return i.rawProfile(p, profile, words, at)
	}
	i.place("text", keyword[strings.LastIndexByte(keyword, ':')+1:], at)
	if strings.EqualFold(keyword, "Software") || strings.EqualFold(keyword, "CreatorTool") {
		i.names(string(words), at)
	} else {
		i.comment(words, at)
	}
	return nil
}

// rawProfile reads a metadata block in ImageMagick's format: its name, its length and hexadecimal digits, on lines.
func (i *imageFile) rawProfile(p *imagePart, name string, words []byte, at int64) error {
	block := profileBlock(words)
	if block == nil {
		i.unread.add("raw profile that cannot be read", at)
		return nil
	}
	has := func(prefix string) bool { return bytes.HasPrefix(block, []byte(prefix)) }
	switch {
	case has("Exif\x00"), has("II\x2a\x00"), has("MM\x00\x2a"):
		return i.exif(p, block)
	case has(xmpHeader):
		return i.xmp(block[len(xmpHeader):])
	case has("8BIM"):
		return i.photoshop(p, block)
	case has(photoshopBlock):
		return i.photoshop(p, block[len(photoshopBlock):])
	case has("\x1c"):
		return i.iptc(block)
	case name == "xmp", has("<?xpacket"), has("<x:xmpmeta"):
		return i.xmp(block)
	case name == "icc", name == "icm":
		return nil
	}
	i.unread.add("raw profile that is not read", at)
	return nil
}

// profileBlock returns the content of a raw profile, or nil if it is malformed. The name before the length may be
// missing.
func profileBlock(words []byte) []byte {
	fields := bytes.Fields(words)
	for range min(2, len(fields)) {
		size, err := strconv.Atoi(string(fields[0]))
		fields = fields[1:]
		if err == nil {
			block, err := hex.DecodeString(string(bytes.Join(fields, nil)))
			if err != nil || len(block) != size {
				return nil
			}
			return block
		}
	}
	return nil
}

// webp walks the chunks of a WebP file (RFC 9649, section 2).
func (i *imageFile) webp(p *imagePart) error {
	var head [8]byte
	if err := p.at(0, head[:]); err != nil {
		return err
	}
	end := 8 + int64(binary.LittleEndian.Uint32(head[4:]))
	if end > p.size {
		return io.ErrUnexpectedEOF
	}
	if err := i.riff(p, 12, end, 0); err != nil {
		return err
	}
	return i.rest(p, end+min(end%2, p.size-end))
}

func (i *imageFile) riff(p *imagePart, offset, end int64, depth int) error {
	var head [8]byte
	for offset < end {
		if err := i.step(); err != nil {
			return err
		}
		if err := p.at(offset, head[:]); err != nil || offset+8 > end {
			return io.ErrUnexpectedEOF
		}
		size, at := int64(binary.LittleEndian.Uint32(head[4:])), p.place(offset)
		if size > end-offset-8 {
			return io.ErrUnexpectedEOF
		}
		switch name := string(head[:4]); name {
		case "VP8 ", "VP8L", "VP8X", "ALPH", "ANIM", "ICCP":
		case "ANMF": // 16 bytes, and the chunks of the frame
			if depth > 0 || size < 16 {
				return errParser
			}
			if err := i.riff(p, offset+24, offset+8+size, depth+1); err != nil {
				return err
			}
		case "EXIF", "XMP ":
			text, err := i.load(p, offset+8, size)
			if err != nil {
				return err
			}
			i.metadata.add(strings.TrimSpace(name)+" chunk", at)
			if name == "EXIF" {
				err = i.exif(p, text)
			} else {
				err = i.xmp(text)
			}
			if err != nil {
				return err
			}
		default:
			i.unread.add("chunk that is not read", at)
		}
		offset += 8 + size + size%2
	}
	return nil
}

// gif walks the blocks of a GIF file (GIF89a, appendix A).
func (i *imageFile) gif(p *imagePart) error {
	var head [13]byte
	if err := p.at(0, head[:]); err != nil {
		return err
	}
	colours := func(packed byte) int64 {
		if packed&0x80 == 0 {
			return 0
		}
		return 3 << (packed&7 + 1)
	}
	offset := int64(len(head)) + colours(head[10])
	for {
		if err := i.step(); err != nil {
			return err
		}
		if err := p.at(offset, head[:1]); err != nil {
			return err
		}
		switch at := offset; head[0] {
		case 0x3b:
			return i.rest(p, offset+1)
		case 0x2c:
			if err := p.at(offset, head[:10]); err != nil {
				return err
			}
			end, err := gifBlocks(p, offset+11+colours(head[9]))
			if err != nil {
				return err
			}
			offset = end
		case 0x21:
			if err := p.at(offset, head[:2]); err != nil {
				return err
			}
			end, err := gifBlocks(p, offset+2)
			if err != nil {
				return err
			}
			if err := i.gifExtension(p, head[1], offset+2, end, p.place(at)); err != nil {
				return err
			}
			offset = end
		default:
			return errParser
		}
	}
}

// gifBlocks skips data blocks, each of which begins with its length, and the empty block that ends them.
func gifBlocks(p *imagePart, offset int64) (int64, error) {
	r := bufio.NewReader(io.NewSectionReader(p, offset, max(0, p.size-offset)))
	for {
		size, err := r.ReadByte()
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		offset += 1 + int64(size)
		if size == 0 {
			return offset, nil
		}
		if _, err := r.Discard(int(size)); err != nil {
			return 0, io.ErrUnexpectedEOF
		}
	}
}

// gifExtension reads a comment or an application extension. XMP is not in blocks: the bytes after it lead a reader of
// blocks to the end (XMP specification, part 3, 1.1.2).
func (i *imageFile) gifExtension(p *imagePart, label byte, from, to, at int64) error {
	const magic = 258
	switch label {
	case 0xf9:
		return nil
	case 0xfe, 0x01, 0xff:
	default:
		i.unread.add("extension that is not read", at)
		return nil
	}
	text, err := i.load(p, from, to-from)
	if err != nil {
		return err
	}
	application := func(name string) bool { return bytes.HasPrefix(text, []byte("\x0b"+name)) }
	switch {
	case label == 0xfe:
		i.metadata.add("comment", at)
		words := []byte{}
		for len(text) > 0 && text[0] > 0 {
			words, text = append(words, text[1:1+int(text[0])]...), text[1+int(text[0]):]
		}
		i.comment(words, at)
	case label == 0x01:
		i.metadata.add("plain text", at)
	case application("XMP DataXMP"):
		i.metadata.add("XMP extension", at)
		if len(text) < 12+magic {
			i.unread.add("XMP that cannot be read", at)
			return nil
		}
		return i.xmp(text[12 : len(text)-magic])
	case application("ImageMagick"):
		i.metadata.add("ImageMagick extension", at)
		i.names("ImageMagick", at)
	case application("NETSCAPE2.0"), application("ANIMEXTS1.0"), application("ICCRGBG1012"):
	default:
		i.unread.add("extension that is not read", at)
	}
	return nil
}
