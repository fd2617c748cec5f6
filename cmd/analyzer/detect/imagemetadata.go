package detect

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"io"
	"strings"
)

// exif reads an EXIF block, which is a TIFF file. Some programs put an extra preamble before it.
func (i *imageFile) exif(p *imagePart, block []byte) error {
	block = bytes.TrimPrefix(block, []byte("Exif\x00\x00"))
	return i.sub("EXIF", -1, func() error {
		if p.depth > maxDeep {
			return errParser
		}
		return i.tiff(p.part(block))
	})
}

// The TIFF and EXIF entries that are examined (TIFF 6.0, EXIF 3.0, 4.6).
const (
	tagSoftware, tagProcessingSoftware               = 0x0131, 0x000b
	tagFirmware, tagMetadataEditor                   = 0xa439, 0xa43c // including those between
	tagSubIFDs, tagEXIF, tagGPS, tagInteroperability = 0x014a, 0x8769, 0x8825, 0xa005
	tagXMP, tagIPTC, tagPhotoshop                    = 0x02bc, 0x83bb, 0x8649
	tagTiePoints, tagTransformation, tagGeoKeys      = 0x8482, 0x85d8, 0x87af // GeoTIFF
	tagThumbnail, tagThumbnailSize, tagGPSVersion    = 0x0201, 0x0202, 0
)

// tiffReader reads the directories of a TIFF file, classic or big.
type tiffReader struct {
	*imageFile
	*imagePart
	order binary.ByteOrder
	big   bool
	seen  map[tiffIFD]bool
}

type tiffIFD struct {
	offset int64
	gps    bool
}

const typeUTF8 = 129 // EXIF 3.0, 4.6.2

// tiffSizes are the lengths of a value of each type.
var tiffSizes = [...]int64{0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8}

func (i *imageFile) tiff(p *imagePart) error {
	head := make([]byte, 16)
	if err := p.at(0, head[:8]); err != nil {
		return err
	}
	t := tiffReader{imageFile: i, imagePart: p, order: binary.LittleEndian, seen: map[tiffIFD]bool{}}
	switch string(head[:2]) {
	case "II":
	case "MM":
		t.order = binary.BigEndian
	default:
		return errParser
	}
	first := int64(t.order.Uint32(head[4:]))
	switch t.order.Uint16(head[2:]) {
	case 42:
	case 43:
		if err := p.at(0, head); err != nil {
			return err
		}
		t.big, first = true, int64(t.order.Uint64(head[8:]))
	default:
		return errParser
	}
	for queue := []tiffIFD{{first, false}}; len(queue) > 0; {
		ifd := queue[0]
		queue = queue[1:]
		if ifd.offset == 0 || t.seen[ifd] {
			continue
		}
		t.seen[ifd] = true
		more, err := t.directory(ifd)
		if err != nil {
			return err
		}
		queue = append(queue, more...)
	}
	return nil
}

// directory reads a directory's entries. It returns the directories that the entries and the directory's end refer to.
func (t *tiffReader) directory(ifd tiffIFD) (more []tiffIFD, err error) {
	countSize, entrySize, offsetSize := int64(2), int64(12), int64(4)
	if t.big {
		countSize, entrySize, offsetSize = 8, 20, 8
	}
	if err := t.step(); err != nil {
		return nil, err
	}
	count, err := t.number(ifd.offset, countSize)
	if err != nil {
		return nil, err
	}
	if count > maxTags {
		return nil, errLimit
	}
	var thumbnail, thumbnailSize int64
	at := ifd.offset + countSize
	for range count {
		var head [4]byte
		if err := t.at(at, head[:]); err != nil {
			return nil, err
		}
		tag, kind := t.order.Uint16(head[:]), t.order.Uint16(head[2:])
		n, err := t.number(at+4, offsetSize)
		if err != nil {
			return nil, err
		}
		if err := t.entry("EXIF"); err != nil {
			return nil, err
		}
		v := tiffValue{kind: kind, count: n, offset: at + 4 + offsetSize}
		switch {
		case n > t.size:
		case int(kind) < len(tiffSizes):
			v.size = tiffSizes[kind]
		case kind == typeUTF8:
			v.size = 1
		}
		if n*v.size > offsetSize {
			if v.offset, err = t.number(v.offset, offsetSize); err != nil {
				return nil, err
			}
		}
		switch {
		case ifd.gps && tag != tagGPSVersion, tag == tagTiePoints || tag == tagTransformation || tag == tagGeoKeys:
			t.gps.add("EXIF GPS entry", -1)
		case ifd.gps:
		case tag == tagThumbnail:
			thumbnail, _ = t.first(v)
		case tag == tagThumbnailSize:
			thumbnailSize, _ = t.first(v)
		default:
			linked, err := t.value(tag, v)
			if err != nil {
				return nil, err
			}
			more = append(more, linked...)
		}
		at += entrySize
	}
	if thumbnail > 0 && thumbnailSize > 0 && t.depth > 0 {
		if err := t.thumbnail(thumbnail, thumbnailSize); err != nil {
			return nil, err
		}
	}
	next, err := t.number(at, offsetSize)
	if err != nil {
		return more, nil //nolint:nilerr // many programs leave out the last pointer
	}
	return append(more, tiffIFD{next, ifd.gps}), nil
}

