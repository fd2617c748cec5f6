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

// Slice says which entries of a list are wanted, by their number.
type Slice struct{ Limit, Offset int }

func ReadPage(o *strictjson.Object) Slice {
	return Slice{int(Integer(o, "limit", 1, maxPageLimit, PageLimit)), int(Integer(o, "offset", 0, MaxPageOffset, 0))}
}

// ReadSHA256 reads a hash; it returns nil if the hash is absent or malformed.
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

// OptionalHash reads the hash of a comparison, which may be absent.
func OptionalHash(o *strictjson.Object) *[32]byte { return ReadSHA256(o, strictjson.Optional) }

// ParseInstant parses an RFC 3339 time in any spelling that declarations accept.
func ParseInstant(text string) (at time.Time, ok bool) {
	normal, err := evidence.NormalizeTimestamp(text)
	if err == nil {
		at, err = time.Parse(time.RFC3339Nano, normal)
	}
	return at.UTC(), err == nil
}

// PathID reads an id in the path. A malformed id becomes the zero id, which is then answered like an unknown one.
func PathID[ID any](r *http.Request, name string, parse func(string) (ID, error)) ID {
	id, _ := parse(Variable(r, name))
	return id
}

// Codes of field errors, in addition to the codes of strictjson.
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

// Judged reads a value, or refuses with all of its problems.
func Judged[Input any](o *strictjson.Object, read func(*strictjson.Object) Input) (Input, error) {
	input := read(o)
	return input, Invalid(o.Problems())
}

// Known reads an optional parameter that must be one of a few words. It returns an empty word if the parameter is
// absent.
func Known[Word ~string](o *strictjson.Object, name string, words ...Word) Word {
	return Word(o.Match(name, strictjson.Optional, func(text string) bool { return slices.Contains(words, Word(text)) },
		"must be one of %s", strings.Join(wire.Each(words, func(w Word) string { return string(w) }), ", ")))
}

func OptionalReference(o *strictjson.Object, name string) string {
	return o.Match(name, strictjson.Optional, domain.ValidReference, domain.ReferenceRule)
}

// Integer reads an optional integer between least and most.
func Integer(o *strictjson.Object, name string, least, most, absent int64) int64 {
	if !o.Has(name) {
		return absent
	}
	return o.Int(name, least, most, strictjson.Optional)
}

// Instant reads a time; it returns nil if the time is absent. Fractions of a microsecond are rounded up: no record has
// them, so the bound still separates the same records.
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

// ReadLimit reads the largest number of entries on a page.
func ReadLimit(o *strictjson.Object) int { return int(Integer(o, "limit", 1, 1000, 100)) }

// FormatCursor makes a cursor of the sort key of the last entry on a page. Cursors are opaque to callers.
func FormatCursor(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// Cursor reads the parameter after, whose text must be valid; it returns "" if the parameter is absent.
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

// List names a list by every parameter of its question except its size and place. Cursors of the list begin with this
// name.
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
				"belongs to another list: send it with the parameters of the page that returned it (only limit may differ), or "+
					"start again without it",
			)
		}
		return true
	})
}

// FormatListCursor makes a cursor for a place in a list.
func FormatListCursor(list, place string) string { return FormatCursor(list + " " + place) }

// Paging says which page of a list is wanted: the number of entries, and the place after which they begin.
type Paging[Place any] struct {
	Limit  int
	After  Place
	cursor string
}

// ReadPaging reads a limit, and a cursor whose text parse accepts.
func ReadPaging[Place any](o *strictjson.Object, parse func(string) (Place, error)) (asked Paging[Place]) {
	asked.Limit = ReadLimit(o)
	asked.cursor = Cursor(o, func(text string) bool {
		var err error
		asked.After, err = parse(text)
		return err == nil
	})
	return asked
}

// NextPage continues after the last entry of a page, or after the start of the page if it is empty.
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

// BoundedPage continues after the place at which a bounded search stopped, if it did.
func BoundedPage(stopped *string) wire.Next {
	return wire.Next{NextCursor: stopped, HasMore: stopped != nil}
}

const (
	// sequenceHeader is on the answer to every write: the organization's sequence after the write. A read after that
	// sequence shows the write.
	sequenceHeader = "Integrity-Sequence"
	// readAfterHeader names the lowest sequence of the organization that the answer to a read must include. A replica that
	// has replayed this sequence may answer, even if the primary is ahead. Without the header every answer includes
	// everything committed before the request.
	readAfterHeader = "Integrity-Read-After"
)

// readAfter stores the sequence of the request's readAfterHeader, if there is one.
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

// ReadPublicID reads the public id of a record or a certificate.
func ReadPublicID(o *strictjson.Object) domain.PublicID {
	return PublicID(o.String("publicId", strictjson.Required))
}

// PublicID parses a public id. A malformed one becomes the zero id, which is then answered like an unknown one.
func PublicID(text string) domain.PublicID {
	if id, ok := domain.ParsePublicID(text); ok {
		return id
	}
	return domain.PublicID{}
}
