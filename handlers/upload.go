package handlers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

// Limits of an upload (contract sections 7 and 9).
const (
	// maxUploadOverhead is what metadata, boundaries and part headers may add to the file.
	maxUploadOverhead = 64 << 10
	// analysisPatience is how long an answer may take once the body is there.
	analysisPatience = 90 * time.Second
	// keepPatience is how long the store of kept bytes may take of that.
	keepPatience = 25 * time.Second
)

// Spool holds uploaded bytes on disk while they are looked at. The files have no name, so that nothing is left behind,
// however the process ends. It is safe for concurrent use.
type Spool struct {
	Dir  string // empty: the system's directory for temporary files
	Most int64  // bytes of all uploads at once; 0 means 2 GiB

	mu   sync.Mutex
	used int64
	by   map[domain.OrganizationID]int64 // those that use any
}

// take reserves room for an upload. One organization may hold as much as it leaves free, so that whatever it and others
// hold, a further organization gets in.
func (s *Spool) take(o domain.OrganizationID, bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[o]+bytes > cmp.Or(s.Most, 2<<30)-s.used-bytes {
		return domain.Unavailable("Too many bytes are being uploaded at the moment; send the request again.")
	}
	if s.by == nil {
		s.by = map[domain.OrganizationID]int64{}
	}
	s.used += bytes
	s.by[o] += bytes
	return nil
}

func (s *Spool) give(o domain.OrganizationID, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= bytes
	if s.by[o] -= bytes; s.by[o] == 0 {
		delete(s.by, o)
	}
}

// file is an open file without a name.
func (s *Spool) file() (*os.File, error) {
	f, err := os.CreateTemp(s.Dir, "integrity-spool-*")
	if err != nil {
		return nil, fmt.Errorf("spool: %w: %w", domain.Unavailable("An upload cannot be taken in at the moment; send the request again."), err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("spool: %w", err)
	}
	return f, nil
}

// uploadBody is the body of an upload. The reader's buffer of 4 KiB may hold the beginning of the file already.
type uploadBody struct {
	*pacedBody
	// around is how much may still be read beside the file, for a part's headers are held in memory.
	around int64
	inFile bool
}

func (b *uploadBody) Read(p []byte) (int, error) {
	if b.inFile {
		return b.pacedBody.Read(p)
	}
	if int64(len(p)) > b.around {
		if b.around == 0 {
			return 0, domain.Refuse(domain.PayloadTooLarge, "All that is beside the file may have at most %d bytes.", maxUploadOverhead)
		}
		p = p[:b.around]
	}
	n, err := b.pacedBody.Read(p)
	b.around -= int64(n)
	return n, err
}

// admitUpload takes the checks of a body that the handler will read: 415, 411, 413. The room in the spool is given back
// when the request is over.
func (s *server) admitUpload(w http.ResponseWriter, r *http.Request) error {
	if !isMultipart(r.Header.Get("Content-Type")) || r.Header.Get("Content-Encoding") != "" {
		return domain.Refuse(domain.UnsupportedMediaType, "Send the body as multipart/form-data with the parts metadata and file, without Content-Encoding.")
	}
	if r.ContentLength < 0 || r.Header.Get("Content-Length") == "" {
		return domain.Refuse(domain.LengthRequired, "Send the length of the body in Content-Length.")
	}
	if r.ContentLength > domain.MaxFileBytes+maxUploadOverhead {
		return tooLarge()
	}
	c, size := callOf(r), r.ContentLength
	o := c.access.Organization
	if err := s.Spool.take(o, size); err != nil {
		return err
	}
	c.over = append(c.over, func() { s.Spool.give(o, size) })
	c.receivedAt = s.Now()
	paced, err := s.pace(w, r, bodyFile)
	if err == nil {
		r.Body = &uploadBody{pacedBody: paced, around: maxUploadOverhead + 4<<10}
	}
	c.arriving = paced
	return err
}

func isMultipart(contentType string) bool {
	media, parameters, err := mime.ParseMediaType(contentType)
	return err == nil && media == "multipart/form-data" && parameters["boundary"] != ""
}

// upload is a body of two parts, metadata and file, which is nil where the bytes were only hashed.
type upload struct {
	registeredContent
	metadata strictjson.Value
	text     []byte // where the bytes were only hashed, and could be a manifest's
}

// readUpload takes the body in. keep says whether the bytes go to the spool, or are only hashed. The caller closes the
// file.
func (s *server) readUpload(r *http.Request, keep bool) (u upload, err error) {
	body := r.Body.(*uploadBody) // of admitUpload
	defer func() {
		if err == nil { // what follows the closing boundary; without that end the body is not there
			if _, err = io.Copy(io.Discard, body); err != nil {
				err = broken(err)
			}
		}
		if err == nil { // the body may have taken minutes
			body.arrived()
			callOf(r).arrived = true
			err = s.judgeAgain(r)
		}
		if err != nil && u.file != nil {
			u.file.Close()
		}
	}()
	reader, err := r.MultipartReader()
	if err != nil {
		return u, broken(err)
	}
	problems := newQuery(r).Problems()
	seen := map[string]bool{}
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u, broken(err)
		}
		name := part.FormName()
		switch {
		case name != "metadata" && name != "file":
			return u, domain.Invalid(append(problems, domain.FieldError{Pointer: pointer(name), Code: strictjson.CodeUnknown, Message: "must be metadata or file: there is no such part"}))
		case seen[name]:
			return u, domain.Invalid(append(problems, domain.FieldError{Pointer: "/" + name, Code: strictjson.CodeDuplicate, Message: "the part appears more than once"}))
		case name == "metadata":
			u.metadata, err = readMetadata(r.Context(), part)
		default:
			body.inFile = true
			err = s.readFile(&u, part, keep)
			body.inFile = false
		}
		if err != nil {
			return u, err
		}
		seen[name] = true
	}
	for _, name := range []string{"metadata", "file"} {
		if !seen[name] {
			problems = append(problems, domain.FieldError{Pointer: "/" + name, Code: strictjson.CodeRequired, Message: "the part is required"})
		}
	}
	return u, invalid(problems)
}

