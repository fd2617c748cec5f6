package say

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// said is an error as a phrase.
type said struct{ error }

func (s said) Say(c Catalogue) (string, bool) { return c.Error(s.error) }

// parts is a phrase without a method String.
type parts []string

func (p parts) Say(Catalogue) (string, bool) { return strings.Join(p, ""), true }

func TestIn(t *testing.T) {
	spanish := Catalogue{texts: map[string]string{
		"%s lacks %s": "falta %[2]s en %[1]s", "the file": "el fichero", " or ": " o ", "gone": "no existe",
		"open %w": "abrir: %w", "member": "campo",
	}}
	foreign := errors.New("broken")
	for _, c := range []struct {
		phrase Phrase
		want   string
	}{
		{Sentencef("%s lacks %s", "the file", Choice{"a", "b", "c"}), "falta a, b o c en el fichero"},
		{Sentencef("%s lacks %s", "member", Word("member")), "falta campo en member"},
		{Sentencef("%s lacks a value", Word("member")), "member lacks a value"},
		{Sentencef("%s lacks %s", "x", foreign), "falta broken en x"},
		{Sentencef("%s: %d", Sentencef("gone"), 3), "no existe: 3"},
		{Sentencef("lost%s: %s", parts{}, parts{"a", "b"}), "lost: ab"},
		{Join([]Sentence{Sentencef("gone"), Sentencef("gone")}, "; "), "no existe; no existe"},
		{Join([]Sentence{Sentencef("gone"), Sentencef("lost")}, "; "), "gone; lost"},
		{said{Errorf("open %w", Errorf("gone"))}, "abrir: no existe"},
		{said{Errorf("open %w", &fs.PathError{Op: "open", Path: "/x", Err: Errorf("gone")})}, "abrir: /x: no existe"},
		{said{Errorf("open %w", fmt.Errorf("a: %w", Errorf("gone")))}, "abrir: a: no existe"},
	} {
		if got := In(spanish, c.phrase); got != c.want {
			t.Errorf("%v is %q, not %q", c.phrase, got, c.want)
		}
	}
	if err := Errorf("open %w", foreign); !errors.Is(err, foreign) || err.Error() != "open broken" {
		t.Errorf("%v", err)
	}
}
