package action

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
)

// upload is a body with two parts, metadata and file. The file is nil if the bytes were only hashed.
type upload struct {
	RegisteredContent
	metadata strictjson.Value
	text     []byte // the bytes, if they were only hashed and are short enough for a manifest
}

// readUpload reads the body. keep says whether the bytes go to the spool or are only hashed. The caller must close the
// file.
func (s *Artifacts) readUpload(r *http.Request, keep bool) (u upload, err error) {
	body := r.Body.(*edge.UploadBody) // of admitUpload
	u.RegisteredContent = contentFor(r)
	defer func() {
		if err == nil { // the body must be read to its end, beyond the closing boundary
			if _, err = io.Copy(io.Discard, body); err != nil {
				err = broken(err)
			}
		}
		if err == nil { // the body may have taken minutes to arrive
			body.Arrived()
			edge.CallOf(r).Arrived = true
			err = s.JudgeAgain(r.Context())
		}
		if err != nil && u.file != nil {
			u.file.Close()
		}
	}()
	reader, err := r.MultipartReader()
	if err != nil {
		return u, broken(err)
	}
	problems := edge.NewQuery(r).Problems()
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
			return u, domain.Invalid(append(
				problems,
				domain.FieldError{
					Pointer: pointer(name), Code: strictjson.CodeUnknown, Message: "must be metadata or file: there is no such part",
				},
			))
		case seen[name]:
			return u, domain.Invalid(append(
				problems,
				domain.FieldError{Pointer: "/" + name, Code: strictjson.CodeDuplicate, Message: "the part appears more than once"},
			))
		case name == "metadata":
			u.metadata, err = readMetadata(r.Context(), part)
		default:
			body.InFile = true
			err = s.readFile(&u, part, keep)
			body.InFile = false
		}
		if err != nil {
			return u, err
		}
		seen[name] = true
	}
	for _, name := range []string{"metadata", "file"} {
		if !seen[name] {
			problems = append(
				problems, domain.FieldError{Pointer: "/" + name, Code: strictjson.CodeRequired, Message: "the part is required"},
			)
		}
	}
	return u, edge.Invalid(problems)
}

// pointer returns the JSON pointer of a name that the caller chose.
func pointer(name string) string {
	if name == "" || len(name) > 100 || !utf8.ValidString(name) {
		return ""
	}
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// broken returns the refusal of a body that is not multipart/form-data, ends too early, arrives too slowly, or has too
// much outside its file.
func broken(err error) error {
	if edge.Refusal(err) != nil {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return edge.TooSlow()
	}
	return domain.InvalidMember(
		"", strictjson.CodeFormat, "the body is not well-formed multipart/form-data, or ended before its closing boundary",
	)
}

func readMetadata(ctx context.Context, part *multipart.Part) (strictjson.Value, error) {
	text, err := io.ReadAll(io.LimitReader(part, edge.MaxBody+1))
	if err != nil {
		return strictjson.Value{}, broken(err)
	}
	if len(text) > edge.MaxBody {
		return strictjson.Value{}, domain.Refuse(
			domain.PayloadTooLarge, "The part metadata may have at most %d bytes.", edge.MaxBody,
		)
	}
	return edge.Parse(ctx, text, "The part metadata")
}

// readFile reads the part with the bytes and hashes them on the way.
func (s *Artifacts) readFile(u *upload, part *multipart.Part, keep bool) error {
	u.Kind, u.FileName, u.MediaType = domain.FileContent, part.FileName(), declaredType(part.Header.Get("Content-Type"))
	if !utf8.ValidString(u.FileName) || utf8.RuneCountInString(u.FileName) > domain.MaxFileName ||
		strings.ContainsFunc(u.FileName, unicode.IsControl) {
		return domain.InvalidMember(
			"/file", strictjson.CodeFormat, "the file's name must be at most 255 characters of UTF-8 without controls",
		)
	}
	sum, from := sha256.New(), io.LimitReader(part, domain.MaxFileBytes+1)
	to := io.Writer(sum)
	var err error
	if keep {
		if u.file, err = s.Spool.File(); err != nil {
			return err
		}
		to = io.MultiWriter(sum, edge.DiskWriter{File: u.file})
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
		return edge.TooLarge()
	}
	u.SHA256 = [sha256.Size]byte(sum.Sum(nil))
	return nil
}

// declaredType returns the media type of a part. application/octet-stream, which clients send for unknown types, is no
// declaration.
func declaredType(header string) string {
	media, _, err := mime.ParseMediaType(header)
	if err != nil || media == "application/octet-stream" || !domain.ValidMediaType(media) {
		return ""
	}
	return media
}

// spoolText writes bytes that did not arrive as a file to the spool.
func (s *Artifacts) spoolText(text []byte) (*os.File, error) {
	f, err := s.Spool.File()
	if err != nil {
		return nil, err
	}
	if _, err := (edge.DiskWriter{File: f}).Write(text); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
