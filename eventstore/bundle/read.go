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
			_, err = fs.ReadDir(archive, ".") // refuses names that are there twice
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
		Check: audit.CheckFile, Place: f.File, Expected: fmt.Sprintf("%d bytes with SHA-256 %s, by the manifest", f.Bytes, f.SHA256), Found: found,
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
			found = append(found, audit.Finding{Check: audit.CheckFile, Place: name, Expected: "no events that the manifest does not name", Found: "such a file"})
		}
	}
	return found, nil
}

// Walk gives all events to take, in order, and what is wrong with the files to found.
func (b *Bundle) Walk(take func([]audit.Event) error, found func(...audit.Finding)) error {
	foreign, err := b.foreign()
	if err != nil {
		return err
	}
	found(foreign...)
	var head [sha256.Size]byte
	var last int64
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
				}
				next += int64(len(events))
				if err := take(events); err != nil {
					r.f.Close()
					return err
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			r.f.Close()
			return fmt.Errorf("bundle: %s: %w", s.File.File, err)
		}
		found(r.end()...)
		if digest := hex.EncodeToString(head[:]); digest != s.HistorySHA256 || last != s.Last {
			found(audit.Finding{
				Check: audit.CheckHead, Place: s.File.File, Expected: fmt.Sprintf("sequence %d at its end, and a history of SHA-256 %s up to there, by the manifest", s.Last, s.HistorySHA256),
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
	f    fs.File
	sum  hash.Hash
	read int64
}

// Bounds of one line, beyond anything that a ledger writes. Decoding takes much more memory than the text: a hundred bytes
// and more for each value in it, however short, so values are bounded beside bytes.
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
	sum := sha256.New()
	return &segmentReader{Segment: s, Reader: bufio.NewReaderSize(io.TeeReader(f, sum), 1<<20), f: f, sum: sum}, nil
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

// maxFile is longer than a manifest or a trusted-keys file can be.
const maxFile = 64 << 20

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

// lines reads a group of lines with their line feeds; io.EOF comes with the last ones.
func (r *segmentReader) lines() (lines [][]byte, err error) {
	for size := 0; len(lines) < readGroup && size < readGroupBytes && err == nil; {
		var line []byte
		if line, err = r.line(); len(line) > 0 {
			lines, size = append(lines, line), size+len(line)
		}
	}
	return lines, err
}

// line reads a line. Of one that is longer than maxLine it keeps little more than that, which checkLine refuses.
func (r *segmentReader) line() (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		r.read += int64(len(part))
		if len(line) <= maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// end compares the whole file, after its last line, and closes it.
func (r *segmentReader) end() []audit.Finding {
	r.f.Close()
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
