package detect

import (
	"bytes"
	"encoding/binary"
	"io"
)

// isoBox is a box of the ISO base media format (ISO/IEC 14496-12, 4.2).
type isoBox struct {
	name     string
	from, to int64 // of its content
}

// boxes lists the boxes of a part of the file.
func (p *imagePart) boxes(from, to int64) (list []isoBox, err error) {
	var head [16]byte
	for from < to {
		if len(list) == maxTags {
			return nil, errLimit
		}
		if err := p.at(from, head[:8]); err != nil {
			return nil, err
		}
		size, begins := int64(binary.BigEndian.Uint32(head[:])), from+8
		switch size {
		case 0:
			size = to - from
		case 1:
			if err := p.at(from, head[:]); err != nil {
				return nil, err
			}
			size, begins = int64(binary.BigEndian.Uint64(head[8:])), from+16
		}
		if size < begins-from || size > to-from {
			return nil, io.ErrUnexpectedEOF
		}
		list = append(list, isoBox{string(head[4:8]), begins, from + size})
		from += size
	}
	return list, nil
}

// uuidXMP identifies the box that contains XMP outside the items.
const uuidXMP = "\xbe\x7a\xcf\xcb\x97\xa9\x42\xe8\x9c\x71\x99\x94\x91\xe3\xaf\xac"

// heif reads the items of a HEIF file (ISO/IEC 23008-12) that hold metadata.
func (i *imageFile) heif(p *imagePart) error {
	top, err := p.boxes(0, p.size)
	if err != nil {
		return err
	}
	for _, b := range top {
		switch b.name {
		case "ftyp", "mdat", "free", "skip":
		case "meta":
			if err := i.heifMeta(p, b); err != nil {
				return err
			}
		case "uuid":
			text, err := i.load(p, b.from, b.to-b.from)
			if err != nil {
				return err
			}
			if rest, ok := bytes.CutPrefix(text, []byte(uuidXMP)); ok {
				i.metadata.add("XMP box", b.from)
				err = i.xmp(rest)
			} else {
				i.unread.add("box that is not read", b.from)
			}
			if err != nil {
				return err
			}
		default:
			i.unread.add("box that is not read", b.from)
		}
	}
	return nil
}

// heifItem is an item's location: extents in the file or in the box idat.
type heifItem struct {
	kind, content string
	encoded       bool
	method        int
	extents       [][2]int64
}

func (i *imageFile) heifMeta(p *imagePart, meta isoBox) error {
	boxes, err := p.boxes(meta.from+4, meta.to)
	if err != nil {
		return err
	}
	items := map[uint64]*heifItem{}
	var order []uint64
	var data isoBox
	var places []byte
	for _, b := range boxes {
		switch b.name {
		case "iinf", "iloc":
			text, err := i.load(p, b.from, b.to-b.from)
			if err != nil {
				return err
			}
			if b.name == "iloc" {
				places = text
				break
			}
			skip := int64(6)
			if len(text) > 0 && text[0] > 0 {
				skip = 8
			}
			infos, err := p.boxes(b.from+skip, b.to)
			if err != nil {
				return err
			}
			for _, info := range infos {
				if id, item := itemInfo(text[info.from-b.from : info.to-b.from]); item != nil && items[id] == nil {
					items[id], order = item, append(order, id)
				} else {
					i.unread.add("item that is not read", -1)
				}
			}
		case "idat":
			data = b
		case "hdlr", "pitm", "iref", "iprp", "dinf", "grpl", "ipro", "free", "skip":
		default:
			i.unread.add("box that is not read", b.from)
		}
	}
	if err := itemPlaces(places, items); err != nil {
		return err
	}
	for _, id := range order {
		if err := i.heifItem(p, items[id], data); err != nil {
			return err
		}
	}
	return nil
}

// itemInfo reads an infe box.
func itemInfo(text []byte) (id uint64, item *heifItem) {
	switch {
	case len(text) >= 12 && text[0] == 2:
		id, text = uint64(binary.BigEndian.Uint16(text[4:])), text[8:]
	case len(text) >= 14 && text[0] == 3:
		id, text = uint64(binary.BigEndian.Uint32(text[4:])), text[10:]
	default:
		return 0, nil
	}
	item = &heifItem{kind: string(text[:4])}
	_, text, _ = bytes.Cut(text[4:], []byte{0}) // its name
	if item.kind == "mime" {
		content, encoding, _ := bytes.Cut(text, []byte{0})
		item.content, item.encoded = string(content), len(bytes.Trim(encoding, "\x00")) > 0
	}
	return id, item
}

// itemPlaces reads an iloc box.
func itemPlaces(text []byte, items map[uint64]*heifItem) (err error) {
	take := func(n int) (v uint64) {
		if n > len(text) {
			err = io.ErrUnexpectedEOF
			return 0
		}
		for _, b := range text[:n] {
			v = v<<8 | uint64(b)
		}
		text = text[n:]
		return v
	}
	if text == nil {
		return nil
	}
	extents := 0
	version := take(4) >> 24
	sizes := take(2)
	offsetSize, lengthSize, baseSize, indexSize := int(sizes>>12), int(sizes>>8&15), int(sizes>>4&15), int(sizes&15)
	if version > 2 || max(offsetSize, lengthSize, baseSize, indexSize) > 8 {
		return errParser
	}
	wide := 2
	if version == 2 {
		wide = 4
	}
	for range take(wide) {
		id := take(wide)
		item := items[id]
		if item == nil {
			item = &heifItem{}
		}
		if version > 0 {
			item.method = int(take(2) & 15)
		}
		if take(2) != 0 { // in another file
			item.method = -1
		}
		base := take(baseSize)
		for range take(2) {
			if extents++; extents > maxTags {
				return errLimit
			}
			if version > 0 {
				take(indexSize)
			}
			offset, length := take(offsetSize), take(lengthSize)
			item.extents = append(item.extents, [2]int64{int64(base + offset), int64(length)})
			if err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return err
}

// heifItem reads an item that contains metadata.
func (i *imageFile) heifItem(p *imagePart, item *heifItem, data isoBox) error {
	xmp := item.kind == "mime" && item.content == "application/rdf+xml" && !item.encoded
	switch item.kind {
	case "hvc1", "hev1", "lhv1", "av01", "avc1", "vvc1", "jpeg", "j2k1", "unci", "grid", "iovl", "iden", "tmap", "mski":
		return nil
	case "Exif":
	default:
		if !xmp {
			i.unread.add("item that is not read", -1)
			return nil
		}
	}
	i.metadata.add(map[bool]string{false: "EXIF item", true: "XMP item"}[xmp], -1)
	base := int64(0)
	if item.method == 1 {
		base = data.from
	}
	if item.method != 0 && item.method != 1 || len(item.extents) == 0 {
		i.unread.add("item that is not read", -1)
		return nil
	}
	var text []byte
	for _, e := range item.extents {
		length := e[1]
		if length == 0 {
			length = p.size - base - e[0] // to the end
		}
		part, err := i.load(p, base+e[0], length)
		if err != nil {
			return err
		}
		text = append(text, part...)
	}
	if xmp {
		return i.xmp(text)
	}
	return i.sub("EXIF", -1, func() error {
		if len(text) < 4 {
			return errParser
		}
		skip := int64(binary.BigEndian.Uint32(text)) + 4
		if skip > int64(len(text)) {
			return errParser
		}
		return i.tiff(p.part(bytes.TrimPrefix(text[skip:], []byte("Exif\x00\x00"))))
	})
}
