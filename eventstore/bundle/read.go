package bundle

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/audit"
)

// Bundle is a complete bundle to be read.
type Bundle struct {
	Manifest
	files
}

// files are those of a bundle, and where they are.
type files struct {
	fs.FS
	path string
}

func filesIn(dir string) files { return files{os.DirFS(dir), dir} }

// Open reads the manifest of a bundle, which is a directory or a zip file of one. What the files hold is seen when they
// are read. Close gives a zip file back.
func Open(path string) (*Bundle, error) {
	b := &Bundle{files: filesIn(path)}
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() {
		var archive *zip.ReadCloser
		if archive, err = zip.OpenReader(path); err == nil {
			b.FS = archive
			if err = checkArchive(&archive.Reader, info.Size()); err == nil {
				_, err = fs.ReadDir(archive, ".") // refuses names that are there twice
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("bundle %s: %w", path, err)
	}
	if err == nil {
		b.Manifest, err = b.readManifest()
	}
	if err == nil && !b.Complete {
		err = fmt.Errorf("%s: %w", path, ErrIncomplete)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Bounds of a zip file, beyond anything that an export writes: every event has a hash and an id, which no compression
// makes shorter, so a bundle never unpacks to much more than its size. The reader of zip files makes a directory of
// every part of a name, which of long names would take more than the file.
const (
	maxExpansion  = 200 // times the size of the zip file
	expansionFrom = 16 << 20
	maxName       = 255
	maxFolders    = 4 // a bundle has one; file managers add some
)

// checkArchive refuses a zip file beyond these bounds, before anything of it is unpacked.
func checkArchive(archive *zip.Reader, size int64) error {
	most := uint64(max(expansionFrom, size*maxExpansion))
	var unpacked uint64
	for _, f := range archive.File {
		if len(f.Name) > maxName {
			return fmt.Errorf(
				"a file in it has a name of %d bytes, more than the %d that a bundle may have", len(f.Name), maxName,
			)
		}
		if folders := strings.Count(f.Name, "/"); folders > maxFolders {
			return fmt.Errorf("a file in it lies in %d folders, more than the %d that a bundle may have", folders, maxFolders)
		}
		if f.UncompressedSize64 > most-unpacked {
			return fmt.Errorf("it unpacks to more than %d bytes, which no bundle of %d bytes does", most, size)
		}
		unpacked += f.UncompressedSize64
	}
	return nil
}

// Close gives back what Open has opened.
func (b *Bundle) Close() {
	if archive, ok := b.FS.(io.Closer); ok {
		_ = archive.Close() // it was only read
	}
}

// TrustedKeys reads the trusted-keys file that lies in the bundle, and what is wrong with it.
func (b *Bundle) TrustedKeys() ([]byte, []audit.Finding, error) {
	return b.read(b.Manifest.TrustedKeys)
}

// Checkpoint reads the checkpoint of the transparency log, nil where the bundle has
// none, and what is wrong with the file.
func (b *Bundle) Checkpoint() ([]byte, []audit.Finding, error) {
	if b.Manifest.Checkpoint == nil {
		return nil, nil, nil
	}
	return b.read(*b.Manifest.Checkpoint)
}

func (b *Bundle) read(file File) ([]byte, []audit.Finding, error) {
	text, err := b.readRegular(file.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	return text, file.compare(describe(file.File, text)), nil
}

// compare holds a file that was read against what the manifest says of it.
func (f File) compare(found File) []audit.Finding {
	if found == f {
		return nil
	}
	return f.differs(fmt.Sprintf("%d bytes with %s", found.Bytes, found.SHA256))
}

func (f File) differs(found string) []audit.Finding {
	return []audit.Finding{{
		Check: audit.CheckFile, Place: f.File,
		Expected: fmt.Sprintf("%d bytes with SHA-256 %s, by the manifest", f.Bytes, f.SHA256), Found: found,
	}}
}

// A group of lines is no longer than one of each of these.
const (
	readGroup      = 2000
	readGroupBytes = 4 << 20
)

// foreign finds files of events that the manifest does not name: a person who looks
// there would take them for part of the history.
func (b *Bundle) foreign() (found []audit.Finding, err error) {
	entries, err := fs.ReadDir(b.FS, eventsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	named := map[string]bool{}
	for _, s := range b.Segments {
		named[s.File.File] = true
	}
	for _, entry := range entries {
		if name := eventsDir + "/" + entry.Name(); strings.HasSuffix(name, ".ndjson") && !named[name] {
			found = append(
				found,
				audit.Finding{
					Check: audit.CheckFile, Place: name, Expected: "no events that the manifest does not name", Found: "such a file",
				},
			)
		}
	}
	return found, nil
}

// maxUnreadable is how many lines without an event Walk passes over. What has more of them is no history, and reading
// on would cost time and say nothing more.
const maxUnreadable = 1000

// Walk gives all events to take, in order, and what is wrong with the files to found. It reads no more of a segment
// than the manifest declares, and stops where a bundle is no history.
func (b *Bundle) Walk(take func([]audit.Event) error, found func(...audit.Finding)) error {
	foreign, err := b.foreign()
	if err != nil {
		return err
	}
	found(foreign...)
	var head [sha256.Size]byte
	var last int64
	unreadable := 0
	for _, s := range b.Segments {
		r, err := b.open(s)
		if errors.Is(err, fs.ErrNotExist) {
			found(s.differs("no such file")...)
			continue
		}
		if err != nil {
			return err
		}
		for next := s.First; err == nil; {
			var lines [][]byte
			if lines, err = r.lines(); len(lines) > 0 {
				events := make([]audit.Event, len(lines))
				audit.Spread(len(lines), func(i int) { events[i] = readLine(lines[i], b.Organization, next+int64(i)) })
				for i := range events {
					head, last = audit.Head(head, events[i].Hash), events[i].Sequence
					if events[i].Fault != "" {
						unreadable++
					}
				}
				next += int64(len(events))
				if err := take(events); err != nil {
					r.f.Close()
					return err
				}
			}
			if r.endless || unreadable > maxUnreadable {
				r.f.Close()
				found(s.differs(fmt.Sprintf(
					"a line of more than %d bytes, or more than %d lines without an event: nothing after them was read", maxLine,
					maxUnreadable,
				))...)
				return nil
			}
		}
		if !errors.Is(err, io.EOF) {
			r.f.Close()
			return fmt.Errorf("bundle: %s: %w", s.File.File, err)
		}
		found(r.end()...)
		if digest := hex.EncodeToString(head[:]); digest != s.HistorySHA256 || last != s.Last {
			found(audit.Finding{
				Check: audit.CheckHead, Place: s.File.File,
				Expected: fmt.Sprintf(
					"sequence %d at its end, and a history of SHA-256 %s up to there, by the manifest", s.Last, s.HistorySHA256,
				),
				Found: fmt.Sprintf("sequence %d and %s", last, digest),
			})
		}
	}
	return nil
}

// segmentReader reads a segment and hashes what it reads.
type segmentReader struct {
	Segment
	*bufio.Reader
	f       fs.File
	sum     hash.Hash
	read    int64
	left    int64 // lines that the manifest declares and that were not read
	more    bool  // the file goes on behind what the manifest declares
	endless bool  // a line is longer than maxLine; nothing after its beginning is read
}

// Bounds of one line, beyond anything that a ledger writes. Decoding takes much more memory than the text: a hundred
// bytes and more for each value in it, however short, so values are bounded beside bytes.
const (
	maxLine       = 8 << 20
	maxLineValues = 250_000
)

// checkLine refuses a line that is beyond these bounds. Commas and opening brackets in strings count as values do.
func checkLine(text []byte) error {
	if len(text) > maxLine {
		return fmt.Errorf("it has more than %d bytes", maxLine)
	}
	values := 0
	for _, separator := range []string{",", "[", "{"} {
		values += bytes.Count(text, []byte(separator))
	}
	if values > maxLineValues {
		return fmt.Errorf("it has more than %d values", maxLineValues)
	}
	return nil
}

func (b *Bundle) open(s Segment) (*segmentReader, error) {
	f, err := b.openRegular(s.File.File)
	if err != nil {
		return nil, err
	}
	r := &segmentReader{Segment: s, f: f, sum: sha256.New(), left: s.Last - s.First + 1}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("bundle %s: %w", b.path, err)
	}
	r.more = info.Size() > s.Bytes
	r.Reader = bufio.NewReaderSize(io.TeeReader(io.LimitReader(f, s.Bytes), r.sum), 1<<20)
	return r, nil
}

// openRegular opens a file of a bundle: neither a link, which may lead out of it, nor anything that never ends.
func (f files) openRegular(name string) (fs.File, error) {
	info, err := fs.Lstat(f.FS, name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	var file fs.File
	if err == nil {
		file, err = f.Open(name)
	}
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", f.path, err)
	}
	return file, nil
}

// maxFile is longer than a manifest or a trusted-keys file can be: one of the history of a billion events is shorter.
const maxFile = 16 << 20

// readRegular reads a whole file of a bundle but its events.
func (f files) readRegular(name string) ([]byte, error) {
	file, err := f.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	return text, nil
}

// lines reads a group of lines with their line feeds, and no more lines than the manifest declares; io.EOF comes with
// the last ones.
func (r *segmentReader) lines() (lines [][]byte, err error) {
	for size := 0; len(lines) < readGroup && size < readGroupBytes && err == nil && !r.endless; {
		if r.left == 0 {
			_, err = r.Peek(1)
			r.more = r.more || err == nil
			return lines, io.EOF
		}
		var line []byte
		if line, err = r.line(); len(line) > 0 {
			r.left--
			lines, size = append(lines, line), size+len(line)
		}
	}
	return lines, err
}

// line reads a line. Of one that is longer than maxLine it reads little more than that, which checkLine refuses.
func (r *segmentReader) line() (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		r.read += int64(len(part))
		line = append(line, part...)
		if r.endless = len(line) > maxLine; r.endless {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// end compares the whole file, after its last line, and closes it.
func (r *segmentReader) end() []audit.Finding {
	r.f.Close()
	if r.more {
		return r.differs(fmt.Sprintf(
			"more than that, or than the %d lines of its events: the rest was not read", r.Last-r.First+1,
		))
	}
	return r.compare(File{r.File.File, r.read, hex.EncodeToString(r.sum.Sum(nil))})
}

// Former reads the hashes of the events of a bundle, for a later audit to be held
// against them. A file that is not as the manifest says is an error.
func (b *Bundle) Former() audit.Former { return &former{Bundle: b} }

type former struct {
	*Bundle
	segment int // that is read next
	r       *segmentReader
	hashes  [][sha256.Size]byte // read ahead
}

// Organization is whose history it is.
func (f *former) Organization() domain.OrganizationID { return f.Manifest.Organization }

// Next is the hash of the next event; io.EOF after the last.
func (f *former) Next() (hash [sha256.Size]byte, err error) {
	for len(f.hashes) == 0 {
		if f.r == nil {
			if f.segment == len(f.Segments) {
				return hash, io.EOF
			}
			if f.r, err = f.open(f.Segments[f.segment]); err != nil {
				return hash, err
			}
			f.segment++
		}
		lines, err := f.r.lines()
		for _, line := range lines {
			var l struct {
				Hash string `json:"hash"`
			}
			err := checkLine(line)
			if err == nil {
				err = json.Unmarshal(line, &l)
			}
			if err != nil {
				return hash, fmt.Errorf("%s: a line that cannot be read: %w", f.r.File.File, err)
			}
			raw, err := hex.DecodeString(l.Hash)
			if err != nil || len(raw) != len(hash) {
				return hash, fmt.Errorf("%s: a line without a hash", f.r.File.File)
			}
			f.hashes = append(f.hashes, [sha256.Size]byte(raw))
		}
		if errors.Is(err, io.EOF) {
			if wrong := f.r.end(); wrong != nil {
				return hash, errors.New(wrong[0].String())
			}
			f.r = nil
		} else if err != nil {
			return hash, err
		}
	}
	hash, f.hashes = f.hashes[0], f.hashes[1:]
	return hash, nil
}
