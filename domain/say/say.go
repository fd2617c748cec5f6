// Package say holds the sentences that people read: in English in the source, and in other languages in catalogues.
// Logs, codes, names of findings and the JSON output of commands are for machines and stay English.
package say

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Catalogue has the texts of one language by their English formats (Sentence). The zero Catalogue is English.
type Catalogue struct {
	texts map[string]string
	// Foreign says an error of another package, if it can.
	Foreign func(Catalogue, error) (text string, ok bool)
}

//go:embed es.json
var spanishFile []byte

var spanishTexts = sync.OnceValue(func() (texts map[string]string) {
	if err := json.Unmarshal(spanishFile, &texts); err != nil {
		panic("es.json is part of the program: " + err.Error())
	}
	return texts
})

// Spanish is the catalogue es.json.
func Spanish() Catalogue { return Catalogue{texts: spanishTexts()} }

// IsEnglish reports whether the catalogue leaves every sentence as it is.
func (c Catalogue) IsEnglish() bool { return c.texts == nil }

// Text looks up a format, or a text without values. It returns any other text as it is.
func (c Catalogue) Text(english string) string {
	text, _ := c.lookup(english)
	return text
}

// lookup reports whether the language has a text. A format without letters is the same in all languages.
func (c Catalogue) lookup(english string) (text string, ok bool) {
	if text, ok = c.texts[english]; ok {
		return text, true
	}
	return english, c.IsEnglish() || !strings.ContainsFunc(withoutVerbs(english), unicode.IsLetter)
}

// withoutVerbs removes the verbs of package fmt from a format.
func withoutVerbs(format string) string {
	plain, rest := "", format
	for {
		before, after, found := strings.Cut(rest, "%")
		plain += before
		if !found {
			return plain
		}
		rest = strings.TrimLeft(after, "+-# 0123456789.[]*")
		if rest != "" {
			rest = rest[1:]
		}
	}
}

// Phrase is a value that other languages write in another way. Say writes it, and reports whether the language has a
// text for all of it.
type Phrase interface {
	Say(c Catalogue) (text string, ok bool)
}

// In says a phrase in a language. A phrase that the language does not have whole stays English.
func In(c Catalogue, p Phrase) string {
	if text, ok := p.Say(c); ok {
		return text
	}
	text, _ := p.Say(Catalogue{})
	return text
}

// Sentence is a text for people. Format is a format of package fmt in English and the key of the sentence in
// catalogues. Args are the values that it names: phrases, errors and texts of several words are looked up too. An error
// of another program, such as PostgreSQL, keeps its own words and leaves the sentence around it in the language.
type Sentence struct {
	Format string
	Args   []any
}

func (s Sentence) String() string {
	if len(s.Args) == 0 {
		return s.Format
	}
	args := slices.Clone(s.Args)
	for i, arg := range args {
		if p, ok := arg.(Phrase); ok {
			args[i] = In(Catalogue{}, p)
		}
	}
	return fmt.Sprintf(strings.ReplaceAll(s.Format, "%w", "%v"), args...)
}

// Say implements Phrase.
func (s Sentence) Say(c Catalogue) (string, bool) {
	if c.IsEnglish() {
		return s.String(), true
	}
	format, whole := c.lookup(s.Format)
	args := slices.Clone(s.Args)
	for i, arg := range args {
		var text string
		ok := true
		switch arg := arg.(type) {
		case Phrase:
			text, ok = arg.Say(c)
		case error:
			text, _ = c.Error(arg)
		case string:
			text = arg
			if strings.Contains(arg, " ") {
				text = c.Text(arg)
			}
		default:
			continue
		}
		args[i], whole = text, whole && ok
	}
	return Sentence{format, args}.String(), whole
}

// Error says an error as far as the language has texts for it: wrapped errors are said even if the words around them
// stay English. It reports whether the language has a text for all of it.
func (c Catalogue) Error(err error) (string, bool) {
	if c.IsEnglish() {
		return err.Error(), true
	}
	switch e := any(err).(type) { // an error that wraps one of these says more
	case Phrase:
		return e.Say(c)
	case *fs.PathError:
		text, ok := c.Error(e.Err)
		return e.Path + ": " + text, ok
	}
	if c.Foreign != nil {
		if text, ok := c.Foreign(c, err); ok {
			return text, true
		}
	}
	return c.wrapped(err), false
}

// wrapped is the text of an error in which the errors that it wraps are said.
func (c Catalogue) wrapped(err error) (text string) {
	rest := err.Error()
	var inner []error
	switch e := any(err).(type) { // errors.Unwrap does not see the errors that a list wraps
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, e := range inner {
		if e == nil {
			continue
		}
		if before, after, found := strings.Cut(rest, e.Error()); found {
			said, _ := c.Error(e)
			text, rest = text+before+said, after
		}
	}
	return text + rest
}

// MarshalText writes the sentence in English.
func (s Sentence) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText makes a sentence without values of a text.
func (s *Sentence) UnmarshalText(text []byte) error {
	*s = Sentence{Format: string(text)}
	return nil
}

// Sentencef is a sentence with its values.
func Sentencef(format string, args ...any) Sentence {
	if false {
		_ = fmt.Sprintf(format, args...) // go vet checks calls of this function like calls of Sprintf
	}
	return Sentence{format, args}
}

// Error is a sentence as an error. It wraps the errors that the format names with %w.
type Error struct {
	Sentence
	err error // what fmt.Errorf makes of the sentence
}

// Errorf makes an *Error, as fmt.Errorf does.
func Errorf(format string, args ...any) error {
	return &Error{Sentence{format, args}, fmt.Errorf(format, args...)}
}

func (e *Error) Error() string { return e.err.Error() }

// New makes an Error of a text without values.
func New(text string) error { return &Error{Sentence{Format: text}, errors.New(text)} }

// Unwrap implements errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.err }

// Word is one word that is looked up.
type Word string

// Say implements Phrase.
func (w Word) Say(c Catalogue) (string, bool) { return c.lookup(string(w)) }

// Choice is a list of names, of which a sentence wants one.
type Choice []string

const choiceWord = " or "

func (c Choice) String() string { return c.joined(choiceWord) }

// Say implements Phrase.
func (c Choice) Say(in Catalogue) (string, bool) {
	word, ok := in.lookup(choiceWord)
	return c.joined(word), ok
}

func (c Choice) joined(word string) string {
	if len(c) < 2 {
		return strings.Join(c, "")
	}
	return strings.Join(c[:len(c)-1], ", ") + word + c[len(c)-1]
}

// List is several phrases, one after another.
type List struct {
	phrases   []Phrase
	separator string
}

// Join makes a List.
func Join[P Phrase](phrases []P, separator string) List {
	l := List{make([]Phrase, len(phrases)), separator}
	for i, p := range phrases {
		l.phrases[i] = p
	}
	return l
}

// Say implements Phrase.
func (l List) Say(c Catalogue) (string, bool) {
	texts, whole := make([]string, len(l.phrases)), true
	for i, p := range l.phrases {
		text, ok := p.Say(c)
		texts[i], whole = text, whole && ok
	}
	return strings.Join(texts, l.separator), whole
}

func (l List) String() string {
	text, _ := l.Say(Catalogue{})
	return text
}
