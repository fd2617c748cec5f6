package detect

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"integrityledger/domain/analysis"

	"github.com/gabriel-vasile/mimetype"
	"github.com/klauspost/compress/zstd"
)

// Limits on unpacking an archive. Everything unpacked is counted, and only archives within archives are kept.
const (
	maxUnpacked = 512 << 20 // bytes, over all levels
	maxEntries  = 100_000   // over all levels
	maxInner    = 32 << 20  // bytes of an archive within an archive, which is kept while it is read
	maxDepth    = 4         // nesting of archives; the outermost is 1

	// A file that unpacks to ratioFrom bytes and highRatio times its size is a finding, and is not unpacked further: that
	// would cost processor time and reveal nothing more.
	highRatio = 100
	ratioFrom = 10 << 20
	deepFrom  = 3 // depth
)

// archiveFile collects the findings in an archive and in the archives that it contains.
type archiveFile struct {
	format string // "" if this version cannot read it
	err    error  // set if part of it could not be read

	packed, unpacked int64 // bytes of the file, and of everything unpacked from it
	claimed          int64 // unpacked bytes according to the directory
	entries          int
	depth            int

	nested, names *tally
	hidden        *tally // bytes that belong to no entry
	overlapping   bool
	encrypted     int64
	root          int64 // current entry of the outermost archive
}

// archiveTypes are the archives and packages that can be examined; closedArchives are those that cannot.
var (
	archiveTypes = []string{
		"application/zip", "application/gzip", "application/x-tar", "application/x-bzip2", "application/zstd",
	}
	closedArchives = []string{
		"application/x-7z-compressed", "application/vnd.rar", "application/x-xz", "application/vnd.ms-cab-compressed",
		"application/x-cpio", "application/x-archive", "application/lzip", "application/x-rpm", "application/x-xar",
	}
)

// archive applies look to an archive that was read. The result is never clear if part of the archive was not read.
func archive(look func(*archiveFile) verdict) func(*subject) verdict {
	return func(s *subject) verdict {
		a := s.archive()
		switch {
		case a == nil && s.declares(archiveTypes...):
			return inconclusive("The file is declared an archive but does not look like one.")
		case a == nil:
			return notApplicable("The file is no archive.")
		case a.format == "":
			return inconclusive("Archives of this format are not looked into.")
		}
		v := look(a)
		switch {
		case v.outcome == analysis.Clear && a.err != nil:
			return inconclusive("The archive cannot be read whole.")
		case v.outcome == analysis.Clear && a.hidden.count() > 0:
			return inconclusive(hiddenBytes, a.hidden.list()...)
		case v.outcome == analysis.Clear && a.encrypted > 0:
			return inconclusive("Entries of the archive are encrypted.",
				counted(analysis.Entries, "encrypted entry", a.encrypted)...)
		}
		return v
	}
}

const hiddenBytes = "The file holds bytes that belong to none of the entries it lists, and that other programs may " +
	"read."

func archiveNesting(a *archiveFile) verdict {
	if a.depth > deepFrom {
		return finding(analysis.High, "The archive holds archives in archives, several levels deep.", a.nested.list()...)
	}
	return a.nested.verdict("The archive holds no other archive.", analysis.Low, "The archive holds other archives.")
}

func archiveNames(a *archiveFile) verdict {
	switch {
	case a.names.has(nameParent, nameAbsolute, nameDrive, nameLink):
		return finding(analysis.High, "The archive has names that lead out of its directory.", a.names.list()...)
	case a.names.has(nameDiffers):
		return finding(analysis.Medium, "The archive gives an entry two names.", a.names.list()...)
	}
	return a.names.verdict(
		"The archive's names stay within its directory.", analysis.Low, "The archive has unusual names.",
	)
}

func archiveExpansion(a *archiveFile) verdict {
	facts := newTally(analysis.Bytes)
	facts.addAll("packed byte", a.packed, -1)
	facts.addAll("unpacked byte", a.unpacked, -1)
	if a.claimed > a.unpacked {
		facts.addAll("unpacked byte by the directory's own words", a.claimed, -1)
	}
	unpacked := max(a.unpacked, a.claimed)
	switch {
	case a.overlapping:
		return finding(analysis.High, "Entries of the archive overlap: it unpacks to more than it should.", facts.list()...)
	case unpacked >= ratioFrom && unpacked/max(a.packed, 1) >= highRatio:
		return finding(analysis.High, fmt.Sprintf("The archive unpacks to more than %d times its size.", highRatio),
			facts.list()...)
	case a.err != nil:
		return inconclusive("The archive cannot be read whole.", facts.list()...)
	}
	return verdict{analysis.Clear, analysis.None, "The archive unpacks to an ordinary size.", facts.list()}
}

// Suspicious names of entries.
const (
	nameParent    = "name with a .. segment"
	nameAbsolute  = "absolute name"
	nameDrive     = "name with a drive letter"
	nameBackslash = "name with a backslash"
	nameLink      = "link that leads out of the directory"
	nameControl   = "name with a control character"
	nameEmpty     = "empty name"
	nameTwice     = "name that comes twice"
	nameDevice    = "device or pipe"
	nameDiffers   = "second name of an entry"
)

