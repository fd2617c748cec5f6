package bundle

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/say"
)

// Bundle is a complete bundle opened for reading.
type Bundle struct {
	Manifest
	files
}

// files holds the files of a bundle and their path.
type files struct {
	fs.FS
	path string
}

// Path returns the directory or the zip file.
func (f files) Path() string { return f.path }

func filesIn(dir string) files { return files{os.DirFS(dir), dir} }

// Open reads the manifest of a bundle, which is a directory or a zip file. It does not read the other files. Close
// closes a zip file.
func Open(path string) (*Bundle, error) {
	b := &Bundle{files: filesIn(path)}
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() {
		var archive *zip.ReadCloser
		if archive, err = zip.OpenReader(path); err == nil {
			b.FS = archive
			if err = checkArchive(&archive.Reader, info.Size()); err == nil {
				_, err = fs.ReadDir(archive, ".") // refuses duplicate names
			}
		}
	}
	if err != nil {
		err = say.Errorf("bundle %s: %w", path, err)
	}
	if err == nil {
		b.Manifest, err = b.readManifest()
	}
	if err == nil && !b.Complete {
		err = say.Errorf("%s: %w", path, ErrIncomplete)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Limits of a zip file, well above anything that an export writes. Every event has a hash and an id, which cannot be
// compressed, so a bundle never unpacks to much more than its size. Names are limited because the zip reader creates a
// directory for every part of a name, which could take more memory than the file.
const (
	maxExpansion  = 200 // times the size of the zip file
	expansionFrom = 16 << 20
	maxName       = 255
	maxFolders    = 4 // a bundle has one; file managers add some
)

// checkArchive refuses a zip file beyond these limits, before anything is unpacked.
func checkArchive(archive *zip.Reader, size int64) error {
	most := uint64(max(expansionFrom, size*maxExpansion))
	var unpacked uint64
	for _, f := range archive.File {
		if len(f.Name) > maxName {
			return say.Errorf(
				"a file in it has a name of %d bytes, more than the %d that a bundle may have", len(f.Name), maxName,
			)
		}
		if folders := strings.Count(f.Name, "/"); folders > maxFolders {
			return say.Errorf("a file in it lies in %d folders, more than the %d that a bundle may have", folders, maxFolders)
		}
		if f.UncompressedSize64 > most-unpacked {
			return say.Errorf("it unpacks to more than %d bytes, which no bundle of %d bytes does", most, size)
		}
		unpacked += f.UncompressedSize64
	}
	return nil
}

// Close closes the files that Open has opened.
func (b *Bundle) Close() {
	if archive, ok := b.FS.(io.Closer); ok {
		_ = archive.Close() // it was only read
	}
}

// TrustedKeys returns the trusted-keys file of the bundle, and the findings about it.
func (b *Bundle) TrustedKeys() ([]byte, []audit.Finding, error) {
	return b.read(b.Manifest.TrustedKeys)
}

// Checkpoint returns the checkpoint of the transparency log, nil if the bundle has none, and the findings about the
// file.
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
	return text, file.Compare(Describe(file.File, text)), nil
}

// Compare compares a file that was read with its entry in the manifest.
func (f File) Compare(found File) []audit.Finding {
	if found == f {
		return nil
	}
	return f.differs(say.Sentencef("%d bytes with %s", found.Bytes, found.SHA256))
}

func (f File) differs(found say.Sentence) []audit.Finding {
	return []audit.Finding{{
		Check: audit.CheckFile, Place: f.File,
		Expected: say.Sentencef("%d bytes with SHA-256 %s, by the manifest", f.Bytes, f.SHA256), Found: found,
	}}
}

// Limits of a group of lines.
const (
	readGroup      = 2000
	readGroupBytes = 4 << 20
)

// foreign finds event files that the manifest does not name. A reader could take them for part of the history.
func (b *Bundle) foreign() (found []audit.Finding, err error) {
	entries, err := fs.ReadDir(b.FS, eventsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, say.Errorf("bundle: %w", err)
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
					Check: audit.CheckFile, Place: name,
					Expected: say.Sentencef("no events that the manifest does not name"), Found: say.Sentencef("such a file"),
				},
			)
		}
	}
	return found, nil
}

// maxUnreadable is the number of unreadable lines that Walk skips. A bundle with more of them is not a history, and
// reading on would cost time without showing anything new.
const maxUnreadable = 1000

