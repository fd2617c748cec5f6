package detect

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"unicode"
)

// zipLayout describes the parts of a ZIP file that its directory does not list (APPNOTE 4.3). Other programs may read
// them: programs that read the entries from the beginning, or that use another of several directories.
type zipLayout struct {
	outside   int64    // non-zero bytes that belong to no entry and no directory
	first     int64    // offset of the first of these bytes
	overlap   bool     // entries share bytes with each other or with the directory
	differing []int    // entries with another name in their own header or in an extra field
	names     []string // those other names
	others    []string // names in extra fields that cannot be compared, because of their character set
	sizes     int64    // entries whose own header has another size or method
}

// zipSpan is an accounted piece of the file.
type zipSpan struct{ from, to int64 }

const (
	zipLocalSize, zipDirectorySize, zipEndSize = 30, 46, 22
	zip64EndSize, zip64LocatorSize             = 56, 20
)

var errZipLayout = errors.New("the directory of the ZIP file cannot be followed")

// readZipLayout reads the directory that archive/zip uses, and the headers of the entries that it lists.
func readZipLayout(content io.ReaderAt, size int64, files []*zip.File) (*zipLayout, error) {
	z := &zipLayout{first: -1}
	le := binary.LittleEndian
	end, tail := zipEndIn(content, size, false)
	if end < 0 {
		return nil, errZipLayout
	}
	if len(files) > maxEntries {
		return nil, errLimit
	}
	start, length := int64(le.Uint32(tail[16:])), int64(le.Uint32(tail[12:]))
	comment := tail[zipEndSize:][:le.Uint16(tail[20:])]
	spans := []zipSpan{{end, end + zipEndSize + int64(len(comment))}}
	z.text(comment, end+zipEndSize)
	records := end
	locator := make([]byte, zip64LocatorSize)
	if readAt(content, end-zip64LocatorSize, locator) == nil && bytes.HasPrefix(locator, []byte("PK\x06\x07")) {
		record := make([]byte, zip64EndSize)
		at := int64(le.Uint64(locator[8:]))
		if at >= 0 && readAt(content, at, record) == nil && bytes.HasPrefix(record, []byte("PK\x06\x06")) {
			whole := int64(le.Uint64(record[4:]))
			// The same decision as archive/zip's.
			large := le.Uint16(tail[10:]) == 1<<16-1 || length == 1<<16-1 || start == 1<<32-1
			start64, length64 := int64(le.Uint64(record[48:])), int64(le.Uint64(record[40:]))
			if whole < zip64EndSize-12 || whole > size || !large && (start64 != start || length64 != length) {
				return nil, errZipLayout
			}
			if large {
				start, length, records = start64, length64, at
			}
			spans = append(spans, zipSpan{at, at + zip64EndSize}, zipSpan{end - zip64LocatorSize, end})
		}
	}
	base := records - length - start
	if start < 0 || length < 0 || base < 0 {
		return nil, errZipLayout
	}
	// Like archive/zip: if the bytes where the end record points read as a directory, they are the directory, whatever
	// precedes the file.
	if mark := make([]byte, 4); base > 0 && readAt(content, start, mark) == nil && string(mark) == "PK\x01\x02" {
		base = 0
	}
	directory := base + start
	r := bufio.NewReader(io.NewSectionReader(content, directory, size-directory))
	for at, i := directory, 0; ; i++ {
		entry, name, taken, err := zipEntry(r)
		if err != nil {
			return nil, err
		}
		if entry == nil && i == len(files) {
			spans = append(spans, zipSpan{directory, at})
			break
		}
		if entry == nil || i == len(files) ||
			files[i].CompressedSize64 != entry.compressed || files[i].Name != string(name) {
			return nil, errZipLayout
		}
		z.text(entry.texts, at)
		at += taken
		z.path(entry.path, name, i)
		span, err := z.local(content, size, base, entry, name, i)
		if err != nil {
			return nil, err
		}
		spans = append(spans, span)
	}
	return z, z.account(content, size, spans)
}

// text checks a comment or extra fields for marks of an archive's parts, which programs that search for them may find.
func (z *zipLayout) text(text []byte, at int64) {
	if !bytes.Contains(text, []byte("PK\x03\x04")) && !bytes.Contains(text, []byte("PK\x05\x06")) {
		return
	}
	z.outside += int64(len(text))
	if z.first < 0 {
		z.first = at
	}
}

