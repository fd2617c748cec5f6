package strictjson

import (
	"fmt"
	"slices"
	"strings"
)

// Sentence is a translatable text for people. Format is the English format for package fmt, and the sentence's key in
// catalogues. Args are the format's arguments.
type Sentence struct {
	Format string
	Args   []any
}

func (s Sentence) String() string {
	if len(s.Args) == 0 {
		return s.Format
	}
	return fmt.Sprintf(s.Format, s.Args...)
}

// In returns the sentence in another language. translate looks up a format, and returns an unknown text unchanged.
// Arguments that are sentences, texts or kinds of values are translated too.
func (s Sentence) In(translate func(english string) string) string {
	args := slices.Clone(s.Args)
	for i, arg := range args {
		switch arg := arg.(type) {
		case Sentence:
			args[i] = arg.In(translate)
		case SentenceError:
			args[i] = arg.In(translate)
		case Choice:
			args[i] = arg.joined(translate(choiceWord))
		case Kind:
			args[i] = translate(arg.String())
		case string:
			args[i] = translate(arg)
		}
	}
	return Sentence{translate(s.Format), args}.String()
}

// SentenceError is a Sentence as an error.
type SentenceError struct{ Sentence }

func (e SentenceError) Error() string { return e.String() }

// Choice is a list of names from which one must be chosen.
type Choice []string

const choiceWord = " or "

func (c Choice) String() string { return c.joined(choiceWord) }

func (c Choice) joined(word string) string {
	if len(c) < 2 {
		return strings.Join(c, "")
	}
	return strings.Join(c[:len(c)-1], ", ") + word + c[len(c)-1]
}

// NewProblem returns a Problem whose message is a format with arguments.
func NewProblem(pointer, code, format string, args ...any) Problem {
	said := Sentence{format, args}
	p := Problem{Pointer: pointer, Code: code, Message: said.String()}
	if len(args) > 0 {
		p.said = &said
	}
	return p
}

// In returns the message in another language; see Sentence.In.
func (p Problem) In(translate func(english string) string) string {
	if p.said == nil {
		return translate(p.Message)
	}
	return p.said.In(translate)
}