// name checks an entry's name.
func (a *archiveFile) name(name string) {
	slashed := strings.ReplaceAll(name, `\`, "/")
	for structure, is := range map[string]bool{
		nameParent:    slices.Contains(strings.Split(slashed, "/"), ".."),
		nameAbsolute:  strings.HasPrefix(slashed, "/"),
		nameDrive:     len(name) > 1 && name[1] == ':' && (name[0]|0x20) >= 'a' && (name[0]|0x20) <= 'z',
		nameBackslash: strings.Contains(name, `\`),
		nameControl:   strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f }),
		nameEmpty:     name == "",
	} {
		if is {
			a.names.add(structure, a.root)
		}
	}
}

// link checks where a link leads from its entry.
func (a *archiveFile) link(name, target string) {
	slashed := strings.ReplaceAll(target, `\`, "/")
	depth := strings.Count(strings.TrimPrefix(name, "./"), "/")
	for segment := range strings.SplitSeq(slashed, "/") {
		switch segment {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		if depth < 0 {
			break
		}
	}
	if depth < 0 || strings.HasPrefix(slashed, "/") || len(target) > 1 && target[1] == ':' {
		a.names.add(nameLink, a.root)
	}
}

// readArchive unpacks the archive without keeping the output.
func (s *subject) readArchive() *archiveFile {
	format := archiveFormat(s.detected)
	if z := s.zip(); z.reader != nil || s.isZip() {
		format = "application/zip"
	}
	if format == "" && !s.is(closedArchives...) {
		return nil
	}
	a := &archiveFile{
		format: format, packed: s.Size, nested: newTally(analysis.Entries), names: newTally(analysis.Entries),
		hidden: newTally(analysis.Bytes), root: -1,
	}
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

// beginning reads the first bytes of a stream; whole is the stream including them.
func beginning(r io.Reader) (head []byte, whole io.Reader, err error) {
	head = make([]byte, headSize)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, err
	}
	return head[:n], io.MultiReader(bytes.NewReader(head[:n]), r), nil
}

// open unpacks one archive at a depth.
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

// decompress reads a file that consists of one compressed stream.
func decompress(format string, r io.Reader) (io.ReadCloser, error) {
	switch format {
	case "application/gzip":
		return gzip.NewReader(r)
	case "application/x-bzip2":
		return io.NopCloser(bzip2.NewReader(r)), nil
	}
	d, err := zstd.NewReader(
		r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderMaxWindow(64<<20),
	)
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// stream unpacks a compressed file. A tar archive in it belongs to the same level, because .tar.gz is one archive.
func (a *archiveFile) stream(r io.Reader, depth int) error {
	counted := a.counted(r)
	head, whole, err := beginning(counted)
	if err != nil {
		return err
	}
	if detect(head).Is("application/x-tar") {
		return a.tarEntries(whole, depth, true)
	}
	a.root = max(a.root, 0)
	return a.content(whole, depth)
}

func (a *archiveFile) zip(content io.ReaderAt, size int64, depth int) error {
	r, err := zip.NewReader(content, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return err
	}
	// Check the whole directory before unpacking, because unpacking may end at a limit.
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
	failed := a.layout(content, size, depth, r.File)
	r.RegisterDecompressor(zip.Deflate, func(packed io.Reader) io.ReadCloser {
		return newWholeFlate(packed, func() { a.hidden.add("bytes after the end of an entry's data", -1) })
	})
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

// layout looks for bytes in the archive that belong to no entry of its directory.
func (a *archiveFile) layout(content io.ReaderAt, size int64, depth int, files []*zip.File) error {
	z, err := readZipLayout(content, size, files)
	if err != nil {
		return err
	}
	a.overlapping = a.overlapping || z.overlap
	if z.outside > 0 {
		at := z.first
		if depth > 1 {
			at = -1
		}
		a.hidden.addAll("bytes of no entry", z.outside, at)
	}
	if z.sizes > 0 {
		a.hidden.addAll("entry whose own header has another size or method", z.sizes, -1)
	}
	for _, name := range z.others {
		root := a.root
		a.root = -1 // not in order of entries
		a.name(name)
		a.root = root
	}
	for i, entry := range z.differing {
		if depth == 1 {
			a.root = int64(entry)
		}
		a.names.add(nameDiffers, a.root)
		a.name(z.names[i])
	}
	return nil
}

// satisfy adds a size from a directory, which may be any number, without overflow.
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
	if f.Mode()&(1<<27) != 0 { // a symbolic link: its content is its target
		target, err := io.ReadAll(io.LimitReader(a.counted(r), 4096))
		if err != nil {
			return err
		}
		a.link(f.Name, string(target))
		return nil
	}
	return a.content(a.counted(r), depth)
}

// tarEntries reads a tar archive. counted means that its bytes are already counted at their source.
func (a *archiveFile) tarEntries(r io.Reader, depth int, counted bool) error {
	tr := tar.NewReader(r)
	seen := map[string]bool{}
	for i := 0; ; i++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			// Bytes after the end of the archive are unpacked too.
			n, _, err := notZero(r)
			if n > 0 {
				a.hidden.addAll("bytes after the end of the archive", n, -1)
			}
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
		if err := a.content(content, depth); err != nil {
			return err
		}
	}
}

// entry counts an entry at a depth.
func (a *archiveFile) entry(index, depth int) error {
	if depth == 1 {
		a.root = int64(index)
	}
	if a.entries++; a.entries > maxEntries {
		return errLimit
	}
	return nil
}

// content unpacks an entry and, if it is an archive, the entries in it.
func (a *archiveFile) content(r io.Reader, depth int) error {
	head, r, err := beginning(r)
	if err != nil {
		return err
	}
	m := detect(head)
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

// counted counts unpacked bytes, and stops once there are enough for a finding.
func (a *archiveFile) counted(r io.Reader) io.Reader {
	return &budgetReader{r, &a.unpacked, unpackedBudget(a.packed, ratioFrom, maxUnpacked)}
}

// unpackedBudget returns how much a file of a size may unpack to: highRatio times its size, within bounds.
func unpackedBudget(size, least, most int64) int64 {
	return min(max(least, min(size, most)*highRatio), most)
}
