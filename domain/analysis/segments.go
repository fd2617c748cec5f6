package analysis

import (
	"bytes"
	"encoding/binary"
	"io"
)

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