// thumbnail reads the image in EXIF, which may have its own metadata.
func (t *tiffReader) thumbnail(offset, size int64) error {
	return t.sub("thumbnail", -1, func() error {
		if t.depth > maxDeep {
			return errParser
		}
		text, err := t.load(t.imagePart, offset, size)
		if err != nil || !bytes.HasPrefix(text, []byte("\xff\xd8\xff")) {
			return err
		}
		return t.jpeg(t.part(text))
	})
}

// tiffValue is the location of an entry's values.
type tiffValue struct {
	kind                uint16
	count, size, offset int64 // size of one value; 0 for an unknown type
}

func (t *tiffReader) number(offset, size int64) (int64, error) {
	var b [8]byte
	if err := t.at(offset, b[:size]); err != nil {
		return 0, err
	}
	switch size {
	case 1:
		return int64(b[0]), nil
	case 2:
		return int64(t.order.Uint16(b[:])), nil
	case 4:
		return int64(t.order.Uint32(b[:])), nil
	}
	n := int64(t.order.Uint64(b[:]))
	if n < 0 {
		return 0, errParser
	}
	return n, nil
}

// first returns the first number of a value.
func (t *tiffReader) first(v tiffValue) (int64, error) {
	if v.count < 1 || v.size == 0 {
		return 0, errParser
	}
	return t.number(v.offset, v.size)
}

// value reads the entries that may name a program or a location. It returns the directories that an entry refers to.
func (t *tiffReader) value(tag uint16, v tiffValue) (more []tiffIFD, err error) {
	bytesOf := func() ([]byte, error) {
		if v.size == 0 {
			return nil, errParser
		}
		return t.load(t.imagePart, v.offset, v.count*v.size)
	}
	switch {
	case tag == tagSoftware || tag == tagProcessingSoftware || tag >= tagFirmware && tag <= tagMetadataEditor:
		text, err := bytesOf()
		if err != nil {
			return nil, err
		}
		t.names(string(text), -1)
	case tag == tagSubIFDs || tag == tagEXIF || tag == tagGPS || tag == tagInteroperability:
		if v.size == 0 {
			return nil, errParser
		}
		if err := t.charge(v.count * v.size); err != nil {
			return nil, err
		}
		for n := range v.count {
			offset, err := t.number(v.offset+n*v.size, v.size)
			if err != nil {
				return nil, err
			}
			more = append(more, tiffIFD{offset, tag == tagGPS})
		}
	case tag == tagXMP || tag == tagIPTC || tag == tagPhotoshop:
		text, err := bytesOf()
		if err != nil {
			return nil, err
		}
		switch tag {
		case tagXMP:
			return nil, t.xmp(text)
		case tagIPTC:
			return nil, t.iptc(text)
		}
		return nil, t.photoshop(t.imagePart, text)
	}
	return more, nil
}

const maxOpen = 100 // nested elements

