package detect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"integrityledger/domain/analysis"
)

// textFile collects the properties of a text, character by character.
type textFile struct {
	err     error
	invalid int64 // bytes that are not valid UTF-8 or UTF-16

	hidden, bidi, mixed *tally
	worst               map[*tally]analysis.Severity

	word   []*script // scripts of the current word, in order of their first letters
	wordAt int64
	flag   bool // after a black flag and tag characters
	open   []opening
}

// opening is an embedding, override or isolate that the line has not closed.
type opening struct {
	c  rune
	at int64
}

func text(none, some string, which func(*textFile) *tally) func(*subject) verdict {
	return func(s *subject) verdict {
		t := s.text()
		if t == nil {
			return notApplicable("The file is no text.")
		}
		found := which(t)
		switch {
		case !s.is("text/plain"):
			return inconclusive("The file is declared a text but does not look like one.")
		case found.count() > 0:
			return finding(t.worst[found], some, found.list()...)
		case t.err != nil:
			return inconclusive("The text cannot be read.")
		case t.invalid > 0:
			return inconclusive("The file is not wholly text in UTF-8 or UTF-16.",
				counted(analysis.Bytes, "byte that is no UTF-8 or UTF-16", t.invalid)...)
		}
		return nothing(none)
	}
}

// textual reports whether a media type declares text.
func textual(mediaType string) bool {
	return strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(mediaType, "+json") ||
		strings.HasSuffix(mediaType, "+xml") ||
		strings.HasSuffix(mediaType, "-flat-xml") ||
		slices.Contains([]string{
			"application/json", "application/xml", "application/javascript", "application/ecmascript",
			"application/x-sh", "application/sql", "application/yaml",
			"application/x-ndjson", "application/toml", "application/rtf", "message/rfc822", "application/x-yaml",
			"application/jsonl", "application/json5",
			"application/x-javascript", "application/x-ecmascript", "application/typescript",
			"application/x-typescript", "application/x-httpd-php", "application/x-php",
			"application/x-shellscript", "application/x-csh", "application/x-perl", "application/x-python",
			"application/x-ruby", "application/x-sql", "application/graphql",
			"application/x-tex", "application/x-latex", "application/csv", "application/x-csv", "application/x-subrip",
			"application/ics", "application/xml-dtd",
			"application/x-pem-file", "application/x-x509-ca-cert", "application/pkix-cert", "application/pkcs7-mime",
			"application/pkcs7-signature",
			"application/x-pkcs7-signature", "application/pgp-signature", "application/pgp-keys",
			"application/pgp-encrypted", "multipart/related", "multipart/mixed",
			"application/x-mimearchive", "application/x-bat",
		}, mediaType)
}

func (s *subject) readText() *textFile {
	if !s.is("text/plain") && !textual(mediaType(s.DeclaredType)) {
		return nil
	}
	t := &textFile{
		hidden: newTally(analysis.Bytes), bidi: newTally(analysis.Bytes), mixed: newTally(analysis.Bytes),
		worst: map[*tally]analysis.Severity{},
	}
	if s.is("text/plain") {
		t.err = t.read(bufio.NewReaderSize(s.section(), 1<<16))
	}
	return t
}

func (t *textFile) read(r *bufio.Reader) error {
	next := readUTF8
	at := int64(0)
	mark, _ := r.Peek(3)
	switch {
	case len(mark) == 3 && string(mark) == "\xef\xbb\xbf":
		at = 3
	case len(mark) >= 2 && string(mark[:2]) == "\xff\xfe":
		next, at = readUTF16(binary.LittleEndian), 2
	case len(mark) >= 2 && string(mark[:2]) == "\xfe\xff":
		next, at = readUTF16(binary.BigEndian), 2
	}
	if _, err := r.Discard(int(at)); err != nil {
		return err
	}
	for {
		c, size, ok, err := next(r)
		if errors.Is(err, io.EOF) {
			t.endWord()
			t.endLine()
			return nil
		}
		if err != nil {
			return err
		}
		if !ok {
			t.invalid += int64(size)
		}
		t.character(c, at)
		at += int64(size)
	}
}

func readUTF8(r *bufio.Reader) (c rune, size int, ok bool, err error) {
	c, size, err = r.ReadRune()
	return c, size, c != utf8.RuneError || size != 1, err
}

