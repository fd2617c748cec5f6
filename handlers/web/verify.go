package web

import (
	"slices"
	"strings"

	"integrityledger/domain/evidence"
)

// VerifyPath is the address of the page that verifies evidence offline, in Spanish.
const VerifyPath = "/developers/verify"

// Verify renders the page on which a person verifies a receipt or certificate, and a file, against keys that they
// trust. It is the same for everybody: what it is given stays in the browser.
func (s *Site) Verify(language evidence.Language) ([]byte, error) {
	t := s.catalogue(language, Record)
	f := newFrame(t, language, t.Verify.Title, Path(Other(language), VerifyPath))
	f.Indexed, f.Script = true, "verify.js"
	return s.render("verify.html", struct {
		frame
		MaxFile int
		Rows    []checkRow
		Words   []Point
		Limits  []section // of a registration, and of a certificate
	}{f, MaxFile, t.Verify.rows(), t.Verify.words(), []section{
		s.limits(Record, language), s.limits(Certificate, language),
	}})
}

func (s *Site) limits(kind Kind, language evidence.Language) section {
	title, points := kind.Limits(language, s.relationship[language])
	part := section{Language: language, Title: title}
	for _, point := range points {
		part.Points = append(part.Points, Point{Text: point})
	}
	return part
}

// rows are the findings with every value that each might have.
func (t *verifyTexts) rows() (rows []checkRow) {
	for _, name := range []string{"signature", "references", "observation", "status", "history", "file", "inclusion", "keys"} {
		rows = append(rows, checkRow{name, t.Rows[name], choices("", t.Findings[name])})
	}
	return rows
}

// words are what the script chooses from.
func (t *verifyTexts) words() (words []Point) {
	for kind, texts := range map[string]map[string]string{
		"": t.Words, "reason-": t.Reasons, "note-": t.Notes, "part-": t.Parts, "fact-": t.Facts, "source-": t.Findings["keys"],
	} {
		for name, text := range texts {
			words = append(words, Point{kind + name, text})
		}
	}
	slices.SortFunc(words, func(a, b Point) int { return strings.Compare(a.Name, b.Name) })
	return words
}
