package handlers

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
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
	codeUnknownParameter = "UNKNOWN_PARAMETER"
	codeUnknownValue     = "UNKNOWN"
	codeOtherList        = "DIFFERS"
)

// parameters reads the query of a request as strictjson reads members: every one is asked for by name, and what is
// wrong, repeated or unknown is refused at once, as 422.
type parameters struct {
	values   url.Values
	asked    []string
	problems []domain.FieldError
}

func newQuery(r *http.Request) *parameters {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &parameters{values: values}
	if err != nil {
		q.problem("", strictjson.CodeFormat, "the query is not well formed")
	}
	return q
}

// textProblems lists the names and values of a query or a form that hold text which the ledger cannot keep. The
// middleware asks before any handler does, so a handler needs no such check.
func textProblems(values url.Values) (problems []domain.FieldError) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		pointer := pointer(name)
		valid := domain.ValidText(name)
		if !valid {
			pointer = ""
		}
		for _, value := range values[name] {
			valid = valid && domain.ValidText(value)
		}
		if !valid {
			wrong := domain.FieldError{Pointer: pointer, Code: strictjson.CodeFormat, Message: domain.TextRule}
			problems = append(problems, wrong)
		}
	}
	return problems
}

func (q *parameters) problem(name, code, message string) {
	pointer := ""
	if name != "" {
		pointer = "/" + name
	}
	q.problems = append(q.problems, domain.FieldError{Pointer: pointer, Code: code, Message: message})
}

// text reads a parameter; given is false where it is missing or repeated.
func (q *parameters) text(name string, presence strictjson.Presence) (value string, given bool) {
	q.asked = append(q.asked, name)
	switch values := q.values[name]; len(values) {
	case 0:
		if presence == strictjson.Required {
			q.problem(name, strictjson.CodeRequired, "the parameter is required")
		}
		return "", false
	case 1:
		return values[0], true
	default:
		q.problem(name, strictjson.CodeDuplicate, "the parameter appears more than once")
		return "", false
	}
}

// match reads a parameter that must be valid; rule says what would be.
func (q *parameters) match(name string, presence strictjson.Presence, valid func(string) bool, rule string) (value string, given bool) {
	value, given = q.text(name, presence)
	if given && !valid(value) {
		q.problem(name, strictjson.CodeFormat, rule)
	}
	return value, given
}

// known reads a parameter that is one of a few words; empty where it is absent.
func known[Word ~string](q *parameters, name string, words ...Word) Word {
	value, _ := q.match(name, strictjson.Optional, func(text string) bool { return slices.Contains(words, Word(text)) },
		"must be one of "+strings.Join(each(words, func(w Word) string { return string(w) }), ", "))
	return Word(value)
}

func (q *parameters) reference(name string) string {
	value, _ := q.match(name, strictjson.Required, domain.ValidReference, domain.ReferenceRule)
	return value
}

func (q *parameters) optionalReference(name string) string {
	value, _ := q.match(name, strictjson.Optional, domain.ValidReference, domain.ReferenceRule)
	return value
}

// integer reads digits in their one spelling.
func (q *parameters) integer(name string, least, most, absent int64, presence strictjson.Presence) int64 {
	value, given := q.text(name, presence)
	if !given {
		return absent
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil || strconv.FormatInt(n, 10) != value:
		q.problem(name, strictjson.CodeInteger, "must be an integer in plain digits")
	case n < least || n > most:
		q.problem(name, strictjson.CodeRange, "must be an integer from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	}
	return n
}

func (q *parameters) boolean(name string) bool {
	value, _ := q.match(name, strictjson.Optional, func(text string) bool { return text == "true" || text == "false" }, "must be true or false")
	return value == "true"
}

// Problems lists what was wrong with the parameters that were read, then those that no handler reads.
func (q *parameters) Problems() []domain.FieldError {
	problems := slices.Clone(q.problems)
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(q.asked, name) {
			problems = append(problems, domain.FieldError{Pointer: "/" + name, Code: codeUnknownParameter, Message: "there is no such parameter"})
		}
	}
	return strictjson.Listed(problems, strictjson.MaxProblems)
}

// digest reads a SHA-256, nil where it is absent.
func (q *parameters) digest(name string, presence strictjson.Presence) *[32]byte {
	text, given := q.text(name, presence)
	if !given {
		return nil
	}
	sum, ok := domain.ParseSHA256(text)
	if !ok {
		q.problem(name, strictjson.CodeFormat, domain.SHA256Rule)
	}
	return &sum
}

// instant reads a time, nil where it is absent. What is finer than microseconds is rounded up: no record has it, so a bound
// still parts them as it says.
func (q *parameters) instant(name string) *time.Time {
	text, given := q.text(name, strictjson.Optional)
	if !given {
		return nil
	}
	at, ok := parseInstant(text)
	if !ok {
		q.problem(name, strictjson.CodeFormat, "must be an RFC 3339 time such as 2026-11-20T14:03:00Z; write the + of an offset as %2B")
		return nil
	}
	return new(at.Add(time.Microsecond - 1).Truncate(time.Microsecond))
}

// limit reads how many entries a page may have.
func (q *parameters) limit() int {
	return int(q.integer("limit", 1, 1000, 100, strictjson.Optional))
}

// A cursor is opaque to callers: it is what the last entry of the page before is ordered by.
func formatCursor(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// cursor reads a cursor whose text must be valid; "" where none is given.
func (q *parameters) cursor(name string, valid func(text string) bool) string {
	value, given := q.text(name, strictjson.Optional)
	if !given {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || !valid(string(text)) || formatCursor(string(text)) != value {
		q.problem(name, strictjson.CodeFormat, "must be the nextCursor of an earlier page")
	}
	return string(text)
}

// list names a list by all that it was asked for, except how much of it: the text that its cursors begin with.
func list(asked ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(asked, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// listCursor reads a cursor that formatListCursor has written for the same list.
func (q *parameters) listCursor(list string, valid func(place string) bool) {
	q.cursor("after", func(text string) bool {
		of, place, _ := strings.Cut(text, " ")
		if !valid(place) {
			return false
		}
		if of != list && len(q.problems) == 0 {
			q.problem("after", codeOtherList, "belongs to a list that was asked for otherwise: send it with the parameters of the page that gave it, except limit, or begin again without it")
		}
		return true
	})
}

func formatListCursor(list, place string) string { return formatCursor(list + " " + place) }

// cursorID reads a cursor that holds an id.
func cursorID[ID any](q *parameters, name string, parse func(string) (ID, error)) (id ID) {
	q.cursor(name, func(text string) bool {
		var err error
		id, err = parse(text)
		return err == nil
	})
	return id
}

// nextPage leads on from the last entry of a page, or where the page is empty, from where it began.
func nextPage[Entry any](q *parameters, page []Entry, more bool, of func(Entry) string) wire.Next {
	next := wire.Next{HasMore: more}
	if given := q.values.Get("after"); given != "" {
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

func (q *parameters) refusal() error { return invalid(q.Problems()) }

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