// path records an entry's name in an extra field, which some programs prefer. Names beyond ASCII cannot be compared,
// because the main name may be in any character set.
func (z *zipLayout) path(path, name []byte, entry int) {
	switch {
	case path == nil || bytes.Equal(path, name):
	case bytes.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }):
		z.others = append(z.others, string(path))
	default:
		z.differing, z.names = append(z.differing, entry), append(z.names, string(path))
	}
}

// account finds bytes that are in no span, or in two.
func (z *zipLayout) account(content io.ReaderAt, size int64, spans []zipSpan) error {
	slices.SortFunc(spans, func(a, b zipSpan) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	at := int64(0)
	for _, s := range append(spans, zipSpan{size, size}) {
		if s.from < at {
			z.overlap = true
		}
		if s.from > at {
			n, first, err := notZero(io.NewSectionReader(content, at, s.from-at))
			if err != nil {
				return err
			}
			if z.outside += n; n > 0 && z.first < 0 {
				z.first = at + first
			}
		}
		at = max(at, s.to)
	}
	return nil
}

// notZero returns the number of non-zero bytes, and the offset of the first.
func notZero(r io.Reader) (n, first int64, err error) {
	buffer := make([]byte, 1<<15)
	first = -1
	for at := int64(0); ; {
		some, err := r.Read(buffer)
		for i, b := range buffer[:some] {
			if b != 0 {
				if n++; first < 0 {
					first = at + int64(i)
				}
			}
		}
		at += int64(some)
		if errors.Is(err, io.EOF) {
			return n, first, nil
		}
		if err != nil {
			return n, first, err
		}
	}
}

// zipCentral is the part of a directory entry that locates the entry.
type zipCentral struct {
	flags, method                    uint16
	path                             []byte // the name in an extra field, or nil
	texts                            []byte // extra fields and comment
	crc                              uint32
	compressed, uncompressed, offset uint64
}

// zipEntry reads a directory entry, or returns nil at the end.
func zipEntry(r *bufio.Reader) (entry *zipCentral, name []byte, taken int64, err error) {
	head, _ := r.Peek(zipDirectorySize) // shorter at the end of the file
	if len(head) < zipDirectorySize || !bytes.HasPrefix(head, []byte("PK\x01\x02")) {
		return nil, nil, 0, nil
	}
	le := binary.LittleEndian
	e := &zipCentral{
		flags: le.Uint16(head[8:]), method: le.Uint16(head[10:]), crc: le.Uint32(head[16:]),
		compressed: uint64(le.Uint32(head[20:])), uncompressed: uint64(le.Uint32(head[24:])),
		offset: uint64(le.Uint32(head[42:])),
	}
	n, m, k := int(le.Uint16(head[28:])), int(le.Uint16(head[30:])), int(le.Uint16(head[32:]))
	rest := make([]byte, n+m+k)
	_, _ = r.Discard(zipDirectorySize) // was peeked
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, nil, 0, errZipLayout
	}
	e.texts = rest[n:]
	e.extra(rest[n:n+m], rest[:n])
	return e, rest[:n], int64(zipDirectorySize + n + m + k), nil
}

// extra applies sizes and offsets that do not fit into 32 bits (APPNOTE 4.5.3), and another name (4.6.9), unless that
// name dates from before the entry was renamed.
func (e *zipCentral) extra(extra, name []byte) {
	le := binary.LittleEndian
	for len(extra) >= 4 {
		id, size := le.Uint16(extra), int(le.Uint16(extra[2:]))
		if extra = extra[4:]; size > len(extra) {
			return
		}
		if id == 0x7075 && size > 5 && le.Uint32(extra[1:]) == crc32.ChecksumIEEE(name) {
			e.path = extra[5:size]
		}
		if id == 1 {
			field := extra[:size]
			for _, n := range []*uint64{&e.uncompressed, &e.compressed, &e.offset} {
				if *n == 1<<32-1 && len(field) >= 8 {
					*n, field = le.Uint64(field), field[8:]
				}
			}
		}
		extra = extra[size:]
	}
}

