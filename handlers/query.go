package handlers

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

// parameters reads those of a query of a request as strictjson reads members: every
// one is asked for by name, and what is wrong, repeated or unknown is refused
// at once, as 422.
type parameters struct {
	values   url.Values
	asked    map[string]bool
	problems []domain.FieldError
}

func newQuery(r *http.Request) *parameters {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &parameters{values: values, asked: map[string]bool{}}
	if err != nil {
		q.problem("", strictjson.CodeFormat, "the query is not well formed")
	}
	return q
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
	q.asked[name] = true
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

func (q *parameters) reference(name string) string {
	value, given := q.text(name, strictjson.Required)
	if given && !domain.ValidReference(value) {
		q.problem(name, strictjson.CodeFormat, domain.ReferenceRule)
	}
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
	value, given := q.text(name, strictjson.Optional)
	if given && value != "true" && value != "false" {
		q.problem(name, strictjson.CodeFormat, "true or false was expected")
	}
	return value == "true"
}

// Problems lists what was wrong with the parameters that were read, then those
// that nobody asked for.
func (q *parameters) Problems() []domain.FieldError {
	problems := slices.Clone(q.problems)
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !q.asked[name] {
			problems = append(problems, domain.FieldError{
				Pointer: "/" + name, Code: "UNKNOWN_PARAMETER", Message: "there is no such parameter",
			})
		}
	}
	return strictjson.Listed(problems, strictjson.MaxProblems)
}

func (q *parameters) refusal() error {
	if problems := q.Problems(); len(problems) > 0 {
		return domain.Invalid(problems)
	}
	return nil
}

// invalidParameter is a refusal that only the state can give.
func invalidParameter(name, message string) error {
	return domain.Invalid([]domain.FieldError{{Pointer: "/" + name, Code: strictjson.CodeRange, Message: message}})
}