// Walk calls take with all events, in order, and found with the findings about the files. It reads no more of a segment
// than the manifest declares, and stops if the bundle is not a history.
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
			found(s.differs(say.Sentencef("no such file"))...)
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
					if events[i].Fault.Format != "" {
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
				found(s.differs(say.Sentencef(
					"a line of more than %d bytes, or more than %d lines without an event: nothing after them was read", maxLine,
					maxUnreadable,
				))...)
				return nil
			}
		}
		if !errors.Is(err, io.EOF) {
			r.f.Close()
			return say.Errorf("bundle: %s: %w", s.File.File, err)
		}
		found(r.end()...)
		if digest := hex.EncodeToString(head[:]); digest != s.HistorySHA256 || last != s.Last {
			found(audit.Finding{
				Check: audit.CheckHead, Place: s.File.File,
				Expected: say.Sentencef(
					"sequence %d at its end, and a history of SHA-256 %s up to there, by the manifest", s.Last, s.HistorySHA256,
				),
				Found: say.Sentencef("sequence %d and %s", last, digest),
			})
		}
	}
	return nil
}

// segmentReader reads a segment and hashes the bytes read.
type segmentReader struct {
	Segment
	*bufio.Reader
	f       fs.File
	sum     hash.Hash
	read    int64
	left    int64 // declared lines that were not read yet
	more    bool  // the file is longer than declared
	endless bool  // a line is longer than maxLine; the rest is not read
}

// Limits of one line, well above anything that a ledger writes. Decoding takes much more memory than the text, 100
// bytes and more for each value, however short. So the number of values is limited, too.
const (
	maxLine       = 8 << 20
	maxLineValues = 250_000
)

// checkLine refuses a line beyond these limits. Commas and opening brackets in strings also count as values.
func checkLine(text []byte) error {
	if len(text) > maxLine {
		return say.Errorf("it has more than %d bytes", maxLine)
	}
	values := 0
	for _, separator := range []string{",", "[", "{"} {
		values += bytes.Count(text, []byte(separator))
	}
	if values > maxLineValues {
		return say.Errorf("it has more than %d values", maxLineValues)
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
		return nil, say.Errorf("bundle %s: %w", b.path, err)
	}
	r.more = info.Size() > s.Bytes
	r.Reader = bufio.NewReaderSize(io.TeeReader(io.LimitReader(f, s.Bytes), r.sum), 1<<20)
	return r, nil
}

// openRegular opens a regular file of a bundle. Links may lead out of the bundle, and other files may never end.
func (f files) openRegular(name string) (fs.File, error) {
	info, err := fs.Lstat(f.FS, name)
	if err == nil && !info.Mode().IsRegular() {
		err = say.Errorf("%s is no regular file", name)
	}
	var file fs.File
	if err == nil {
		file, err = f.Open(name)
	}
	if err != nil {
		return nil, say.Errorf("bundle %s: %w", f.path, err)
	}
	return file, nil
}

// maxFile is larger than any manifest, even of a billion events, and any trusted-keys file.
const maxFile = 16 << 20

// readRegular reads a whole file of a bundle other than its events.
func (f files) readRegular(name string) ([]byte, error) {
	file, err := f.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = say.Errorf("%s has more than %d bytes", name, maxFile)
	}
	if err != nil {
		return nil, say.Errorf("bundle: %w", err)
	}
	return text, nil
}

// lines reads a group of lines with their line feeds, at most the number that the manifest declares. It returns io.EOF
// with the last ones.
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

// line reads a line. If it is longer than maxLine, line reads only little more than that, and checkLine refuses it.
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

// end closes the file after its last line and compares it with the manifest.
func (r *segmentReader) end() []audit.Finding {
	r.f.Close()
	if r.more {
		return r.differs(say.Sentencef(
			"more than that, or than the %d lines of its events: the rest was not read", r.Last-r.First+1,
		))
	}
	return r.Compare(File{r.File.File, r.read, hex.EncodeToString(r.sum.Sum(nil))})
}

// Former reads the hashes of a bundle's events, so that a later audit can be compared with them. It returns an error if
// a file differs from the manifest.
func (b *Bundle) Former() audit.Former { return &former{Bundle: b} }

type former struct {
	*Bundle
	segment int // the next to read
	r       *segmentReader
	hashes  [][sha256.Size]byte // read ahead
}

// Organization returns the organization of the history.
func (f *former) Organization() domain.OrganizationID { return f.Manifest.Organization }

// Next returns the hash of the next event, or io.EOF after the last.
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
				return hash, say.Errorf("%s: a line that cannot be read: %w", f.r.File.File, err)
			}
			raw, err := hex.DecodeString(l.Hash)
			if err != nil || len(raw) != len(hash) {
				return hash, say.Errorf("%s: a line without a hash", f.r.File.File)
			}
			f.hashes = append(f.hashes, [sha256.Size]byte(raw))
		}
		if errors.Is(err, io.EOF) {
			if wrong := f.r.end(); wrong != nil {
				return hash, say.Errorf("%s", wrong[0].Said())
			}
			f.r = nil
		} else if err != nil {
			return hash, err
		}
	}
	hash, f.hashes = f.hashes[0], f.hashes[1:]
	return hash, nil
}
