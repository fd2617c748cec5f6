package web

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"

	"integrityledger/domain/evidence"
)

//go:embed texts/*.json
var textFiles embed.FS

// texts are the texts of the pages of a kind in one language, from texts/<language>.json. The fixed text on the limits
// of the evidence comes from domain/evidence, and the error codes come from edge.
type texts struct {
	// words has all texts, for the templates: a page that names a missing text cannot be rendered. The other fields are
	// the texts that the program itself looks up.
	words map[string]any

	FrontTitle, FrontLead, CheckLead, NotFoundTitle, NotFoundText, FailureTitle, FailureText                 string
	Failing, Busy, FileArgument, HashInvalid, HashSeveral, FileCheck, Released, ReleasedTitle, ReleasedState string
	SignatureCheck, CodeLanguage, CodeCause, CodeRemedy                                                      string
	CodeTryAgain, CodeRetry, CodeLookUp, CodeNoRetry                                                         string
	// by state
	Links      map[string]struct{ Title, Text string }
	LinkScopes map[string]string

	PublicID, KeyID, Fingerprint string // labels

	// Texts that differ between the pages of a record and of a certificate.
	CheckTitle, StateCheck, Declared string
	// RecordSignature and RecordState name the checks of a record that the compared file is not the file of.
	RecordSignature, RecordState string
	LimitsShort                  []string // the limits in plain words
	File, Signature, State       map[string]string
	Seen                         map[string]string // a validated record before anything is compared, by state
	Outcomes                     map[string]outcome
	Pasted                       map[string]outcome // for a pasted hash

	Developers struct {
		Pages  map[string]struct{ Title, Lead, Short string } // by name, as in DeveloperPages; Short is for lists
		Groups map[string]string                              // by tag of the OpenAPI documents
		Files  map[string]string                              // the purpose of each download
		// SaveAs precedes the name of a file, OtherTerminal a command that keeps running.
		SaveAs, OtherTerminal string
		SampleLanguage        string // the label of tabs
		// Search is the title of the results, SearchLead what is searched.
		Search, SearchLead string
		// Contracts are the OpenAPI documents, by path.
		Contracts map[string]string
	}
	Verify verifyTexts
	Trust  trustTexts
	Vouch  vouchTexts
	Report reportTexts
}

// outcome explains a result. Not says what the result does not establish.
type outcome struct{ Title, Text, Not string }

// verifyTexts are the texts of the page that verifies evidence offline. Words, Facts (members of a payload), Parts,
// Reasons and Notes are keyed by the codes in assets/verify.js and verifier.js. Rows and Findings are keyed by name,
// and each finding by value.
type verifyTexts struct {
	Title, Lead                               string
	Words, Rows, Facts, Parts, Reasons, Notes map[string]string
	Verdicts                                  map[string]string // that sum the findings up
	Findings                                  map[string]map[string]string
}

// loadTexts reads the catalogue of each language for each kind of page.
func loadTexts() (map[evidence.Language]map[Kind]*texts, error) {
	loaded := map[evidence.Language]map[Kind]*texts{}
	for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
		file, err := textFiles.ReadFile("texts/" + string(language) + ".json")
		if err != nil {
			return nil, err
		}
		loaded[language] = map[Kind]*texts{}
		for _, kind := range []Kind{Record, Certificate} {
			t := &texts{}
			if err := json.Unmarshal(file, &t.words); err != nil {
				return nil, fmt.Errorf("%s: %w", language, err)
			}
			// Add the texts of the kind to the common ones.
			maps.Copy(t.words, t.words[string(kind)].(map[string]any))
			all, err := json.Marshal(t.words)
			if err == nil {
				err = json.Unmarshal(all, t)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", language, err)
			}
			loaded[language][kind] = t
		}
	}
	return loaded, nil
}

// catalogue returns the texts of a page of this kind. A page without a kind uses the texts of records.
func (s *Site) catalogue(language evidence.Language, k Kind) *texts {
	if k != Certificate {
		k = Record
	}
	return s.texts[language][k]
}
