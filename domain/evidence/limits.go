package evidence

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// Language is a language of the fixed texts.
type Language string

// The supported languages.
const (
	Spanish Language = "es"
	English Language = "en"
)

//go:embed limits.json
var limitsCatalogue []byte

// limitsText holds the fixed texts in one language.
type limitsText struct {
	Title             string   `json:"title"`
	Points            []string `json:"points"`
	CertificateTitle  string   `json:"certificateTitle"`
	CertificatePoints []string `json:"certificatePoints"`
	SharedOperator    string   `json:"sharedOperator"` // the last point of both, before the operator's own text
}

var readLimits = sync.OnceValue(func() map[Language]limitsText {
	var texts map[Language]limitsText
	if err := json.Unmarshal(limitsCatalogue, &texts); err != nil {
		panic("limits.json is part of the program: " + err.Error())
	}
	return texts
})

// limitsIn returns the texts in a language: Spanish, or English for any other.
func limitsIn(language Language) limitsText {
	if language != Spanish {
		language = English
	}
	return readLimits()[language]
}

// LimitsTitle returns the heading of Limits.
func LimitsTitle(language Language) string { return limitsIn(language).Title }

// Limits returns the fixed text on the limits of the proof (contract, section 10), one or two sentences per point,
// the same in all places. relationship is the operator's own text about its relationship with an origin system
// (INTEGRITY_RELATIONSHIP_ES, _EN). The general disclosure is always included.
func Limits(language Language, relationship string) []string {
	text := limitsIn(language)
	return text.disclosed(text.Points, relationship)
}

// CertificateLimitsTitle returns the heading of CertificateLimits.
func CertificateLimitsTitle(language Language) string { return limitsIn(language).CertificateTitle }

// CertificateLimits is like Limits, but for a certificate of certification, for which the service did receive the file.
func CertificateLimits(language Language, relationship string) []string {
	text := limitsIn(language)
	return text.disclosed(text.CertificatePoints, relationship)
}

func (t limitsText) disclosed(points []string, relationship string) []string {
	return append(slices.Clone(points), strings.TrimSpace(t.SharedOperator+" "+strings.TrimSpace(relationship)))
}