func readUTF16(order binary.ByteOrder) func(*bufio.Reader) (rune, int, bool, error) {
	return func(r *bufio.Reader) (rune, int, bool, error) {
		b, err := r.Peek(4)
		if len(b) == 0 {
			return 0, 0, false, err
		}
		if len(b) == 1 {
			_, _ = r.Discard(1) // was peeked
			return utf8.RuneError, 1, false, nil
		}
		c := rune(order.Uint16(b))
		size, ok := 2, true
		if utf16.IsSurrogate(c) {
			ok = false
			if len(b) == 4 {
				if pair := utf16.DecodeRune(c, rune(order.Uint16(b[2:]))); pair != utf8.RuneError {
					c, size, ok = pair, 4, true
				}
			}
			if !ok {
				c = utf8.RuneError
			}
		}
		_, err = r.Discard(size)
		return c, size, ok, err
	}
}

func (t *textFile) add(to *tally, s analysis.Severity, structure string, at int64) {
	to.add(structure, at)
	t.worst[to] = higher(t.worst[to], s)
}

func (t *textFile) character(c rune, at int64) {
	if c < 0x80 {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			t.letter(latin, at)
			return
		case c == '\n':
			t.endLine()
		case c < 0x20 && c != '\t' && c != '\r' && c != '\f' || c == 0x7f:
			t.add(t.hidden, analysis.Medium, "control character", at)
		}
		t.endWord()
		return
	}
	if flag := t.flag; c == 0x1f3f4 || flag {
		// The flags of England, Scotland and Wales are written with tag characters (UTS #51, ED-14a).
		if t.flag = c == 0x1f3f4 || c >= 0xe0020 && c <= 0xe007e; flag && (t.flag && c != 0x1f3f4 || c == 0xe007f) {
			t.add(t.hidden, analysis.Info, "TAG CHARACTER of a flag", at)
			return
		}
	}
	for _, h := range hiddenCharacters {
		if c > 0x3164 && c < 0xfe00 {
			break // avoid looking through the ideographs one by one
		}
		if c >= h.first && c <= h.last {
			t.add(h.of(t), h.severity, h.name, at)
			t.direction(c, at)
			return // invisible, so it does not end the word
		}
	}
	switch {
	case c == 0x2029:
		t.endLine()
		t.endWord()
	case unicode.IsLetter(c):
		if s := scriptOf(c); s != nil {
			t.letter(s, at)
		}
	case unicode.Is(unicode.M, c):
	default:
		t.endWord()
	}
}

// hiddenCharacters are the characters that are not drawn, by their Unicode names or block names.
var hiddenCharacters = []struct {
	first, last rune
	severity    analysis.Severity
	name        string
	of          func(*textFile) *tally
}{
	{0x0080, 0x009f, analysis.Medium, "C1 control character", hiddenTally},
	{0x00ad, 0x00ad, analysis.Info, "SOFT HYPHEN", hiddenTally},
	{0x034f, 0x034f, analysis.Low, "COMBINING GRAPHEME JOINER", hiddenTally},
	{0x061c, 0x061c, analysis.Info, "ARABIC LETTER MARK", bidiTally},
	{0x115f, 0x1160, analysis.Low, "HANGUL FILLER", hiddenTally},
	{0x180b, 0x180f, analysis.Info, "MONGOLIAN SELECTOR", hiddenTally},
	{0x200b, 0x200b, analysis.Low, "ZERO WIDTH SPACE", hiddenTally},
	{0x200c, 0x200c, analysis.Info, "ZERO WIDTH NON-JOINER", hiddenTally},
	{0x200d, 0x200d, analysis.Info, "ZERO WIDTH JOINER", hiddenTally},
	{0x200e, 0x200e, analysis.Info, "LEFT-TO-RIGHT MARK", bidiTally},
	{0x200f, 0x200f, analysis.Info, "RIGHT-TO-LEFT MARK", bidiTally},
	{0x202a, 0x202b, analysis.Low, "EMBEDDING", bidiTally},
	{0x202c, 0x202c, analysis.Info, "POP DIRECTIONAL FORMATTING", bidiTally},
	{0x202d, 0x202e, analysis.Medium, "OVERRIDE", bidiTally},
	{0x2060, 0x2060, analysis.Low, "WORD JOINER", hiddenTally},
	{0x2061, 0x2064, analysis.Low, "INVISIBLE OPERATOR", hiddenTally},
	{0x2066, 0x2068, analysis.Info, "ISOLATE", bidiTally},
	{0x2069, 0x2069, analysis.Info, "POP DIRECTIONAL ISOLATE", bidiTally},
	{0x206a, 0x206f, analysis.Low, "DEPRECATED FORMAT CHARACTER", hiddenTally},
	{0x3164, 0x3164, analysis.Low, "HANGUL FILLER", hiddenTally},
	{0xfe00, 0xfe0f, analysis.Info, "VARIATION SELECTOR", hiddenTally},
	{0xfeff, 0xfeff, analysis.Low, "ZERO WIDTH NO-BREAK SPACE", hiddenTally},
	{0xffa0, 0xffa0, analysis.Low, "HANGUL FILLER", hiddenTally},
	{0xfff9, 0xfffb, analysis.Low, "INTERLINEAR ANNOTATION CHARACTER", hiddenTally},
	{0xe0000, 0xe007f, analysis.High, "TAG CHARACTER", hiddenTally},
	{0xe0100, 0xe01ef, analysis.Medium, "SUPPLEMENTARY VARIATION SELECTOR", hiddenTally},
}

