package analysis

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"slices"

	"github.com/gabriel-vasile/mimetype"
	"github.com/klauspost/compress/zstd"
)

// readArchive unpacks the archive to nowhere.
func (s *subject) readArchive() *archiveFile {
	format := archiveFormat(s.detected)
	if z := s.zip(); z.reader != nil || s.isZip() {
		format = "application/zip"
	}
	if format == "" && !s.is(closedArchives...) {
		return nil
	}
	a := &archiveFile{format: format, packed: s.Size, nested: newTally(Entries), names: newTally(Entries), root: -1}
	if format != "" {
		a.err = guarded(func() error { return a.open(format, s.Content, s.Size, 1) })
	}
	return a
}

func archiveFormat(m *mimetype.MIME) string {
	for ; m != nil; m = m.Parent() {
		if i := slices.IndexFunc(archiveTypes, m.Is); i >= 0 {
			return archiveTypes[i]
		}
	}
	return ""
}

// open unpacks one archive of a level.
func (a *archiveFile) open(format string, content io.ReaderAt, size int64, depth int) error {
	if depth > maxDepth {
		return errLimit
	}
	a.depth = max(a.depth, depth)
	section := io.NewSectionReader(content, 0, size)
	switch format {
	case "application/zip":
		return a.zip(content, size, depth)
	case "application/x-tar":
		return a.tarEntries(section, depth, false)
	}
	unpacked, err := decompress(format, section)
	if err != nil {
		return err
	}
	defer unpacked.Close()
	return a.stream(unpacked, depth)
}

// decompress reads a file that holds one compressed stream.
func decompress(format string, r io.Reader) (io.ReadCloser, error) {
	switch format {
	case "application/gzip":
		return gzip.NewReader(r)
	case "application/x-bzip2":
		return io.NopCloser(bzip2.NewReader(r)), nil
	}
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// stream unpacks what a compressed file holds: a tar archive belongs to the same level, as .tar.gz is one archive.
func (a *archiveFile) stream(r io.Reader, depth int) error {
	counted := a.counted(r)
	head := make([]byte, headSize)
	n, err := io.ReadFull(counted, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	rest := io.MultiReader(bytes.NewReader(head[:n]), counted)
	if mimetype.Detect(head[:n]).Is("application/x-tar") {
		return a.tarEntries(rest, depth, true)
	}
	if a.root < 0 {
		a.root = 0
	}
	return a.content(rest, head[:n], depth)
}

func (a *archiveFile) zip(content io.ReaderAt, size int64, depth int) error {
	r, err := zip.NewReader(content, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return err
	}
	// The directory is looked at as a whole before anything is unpacked, which may end at a limit.
	seen := make(map[string]bool, min(len(r.File), maxEntries))
	var packed uint64
	for i, f := range r.File {
		if err := a.entry(i, depth); err != nil {
			return err
		}
		a.name(f.Name)
		if seen[f.Name] {
			a.names.add(nameTwice, a.root)
		}
		seen[f.Name] = true
		if depth == 1 {
			a.claimed = satisfy(a.claimed, f.UncompressedSize64)
		}
		packed += min(f.CompressedSize64, 1<<50)
	}
	a.overlapping = a.overlapping || packed > uint64(size)
	if a.overlapping {
		return errLimit
	}
	var failed error
	for i, f := range r.File {
		if depth == 1 {
			a.root = int64(i)
		}
		if f.Flags&1 != 0 {
			a.encrypted++
			continue
		}
		err := a.file(f, depth)
		if errors.Is(err, errLimit) {
			return err
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// satisfy adds what a directory says, which may be anything, without passing the largest number.
func satisfy(sum int64, size uint64) int64 {
	const most = 1 << 60
	return min(sum+int64(min(size, most)), most)
}

func (a *archiveFile) file(f *zip.File, depth int) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if f.Mode()&(1<<27) != 0 { // a symbolic link: its content is where it leads
		target, err := io.ReadAll(io.LimitReader(a.counted(r), 4096))
		if err != nil {
			return err
		}
		a.link(f.Name, string(target))
		return nil
	}
	return a.content(a.counted(r), nil, depth)
}

// tarEntries reads a tar archive; counted says that its bytes are counted where they come from.
func (a *archiveFile) tarEntries(r io.Reader, depth int, counted bool) error {
	tr := tar.NewReader(r)
	seen := map[string]bool{}
	for i := 0; ; i++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			// What follows the end of the archive is unpacked too.
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return err
		}
		if err := a.entry(i, depth); err != nil {
			return err
		}
		a.name(h.Name)
		if seen[h.Name] && h.Typeflag != tar.TypeDir {
			a.names.add(nameTwice, a.root)
		}
		seen[h.Name] = true
		switch h.Typeflag {
		case tar.TypeSymlink:
			a.link(h.Name, h.Linkname)
		case tar.TypeLink:
			a.link("", h.Linkname)
		case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
			a.names.add(nameDevice, a.root)
		}
		content := io.Reader(tr)
		if !counted {
			content = a.counted(tr)
		}
		if err := a.content(content, nil, depth); err != nil {
			return err
		}
	}
}

// entry counts an entry of a level.
func (a *archiveFile) entry(index, depth int) error {
	if depth == 1 {
		a.root = int64(index)
	}
	if a.entries++; a.entries > maxEntries {
		return errLimit
	}
	return nil
}

// content unpacks an entry and, if it is an archive itself, what that holds. Its head may have been read already.
func (a *archiveFile) content(r io.Reader, head []byte, depth int) error {
	if head == nil {
		head = make([]byte, headSize)
		n, err := io.ReadFull(r, head)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		head = head[:n]
		r = io.MultiReader(bytes.NewReader(head), r)
	}
	m := mimetype.Detect(head)
	format := archiveFormat(m)
	if format == "" {
		if slices.ContainsFunc(closedArchives, m.Is) {
			a.nested.add("archive of a format that is not looked into", a.root)
		}
		_, err := io.Copy(io.Discard, r)
		return err
	}
	a.nested.add("archive "+format, a.root)
	a.depth = max(a.depth, depth+1)
	inner, err := io.ReadAll(io.LimitReader(r, maxInner+1))
	if err != nil {
		return err
	}
	if len(inner) > maxInner {
		return errLimit
	}
	return a.open(format, bytes.NewReader(inner), int64(len(inner)), depth+1)
}

// counted counts what is unpacked, and ends it where enough is seen for a finding.
func (a *archiveFile) counted(r io.Reader) io.Reader {
	return &budgetReader{r, &a.unpacked, unpackedBudget(a.packed, ratioFrom, maxUnpacked)}
}

// unpackedBudget is what a file of a size may unpack to: highRatio times its size, within bounds.
func unpackedBudget(size, least, most int64) int64 {
	return min(max(least, min(size, most)*highRatio), most)
}
