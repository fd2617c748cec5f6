package handlers

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
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// Codes of field errors, beside those of strictjson.
const (
	codeUnknownValue = "UNKNOWN"
	codeOtherList    = "DIFFERS"
)

// newQuery reads the query of a request, as decode reads a body.
func newQuery(r *http.Request) *strictjson.Object {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := strictjson.Query(values)
	if err != nil {
		q.Problem("", strictjson.CodeFormat, "the query is not well formed")
	}
	return q
}

// queried is what a query asks for, or a refusal with everything that is wrong with it.
func queried[Input any](r *http.Request, read func(*strictjson.Object) Input) (Input, error) {
	return judged(newQuery(r), read)
}

// judged reads a value, and refuses with everything that is wrong with it.
func judged[Input any](o *strictjson.Object, read func(*strictjson.Object) Input) (Input, error) {
	input := read(o)
	return input, invalid(o.Problems())
}

// known reads a parameter that is one of a few words; empty where it is absent.
func known[Word ~string](o *strictjson.Object, name string, words ...Word) Word {
	return Word(o.Match(name, strictjson.Optional, func(text string) bool { return slices.Contains(words, Word(text)) },
		"must be one of "+strings.Join(each(words, func(w Word) string { return string(w) }), ", ")))
}

func optionalReference(o *strictjson.Object, name string) string {
	return o.Match(name, strictjson.Optional, domain.ValidReference, domain.ReferenceRule)
}

// integer reads an optional integer.
func integer(o *strictjson.Object, name string, least, most, absent int64) int64 {
	if !o.Has(name) {
		return absent
	}
	return o.Int(name, least, most, strictjson.Optional)
}

// instant reads a time, nil if it is absent. Finer parts than microseconds are rounded up: no record has them, so a bound
// still separates records as it says.
func instant(o *strictjson.Object, name string) *time.Time {
	text := o.String(name, strictjson.Optional)
	if !o.OK(name) {
		return nil
	}
	at, ok := parseInstant(text)
	if !ok {
		o.Problem(name, strictjson.CodeFormat, "must be an RFC 3339 time such as 2026-11-20T14:03:00Z; write the + of an offset as %2B")
		return nil
	}
	return new(at.Add(time.Microsecond - 1).Truncate(time.Microsecond))
}

// readLimit reads the number of entries that a page may have.
func readLimit(o *strictjson.Object) int { return int(integer(o, "limit", 1, 1000, 100)) }

// A cursor is opaque to callers: it is what the last entry of the page before is ordered by.
func formatCursor(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// cursor reads the cursor after, whose text must be valid; "" if it is absent.
func cursor(o *strictjson.Object, valid func(text string) bool) string {
	value := o.String("after", strictjson.Optional)
	if !o.OK("after") {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || !valid(string(text)) || formatCursor(string(text)) != value {
		o.Problem("after", strictjson.CodeFormat, "must be the nextCursor of an earlier page")
	}
	return string(text)
}

// list names a list by all that it was asked for, except how much of it: the text that its cursors begin with.
func list(asked ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(asked, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// listCursor reads a cursor that formatListCursor has written for the same list.
func listCursor(o *strictjson.Object, list string, valid func(place string) bool) {
	cursor(o, func(text string) bool {
		of, place, _ := strings.Cut(text, " ")
		if !valid(place) {
			return false
		}
		if of != list && len(o.Wrong()) == 0 {
			o.Problem("after", codeOtherList, "belongs to a list that was asked for otherwise: send it with the parameters of the page that gave it, except limit, or begin again without it")
		}
		return true
	})
}

func formatListCursor(list, place string) string { return formatCursor(list + " " + place) }

// cursorID reads a cursor that holds an id.
func cursorID[ID any](o *strictjson.Object, parse func(string) (ID, error)) (id ID) {
	cursor(o, func(text string) bool {
		var err error
		id, err = parse(text)
		return err == nil
	})
	return id
}

// nextPage leads on from the last entry of a page, or where the page is empty, from where it began.
func nextPage[Entry any](o *strictjson.Object, page []Entry, more bool, of func(Entry) string) wire.Next {
	next := wire.Next{HasMore: more}
	if given := o.String("after", strictjson.Optional); given != "" {
		next.NextCursor = &given
	}
	if len(page) > 0 {
		next.NextCursor = new(formatCursor(of(page[len(page)-1])))
	}
	return next
}

// boundedPage leads on from where a bounded search has stopped, if it has.
func boundedPage(stopped *string) wire.Next {
	return wire.Next{NextCursor: stopped, HasMore: stopped != nil}
}

// invalidParameter is a refusal that only the state can give.
func invalidParameter(name, message string) error {
	return invalidField("/"+name, strictjson.CodeRange, message)
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

// readAfter notes the caller's readAfterHeader, where there is one.
func readAfter(r *http.Request) error {
	values := r.Header.Values(readAfterHeader)
	if len(values) == 0 {
		return nil
	}
	sequence, err := strconv.ParseInt(values[0], 10, 64)
	if len(values) != 1 || err != nil || strconv.FormatInt(sequence, 10) != values[0] || sequence < 0 || sequence > strictjson.MaxInteger {
		return invalidField("", strictjson.CodeInteger, readAfterHeader+" must be one integer from 0 to 9007199254740991 in plain digits: the "+
			sequenceHeader+" of an earlier answer, or a sequence of the feed")
	}
	callOf(r).access.ReadAfter = &sequence
	return nil
}
