package web

import (
	"maps"
	"slices"
	"strings"

	"integrityledger/domain/evidence"
)

// VerifyPath is the address of the page that verifies evidence offline, in Spanish.
const VerifyPath = "/developers/verify"

// Verify renders the page on which a person verifies a receipt or certificate, and a file, against keys that they
// trust. It is the same for everybody: what it is given stays in the browser.
func (s *Site) Verify(language evidence.Language) ([]byte, error) {
	t := s.texts[language]
	f := newFrame(t, language, t.Verify.Title, Path(other(language), VerifyPath))
	f.Indexed, f.Script = true, "verify.js"
	return s.render("verify.html", struct {
		frame
		MaxFile int
		Rows    []checkRow
		Words   []Point
		Limits  []section // of a registration, and of a certificate
	}{f, MaxFile, t.Verify.rows(), t.Verify.words(), []section{
		limits(language, evidence.LimitsTitle(language), evidence.Limits(language, s.relationship[language])),
		limits(language, evidence.CertificateLimitsTitle(language), evidence.CertificateLimits(language, s.relationship[language])),
	}})
}

func limits(language evidence.Language, title string, points []string) section {
	part := section{Language: language, Title: title}
	for _, point := range points {
		part.Points = append(part.Points, Point{Text: point})
	}
	return part
}

// rows are the findings with every value that each might have.
func (t *verifyTexts) rows() []checkRow {
	row := func(name string, words map[string]string) checkRow {
		r := checkRow{Name: name, Label: t.Rows[name]}
		for _, value := range slices.Sorted(maps.Keys(words)) {
			r.Choices = append(r.Choices, choice{value, words[value], mark("", value)})
		}
		return r
	}
	return []checkRow{
		row("signature", t.Signature), row("references", t.References), row("observation", t.Observation), row("status", t.Status),
		row("history", t.History), row("file", t.File), row("inclusion", t.Inclusion), row("keys", t.Source),
	}
}

// words are what the script chooses from.
func (t *verifyTexts) words() []Point {
	words := []Point{
		{"cleared", t.Cleared},
		{"choose-receipt", t.ChooseReceipt},
		{"choose-keys", t.ChooseKeys},
		{"too-large", t.TooLarge},
		{"unreadable", t.Unreadable},
		{"cannot-fetch", t.CannotFetch},
		{"cannot-check", t.CannotCheck},
		{"keys-refused", t.KeysRefused},
	}
	for kind, texts := range map[string]map[string]string{"reason": t.Reasons, "note": t.Notes, "part": t.Parts, "fact": t.Facts, "source": t.Source} {
		for name, text := range texts {
			words = append(words, Point{kind + "-" + name, text})
		}
	}
	slices.SortFunc(words, func(a, b Point) int { return strings.Compare(a.Name, b.Name) })
	return words
}
