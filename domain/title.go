package domain

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"integrityledger/domain/strictjson"
)

// titleRule says what a title must look like.
const titleRule = "must be 1 to 200 characters on one line, not only spaces, without control characters and without characters that change the direction of writing"

// maxTitleBytes is what a title may have before it is normalized: no character
// comes from more than four, and none of these has more than four bytes.
const maxTitleBytes = 4 * 4 * MaxTitle

// ReadTitle reads a required title and normalizes it to NFC.
func ReadTitle(o *strictjson.Object, name string) string {
	title := o.String(name, strictjson.Required)
	if len(title) > maxTitleBytes {
		o.Problem(name, strictjson.CodeFormat, titleRule)
		return ""
	}
	title = norm.NFC.String(title)
	if n := utf8.RuneCountInString(title); o.OK(name) && (n > MaxTitle || strings.TrimSpace(title) == "" || strings.ContainsFunc(title, misleading)) {
		o.Problem(name, strictjson.CodeFormat, titleRule)
	}
	return title
}

// misleading characters break a line or change how the rest of it reads.
func misleading(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// ReadStatement reads a required text of a person, of at most so many characters.
func ReadStatement(o *strictjson.Object, name string, most int) string {
	text := o.Sized(name, strictjson.Required, 1, most)
	if o.OK(name) && strings.TrimSpace(text) == "" {
		o.Problem(name, strictjson.CodeFormat, "must not be only spaces")
	}
	return text
}

// ReadConsent reads a member that must be true: what follows is done in somebody's name.
func ReadConsent(o *strictjson.Object, name string) {
	if given := o.Bool(name, strictjson.Required); o.OK(name) && !given {
		o.Problem(name, strictjson.CodeFormat, "must be true")
	}
}