func hiddenTally(t *textFile) *tally { return t.hidden }
func bidiTally(t *textFile) *tally   { return t.bidi }

// maxNesting is the maximum depth of the bidirectional algorithm (UAX #9, BD2).
const maxNesting = 125

// direction tracks the embeddings that a line opens and closes. If one stays open, the reader sees the following text
// in another order.
func (t *textFile) direction(c rune, at int64) {
	switch {
	case c >= 0x202a && c <= 0x202e && c != 0x202c || c >= 0x2066 && c <= 0x2068:
		if len(t.open) < maxNesting {
			t.open = append(t.open, opening{c, at})
		}
	case c == 0x202c || c == 0x2069:
		if n := len(t.open); n > 0 && (t.open[n-1].c >= 0x2066) == (c == 0x2069) {
			t.open = t.open[:n-1]
		}
	}
}

func (t *textFile) endLine() {
	for _, o := range t.open {
		t.add(t.bidi, analysis.Medium, "not closed in its line", o.at)
	}
	t.open = t.open[:0]
}

// script is a set of letters that can be confused with another script's.
type script struct {
	name  string
	table *unicode.RangeTable
}

var (
	latin   = &script{"Latin", unicode.Latin}
	scripts = []*script{
		latin, {"Cyrillic", unicode.Cyrillic}, {"Greek", unicode.Greek}, {"Arabic", unicode.Arabic},
		{"Hebrew", unicode.Hebrew}, {"Armenian", unicode.Armenian},
		{"Georgian", unicode.Georgian}, {"Cherokee", unicode.Cherokee}, {"Coptic", unicode.Coptic},
		{"Devanagari", unicode.Devanagari}, {"Bengali", unicode.Bengali},
		{"Tamil", unicode.Tamil}, {"Telugu", unicode.Telugu}, {"Thai", unicode.Thai}, {"Lao", unicode.Lao},
		{"Khmer", unicode.Khmer}, {"Ethiopic", unicode.Ethiopic},
		{"Lisu", unicode.Lisu}, {"Deseret", unicode.Deseret}, {"Osage", unicode.Osage}, {"Gothic", unicode.Gothic},
	}
)

func scriptOf(c rune) *script {
	if c >= 0x3040 && c <= 0x9fff || c >= 0xac00 && c <= 0xd7a3 {
		return nil // Kana, Han, Hangul
	}
	for _, s := range scripts {
		if unicode.Is(s.table, c) {
			return s
		}
	}
	return nil
}

func (t *textFile) letter(s *script, at int64) {
	if len(t.word) == 0 {
		t.wordAt = at
	}
	if !slices.Contains(t.word, s) {
		t.word = append(t.word, s)
	}
}

func (t *textFile) endWord() {
	if len(t.word) > 1 {
		var names []string
		severity := analysis.Low
		for _, s := range t.word {
			names = append(names, s.name)
		}
		slices.Sort(names)
		if slices.Contains(names, "Latin") && (slices.Contains(names, "Cyrillic") || slices.Contains(names, "Greek")) {
			severity = analysis.Medium
		}
		t.add(t.mixed, severity, strings.Join(names, " and ")+" in one word", t.wordAt)
	}
	t.word = t.word[:0]
}
