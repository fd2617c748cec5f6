package edge

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// Bounds of a page of a list (contract section 7).
const (
	maxPageLimit  = 200
	PageLimit     = 50
	MaxPageOffset = 10_000
)

// Slice is which entries of a list are asked for, by their number.
type Slice struct{ Limit, Offset int }

func ReadPage(o *strictjson.Object) Slice {
	return Slice{int(Integer(o, "limit", 1, maxPageLimit, PageLimit)), int(Integer(o, "offset", 0, MaxPageOffset, 0))}
}

// ReadSHA256 reads a hash; nil if it is absent or wrong.
func ReadSHA256(o *strictjson.Object, presence strictjson.Presence) *[32]byte {
	text := o.String("sha256", presence)
	if !o.OK("sha256") {
		return nil
	}
	sum, ok := domain.ParseSHA256(text)
	if !ok {
		o.Problem("sha256", strictjson.CodeFormat, domain.SHA256Rule)
		return nil
	}
	return &sum
}

// OptionalHash reads the hash of a comparison, which may be asked for without one.
func OptionalHash(o *strictjson.Object) *[32]byte { return ReadSHA256(o, strictjson.Optional) }

func ParseInstant(text string) (at time.Time, ok bool) {
	normal, err := evidence.NormalizeTimestamp(text)
	if err == nil {
		at, err = time.Parse(time.RFC3339Nano, normal)
	}
	return at.UTC(), err == nil
}

// PathID reads an id of the path. A malformed id is the zero id, which is answered as an unknown one.
func PathID[ID any](r *http.Request, name string, parse func(string) (ID, error)) ID {
	id, _ := parse(Variable(r, name))
	return id
}

// Codes of field errors, beside those of strictjson.
const (
	CodeUnknownValue = "UNKNOWN"
	codeOtherList    = "DIFFERS"
)

// NewQuery reads the query of a request.
func NewQuery(r *http.Request) *strictjson.Object {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := strictjson.Query(values)
	if err != nil {
		q.Problem("", strictjson.CodeFormat, "the query is not well formed")
	}
	return q
}

// Judged reads a value, and refuses with everything that is wrong with it.
func Judged[Input any](o *strictjson.Object, read func(*strictjson.Object) Input) (Input, error) {
	input := read(o)
	return input, Invalid(o.Problems())
}

// Known reads a parameter that must be one of a few words. An absent parameter is empty.
func Known[Word ~string](o *strictjson.Object, name string, words ...Word) Word {
	return Word(o.Match(name, strictjson.Optional, func(text string) bool { return slices.Contains(words, Word(text)) },
		"must be one of %s", strings.Join(wire.Each(words, func(w Word) string { return string(w) }), ", ")))
}

func OptionalReference(o *strictjson.Object, name string) string {
	return o.Match(name, strictjson.Optional, domain.ValidReference, domain.ReferenceRule)
}

// Integer reads an optional integer.
func Integer(o *strictjson.Object, name string, least, most, absent int64) int64 {
	if !o.Has(name) {
		return absent
	}
	return o.Int(name, least, most, strictjson.Optional)
}

// Instant reads a time, nil if it is absent. Finer parts than microseconds are rounded up: no record has them, so a
// bound still separates records as it says.
func Instant(o *strictjson.Object, name string) *time.Time {
	text := o.String(name, strictjson.Optional)
	if !o.OK(name) {
		return nil
	}
	at, ok := ParseInstant(text)
	if !ok {
		o.Problem(
			name, strictjson.CodeFormat,
			"must be an RFC 3339 time such as 2026-11-20T14:03:00Z; write the + of an offset as %2B",
		)
		return nil
	}
	return new(at.Add(time.Microsecond - 1).Truncate(time.Microsecond))
}

// ReadLimit reads the number of entries that a page may have.
func ReadLimit(o *strictjson.Object) int { return int(Integer(o, "limit", 1, 1000, 100)) }

