package handlers

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

// bodyRule says what a request may carry.
type bodyRule int

const (
	bodyNone     bodyRule = iota // whatever is there is not read
	bodyRequired                 // JSON, Content-Length required
	bodyOptional                 // nothing, or JSON
	bodyBatch                    // bodyRequired, with room for many
	bodyManifest                 // bodyRequired, with room for a file manifest
	bodyContent                  // JSON with room for a text, or multipart/form-data, which the handler reads
	bodyFile                     // multipart/form-data, which the handler reads
	bodyMessage                  // JSON of MCP; its length need not be announced
	bodyForm                     // of a page, Content-Length required
)

const (
	maxBody     = 8 << 10
	maxBatch    = 4 << 20
	maxContent  = 4 << 20
	maxForm     = 1 << 10
	maxMessage  = 64 << 10
	maxDepth    = 32
	bodyTimeout = 10 * time.Second
)

// limit is the most bytes of a body.
func (rule bodyRule) limit() int64 {
	switch rule {
	case bodyBatch:
		return maxBatch
	case bodyContent:
		return maxContent
	case bodyManifest:
		return domain.MaxManifestBytes
	case bodyForm:
		return maxForm
	case bodyMessage:
		return maxMessage
	default:
		return maxBody
	}
}

// mediaType is what the body must be.
func (rule bodyRule) mediaType() string {
	if rule == bodyForm {
		return "application/x-www-form-urlencoded"
	}
	return jsonType
}

// readBody takes the body in: 415, 411, 413 in this order. The deadline is
// the connection's, so it follows the real clock; it is lifted again, because the
// server watches the connection for a caller who goes away.
func (s *server) readBody(w http.ResponseWriter, r *http.Request, rule bodyRule) error {
	c := callOf(r)
	if rule == bodyNone || rule == bodyOptional && r.ContentLength == 0 {
		c.receivedAt = s.Now()
		return nil
	}
	if rule == bodyFile || rule == bodyContent && isMultipart(r.Header.Get("Content-Type")) {
		return s.admitUpload(w, r)
	}
	if !isMedia(r.Header.Get("Content-Type"), rule.mediaType()) || r.Header.Get("Content-Encoding") != "" {
		return domain.Refuse(domain.UnsupportedMediaType, "Send the body as %s in UTF-8, without Content-Encoding.", rule.mediaType())
	}
	if rule != bodyMessage && (r.ContentLength < 0 || r.Header.Get("Content-Length") == "") {
		return domain.Refuse(domain.LengthRequired, "Send the length of the body in Content-Length.")
	}
	if limit := rule.limit(); r.ContentLength > limit {
		return domain.Refuse(domain.PayloadTooLarge, "The body may have at most %d bytes.", limit)
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return domain.Refuse(domain.MalformedJSON, "The body did not arrive.")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, rule.limit()+1))
	if int64(len(body)) > rule.limit() {
		return domain.Refuse(domain.PayloadTooLarge, "The body may have at most %d bytes.", rule.limit())
	}
	if err != nil || r.ContentLength >= 0 && int64(len(body)) != r.ContentLength {
		return domain.Refuse(domain.MalformedJSON, "The body did not arrive in full within %d seconds.", int(bodyTimeout.Seconds()))
	}
	c.receivedAt = s.Now()
	c.body = body
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return domain.Refuse(domain.MalformedJSON, "The connection was lost.")
	}
	return nil
}

func isMedia(contentType, want string) bool {
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || media != want {
		return false
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}

// decode reads the members of the body and refuses with everything that is wrong
// with them, and with the query, at once. An absent optional body has no members.
func decode(r *http.Request, members func(*strictjson.Object)) error {
	problems := newQuery(r).Problems()
	if body := callOf(r).body; body != nil {
		value, err := strictjson.Parse(body, maxDepth)
		if err != nil {
			return domain.Refuse(domain.MalformedJSON, "The body is not one JSON value: %s.", err)
		}
		object := strictjson.Decode(value)
		members(object)
		problems = append(problems, object.Problems()...)
	}
	if len(problems) > 0 {
		return domain.Invalid(problems)
	}
	return nil
}