// local returns an entry's span, from its own header to the end of its data descriptor. It compares that header with
// the directory.
func (z *zipLayout) local(content io.ReaderAt, size, base int64, e *zipCentral, name []byte, i int) (zipSpan, error) {
	head := make([]byte, zipLocalSize)
	if e.offset > uint64(size) || e.compressed > uint64(size) {
		return zipSpan{}, errZipLayout
	}
	at := base + int64(e.offset)
	if readAt(content, at, head) != nil || !bytes.HasPrefix(head, []byte("PK\x03\x04")) {
		return zipSpan{}, errZipLayout
	}
	le := binary.LittleEndian
	n, m := int64(le.Uint16(head[26:])), int64(le.Uint16(head[28:]))
	texts := make([]byte, n+m)
	if readAt(content, at+zipLocalSize, texts) != nil {
		return zipSpan{}, errZipLayout
	}
	own := zipCentral{compressed: uint64(le.Uint32(head[18:])), uncompressed: uint64(le.Uint32(head[22:]))}
	own.extra(texts[n:], texts[:n])
	z.text(texts[n:], at+zipLocalSize+n)
	if !bytes.Equal(texts[:n], name) {
		z.differing, z.names = append(z.differing, i), append(z.names, string(texts[:n]))
	}
	z.path(own.path, texts[:n], i)
	to := at + zipLocalSize + n + m + int64(e.compressed)
	if to > size {
		return zipSpan{}, errZipLayout
	}
	if e.flags&8 != 0 {
		to += e.descriptor(content, size, to)
	}
	agrees := func(local, listed uint64) bool {
		return local == listed || e.flags&8 != 0 && (local == 0 || local == 1<<32-1) // stored after the data
	}
	if !agrees(own.compressed, e.compressed) || !agrees(own.uncompressed, e.uncompressed) ||
		le.Uint16(head[8:]) != e.method || le.Uint16(head[6:])&1 != e.flags&1 {
		z.sizes++
	}
	return zipSpan{at, to}, nil
}

// descriptor returns the length of the data descriptor at an offset, or 0. There are four forms (APPNOTE 4.3.9).
func (e *zipCentral) descriptor(content io.ReaderAt, size, at int64) int64 {
	text := make([]byte, min(24, size-at))
	if readAt(content, at, text) != nil {
		return 0
	}
	le := binary.LittleEndian
	mark := 0
	if bytes.HasPrefix(text, []byte("PK\x07\x08")) {
		mark = 4
	}
	for _, from := range []int{mark, 0} {
		rest := text[from:]
		switch {
		case len(rest) < 12 || le.Uint32(rest) != e.crc:
		case len(rest) >= 20 && le.Uint64(rest[4:]) == e.compressed && le.Uint64(rest[12:]) == e.uncompressed:
			return int64(from) + 20
		case uint64(le.Uint32(rest[4:])) == e.compressed && uint64(le.Uint32(rest[8:])) == e.uncompressed:
			return int64(from) + 12
		}
	}
	return 0
}

// zipEndIn finds the end record that archive/zip uses, the last one whose comment fits (APPNOTE 4.3.16), or returns -1.
// toEnd requires that the comment ends with the file.
func zipEndIn(content io.ReaderAt, size int64, toEnd bool) (int64, []byte) {
	const comment = 1<<16 - 1
	from := max(0, size-zipEndSize-comment)
	tail := make([]byte, size-from)
	if readAt(content, from, tail) != nil {
		return -1, nil
	}
	for at := len(tail) - zipEndSize; at >= 0; at-- {
		if !bytes.HasPrefix(tail[at:], []byte("PK\x05\x06")) {
			continue
		}
		left := len(tail) - at - zipEndSize - int(binary.LittleEndian.Uint16(tail[at+20:]))
		if left == 0 || left > 0 && !toEnd {
			return from + int64(at), tail[at:]
		}
	}
	return -1, nil
}

// readAt fills the buffer or returns an error.
func readAt(content io.ReaderAt, offset int64, buffer []byte) error {
	if offset < 0 {
		return io.ErrUnexpectedEOF
	}
	if n, err := content.ReadAt(buffer, offset); n < len(buffer) {
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return nil
}

// wholeFlate unpacks an entry, and reports bytes left after the end of its compressed data.
type wholeFlate struct {
	io.ReadCloser
	packed *bufio.Reader
	left   func()
}

func newWholeFlate(packed io.Reader, left func()) io.ReadCloser {
	r := bufio.NewReader(packed) // from which flate reads no extra byte
	return &wholeFlate{flate.NewReader(r), r, left}
}

func (w *wholeFlate) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && w.packed != nil {
		if _, more := w.packed.Peek(1); more == nil {
			w.left()
		}
		w.packed = nil
	}
	return n, err
}