// A cursor is opaque to callers: it is what the last entry of the page before is ordered by.
func FormatCursor(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// Cursor reads the cursor after, whose text must be valid; "" if it is absent.
func Cursor(o *strictjson.Object, valid func(text string) bool) string {
	value := o.String("after", strictjson.Optional)
	if !o.OK("after") {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || !valid(string(text)) || FormatCursor(string(text)) != value {
		o.Problem("after", strictjson.CodeFormat, "must be the nextCursor of an earlier page")
	}
	return string(text)
}

// List names a list by all that it was asked for, except how much of it: the text that its cursors begin with.
func List(asked ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(asked, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// ListCursor reads a cursor that FormatListCursor has written for the same list.
func ListCursor(o *strictjson.Object, list string, valid func(place string) bool) {
	Cursor(o, func(text string) bool {
		of, place, _ := strings.Cut(text, " ")
		if !valid(place) {
			return false
		}
		if of != list && len(o.Wrong()) == 0 {
			o.Problem(
				"after", codeOtherList,
				"belongs to a list that was asked for otherwise: send it with the parameters of the page that gave it, except "+
					"limit, or begin again without it",
			)
		}
		return true
	})
}

func FormatListCursor(list, place string) string { return FormatCursor(list + " " + place) }

// Paging is which page of a list is asked for: how many entries, and after which place.
type Paging[Place any] struct {
	Limit  int
	After  Place
	cursor string
}

// ReadPaging reads a limit, and a cursor whose text parse knows.
func ReadPaging[Place any](o *strictjson.Object, parse func(string) (Place, error)) (asked Paging[Place]) {
	asked.Limit = ReadLimit(o)
	asked.cursor = Cursor(o, func(text string) bool {
		var err error
		asked.After, err = parse(text)
		return err == nil
	})
	return asked
}

// NextPage leads on from the last entry of a page, or where the page is empty, from where it began.
func NextPage[Place, Entry any](asked Paging[Place], page []Entry, more bool, of func(Entry) string) wire.Next {
	next := wire.Next{HasMore: more}
	if asked.cursor != "" {
		next.NextCursor = new(FormatCursor(asked.cursor))
	}
	if len(page) > 0 {
		next.NextCursor = new(FormatCursor(of(page[len(page)-1])))
	}
	return next
}

// BoundedPage leads on from where a bounded search has stopped, if it has.
func BoundedPage(stopped *string) wire.Next {
	return wire.Next{NextCursor: stopped, HasMore: stopped != nil}
}

const (
	// sequenceHeader tells, on the answer to every write, the organization's sequence after it: reading after that
	// sequence shows the write.
	sequenceHeader = "Integrity-Sequence"
	// readAfterHeader names the least sequence of the organization from which a caller wants a reading request
	// answered. A replica that has replayed it may answer then, even where the primary is further; without the header
	// every answer shows all that was committed before the request.
	readAfterHeader = "Integrity-Read-After"
)

// readAfter notes the caller's readAfterHeader, if the request has one.
func readAfter(r *http.Request) error {
	values := r.Header.Values(readAfterHeader)
	if len(values) == 0 {
		return nil
	}
	sequence, err := strconv.ParseInt(values[0], 10, 64)
	if len(values) != 1 || err != nil || strconv.FormatInt(sequence, 10) != values[0] || sequence < 0 ||
		sequence > strictjson.MaxInteger {
		return domain.InvalidMember("", strictjson.CodeInteger,
			readAfterHeader+" must be one integer from 0 to 9007199254740991 in plain digits: the "+
				sequenceHeader+" of an earlier answer, or a sequence of the feed")
	}
	CallOf(r).Access.ReadAfter = &sequence
	return nil
}

// ReadPublicID reads what names a record or a certificate.
func ReadPublicID(o *strictjson.Object) domain.PublicID {
	return PublicID(o.String("publicId", strictjson.Required))
}

// PublicID reads a public id. A malformed one is the zero one, which is answered as an unknown one.
func PublicID(text string) domain.PublicID {
	if id, ok := domain.ParsePublicID(text); ok {
		return id
	}
	return domain.PublicID{}
}
