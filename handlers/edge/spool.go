package edge

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"os"
	"sync"
	"time"

	"integrityledger/domain"
)

// Limits of an upload (contract sections 7 and 9).
const (
	// maxUploadOverhead is the number of bytes that metadata, boundaries and part headers may add to the file.
	maxUploadOverhead = 64 << 10
	// AnalysisPatience is the time allowed for the answer after the body has been read.
	AnalysisPatience = 90 * time.Second
	// KeepPatience is the part of AnalysisPatience that the store of kept bytes may take.
	KeepPatience = 25 * time.Second
)

// Spool holds uploaded bytes on disk while they are processed. Its files have no name, so none remain even if the
// process is killed. It is safe for concurrent use.
type Spool struct {
	Dir      string // empty: the system's directory for temporary files
	MaxBytes int64  // of all uploads together; 0 means 2 GiB

	mu   sync.Mutex
	used int64
	by   map[domain.OrganizationID]int64 // for organizations that use any
}

// take reserves room for an upload. An organization may hold at most as many bytes as remain free after it, so there is
// always room for another organization.
func (s *Spool) take(o domain.OrganizationID, bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[o]+bytes > cmp.Or(s.MaxBytes, 2<<30)-s.used-bytes {
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

// File returns an open file without a name.
func (s *Spool) File() (*os.File, error) {
	f, err := os.CreateTemp(s.Dir, "integrity-spool-*")
	if err != nil {
		return nil, fmt.Errorf(
			"spool: %w: %w",
			domain.Unavailable("The service cannot store an upload at the moment; send the request again."), err,
		)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("spool: %w", err)
	}
	return f, nil
}

// UploadBody is the body of an upload. The multipart reader's buffer of 4 KiB may already contain the beginning of the
// file.
type UploadBody struct {
	*pacedBody
	// around is the number of bytes that may still be read outside the file. It is bounded because the headers of parts
	// are held in memory.
	around int64
	InFile bool
}

func (b *UploadBody) Read(p []byte) (int, error) {
	if b.InFile {
		return b.pacedBody.Read(p)
	}
	if int64(len(p)) > b.around {
		if b.around == 0 {
			return 0, domain.Refuse(
				domain.PayloadTooLarge, "The parts other than the file may have at most %d bytes in total.", maxUploadOverhead,
			)
		}
		p = p[:b.around]
	}
	n, err := b.pacedBody.Read(p)
	b.around -= int64(n)
	return n, err
}

// admitUpload checks a body that the handler will read: 415, 411, 413. The room in the spool is released at the end of
// the request.
func (s *Edge) admitUpload(w http.ResponseWriter, r *http.Request) error {
	if !isMultipart(r.Header.Get("Content-Type")) || r.Header.Get("Content-Encoding") != "" {
		return domain.Refuse(
			domain.UnsupportedMediaType,
			"Send the body as multipart/form-data with the parts metadata and file, without Content-Encoding.",
		)
	}
	if r.ContentLength < 0 || r.Header.Get("Content-Length") == "" {
		return domain.Refuse(domain.LengthRequired, "Send the length of the body in Content-Length.")
	}
	if r.ContentLength > domain.MaxFileBytes+maxUploadOverhead {
		return TooLarge()
	}
	c, size := CallOf(r), r.ContentLength
	o := c.Access.Organization
	if err := s.Spool.take(o, size); err != nil {
		return err
	}
	c.over = append(c.over, func() { s.Spool.give(o, size) })
	c.ReceivedAt = s.Now()
	paced, err := s.pace(w, r, BodyFile)
	if err == nil {
		r.Body = &UploadBody{pacedBody: paced, around: maxUploadOverhead + 4<<10}
	}
	c.arriving = paced
	return err
}

func isMultipart(contentType string) bool {
	media, parameters, err := mime.ParseMediaType(contentType)
	return err == nil && media == "multipart/form-data" && parameters["boundary"] != ""
}

// TooLarge refuses a file that is too large.
func TooLarge() error {
	return domain.Refuse(domain.PayloadTooLarge, "The file may have at most %d bytes.", domain.MaxFileBytes)
}

// DiskWriter marks errors of the disk, so that a full disk is not mistaken for a broken body.
type DiskWriter struct{ *os.File }

func (w DiskWriter) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	if err != nil {
		err = fmt.Errorf(
			"spool: %w: %w",
			domain.Unavailable("The service cannot store an upload at the moment; send the request again."), err,
		)
	}
	return n, err
}