// xmp reads an XMP packet (ISO 16684-1): the names of all properties, and the values of properties that name a program.
func (i *imageFile) xmp(packet []byte) error {
	return i.sub("XMP", -1, func() error {
		packet = bytes.TrimRight(bytes.TrimPrefix(packet, []byte("\xef\xbb\xbf")), "\x00 \t\r\n")
		decoder := xml.NewDecoder(bytes.NewReader(packet))
		property := func(name, value string) error {
			switch name {
			case "Software", "ProcessingSoftware", "CreatorTool", "OriginatingProgram", "HistorySoftwareAgent",
				"SoftwareAgent", "softwareAgent", "Producer":
				i.names(value, -1)
			case "HasExtendedXMP":
				i.extends = true
			}
			return i.entry("XMP")
		}
		var open []string
		elements := 0
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				if elements == 0 {
					return errParser
				}
				return nil
			}
			if err != nil {
				return err
			}
			switch token := token.(type) {
			case xml.StartElement:
				elements++
				i.place("XMP", token.Name.Local, -1)
				if open = append(open, token.Name.Local); len(open) > maxOpen {
					return errParser
				}
				for _, a := range token.Attr {
					name := a.Name.Local
					if a.Name.Space == "xmlns" || name == "xmlns" {
						continue
					}
					i.place("XMP", name, -1)
					if name == "value" || name == "resource" {
						name = named(open)
					}
					if err := property(name, a.Value); err != nil {
						return err
					}
				}
			case xml.EndElement:
				open = open[:len(open)-1]
			case xml.CharData:
				if text := strings.TrimSpace(string(token)); text != "" && len(open) > 0 {
					if err := property(named(open), text); err != nil {
						return err
					}
				}
			}
		}
	})
}

// named returns the property that a text in the innermost open element belongs to: the nearest element that is no part
// of a list.
func named(open []string) string {
	for n := len(open) - 1; n >= 0; n-- {
		switch open[n] {
		case "li", "Alt", "Seq", "Bag", "Description", "value":
		default:
			return open[n]
		}
	}
	return ""
}

// iptc reads IPTC data sets (IIM 4.2, 1.6).
func (i *imageFile) iptc(text []byte) error {
	return i.sub("IPTC", -1, func() error {
		for len(text) >= 5 && text[0] == 0x1c {
			record, set, size := text[1], text[2], int(binary.BigEndian.Uint16(text[3:]))
			text = text[5:]
			if size&0x8000 != 0 { // the length of the length
				n := size & 0x7fff
				if n > 4 || n > len(text) {
					return errParser
				}
				size = 0
				for _, b := range text[:n] {
					size = size<<8 | int(b)
				}
				text = text[n:]
			}
			if size > len(text) {
				return io.ErrUnexpectedEOF
			}
			if err := i.entry("IPTC"); err != nil {
				return err
			}
			if record == 2 && set == 65 {
				i.names(string(text[:size]), -1)
			}
			text = text[size:]
		}
		if len(bytes.Trim(text, "\x00")) > 0 {
			return errParser
		}
		return nil
	})
}

// photoshop reads image resource blocks (Adobe Photoshop File Formats, Image Resources).
func (i *imageFile) photoshop(p *imagePart, text []byte) error {
	return i.sub("Photoshop resources", -1, func() error {
		for len(text) >= 12 {
			switch string(text[:4]) {
			case "8BIM", "MeSa", "PHUT", "AgHg", "DCSR":
			default:
				return errParser
			}
			id := binary.BigEndian.Uint16(text[4:])
			name := (int(text[6]) + 2) &^ 1 // the length byte and the padded name
			if len(text) < 6+name+4 {
				return io.ErrUnexpectedEOF
			}
			size := int(binary.BigEndian.Uint32(text[6+name:]))
			text = text[6+name+4:]
			if size > len(text) {
				return io.ErrUnexpectedEOF
			}
			if err := i.resource(p, id, text[:size]); err != nil {
				return err
			}
			text = text[min(len(text), (size+1)&^1):]
		}
		if len(bytes.Trim(text, "\x00")) > 0 {
			return errParser
		}
		return nil
	})
}

func (i *imageFile) resource(p *imagePart, id uint16, text []byte) error {
	const thumbnailHead = 28
	switch id {
	case 0x0404:
		return i.iptc(text)
	case 0x0422, 0x0423:
		return i.exif(p, text)
	case 0x0424:
		return i.xmp(text)
	case 0x0421: // the program's name, in UTF-16
		i.comment(text, -1)
	case 0x040c:
		if len(text) > thumbnailHead && bytes.HasPrefix(text[thumbnailHead:], []byte("\xff\xd8\xff")) {
			return i.sub("thumbnail", -1, func() error {
				if p.depth > maxDeep {
					return errParser
				}
				return i.jpeg(p.part(text[thumbnailHead:]))
			})
		}
	}
	return nil
}