// pointer is a JSON pointer to a name that the caller made up.
func pointer(name string) string {
	if name == "" || len(name) > 100 || !utf8.ValidString(name) {
		return ""
	}
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// broken is a body that is no multipart/form-data, or ends too early, came too slowly, or has too much beside its file.
func broken(err error) error {
	if refusal(err) != nil {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return tooSlow()
	}
	return invalidField("", strictjson.CodeFormat, "the body is not well-formed multipart/form-data, or ended before its closing boundary")
}

func readMetadata(ctx context.Context, part *multipart.Part) (strictjson.Value, error) {
	text, err := io.ReadAll(io.LimitReader(part, maxBody+1))
	if err != nil {
		return strictjson.Value{}, broken(err)
	}
	if len(text) > maxBody {
		return strictjson.Value{}, domain.Refuse(domain.PayloadTooLarge, "The part metadata may have at most %d bytes.", maxBody)
	}
	return parse(ctx, text, "The part metadata")
}

// readFile takes the part with the bytes in, hashing them on the way.
func (s *server) readFile(u *upload, part *multipart.Part, keep bool) error {
	u.Kind, u.FileName, u.MediaType = domain.FileContent, part.FileName(), declaredType(part.Header.Get("Content-Type"))
	if !utf8.ValidString(u.FileName) || utf8.RuneCountInString(u.FileName) > domain.MaxFileName || strings.ContainsFunc(u.FileName, unicode.IsControl) {
		return invalidField("/file", strictjson.CodeFormat, "the file's name must be at most 255 characters of UTF-8 without controls")
	}
	sum, from := sha256.New(), io.LimitReader(part, domain.MaxFileBytes+1)
	to := io.Writer(sum)
	var err error
	if keep {
		if u.file, err = s.Spool.file(); err != nil {
			return err
		}
		to = io.MultiWriter(sum, diskWriter{u.file})
	} else if u.text, err = io.ReadAll(io.LimitReader(from, domain.MaxManifestBytes+1)); err != nil {
		return broken(err)
	}
	sum.Write(u.text)
	u.SizeBytes, err = io.Copy(to, from)
	u.SizeBytes += int64(len(u.text))
	if len(u.text) > domain.MaxManifestBytes {
		u.text = nil
	}
	if err != nil {
		return broken(err)
	}
	if u.SizeBytes > domain.MaxFileBytes {
		return tooLarge()
	}
	u.SHA256 = [sha256.Size]byte(sum.Sum(nil))
	return nil
}

func tooLarge() error {
	return domain.Refuse(domain.PayloadTooLarge, "The file may have at most %d bytes.", domain.MaxFileBytes)
}

// diskWriter tells a disk that is full from a body that is broken.
type diskWriter struct{ *os.File }

func (w diskWriter) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	if err != nil {
		err = fmt.Errorf("spool: %w: %w", domain.Unavailable("An upload cannot be taken in at the moment; send the request again."), err)
	}
	return n, err
}

// declaredType is the media type of a part. What clients send when they know nothing is no declaration.
func declaredType(header string) string {
	media, _, err := mime.ParseMediaType(header)
	if err != nil || media == "application/octet-stream" || !domain.ValidMediaType(media) {
		return ""
	}
	return media
}

// spoolText puts bytes that came in another form into the spool.
func (s *server) spoolText(text []byte) (*os.File, error) {
	f, err := s.Spool.file()
	if err != nil {
		return nil, err
	}
	if _, err := (diskWriter{f}).Write(text); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
