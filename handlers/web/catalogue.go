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

// texts are the words of the pages of a kind in one language, as texts/<language>.json has them. What is and is not
// proven comes from domain/evidence, and the codes of the API from where they are answered.
type texts struct {
	// words are all of them, for the templates: a page that names one which is not there cannot be rendered. The other
	// members are those that the program itself looks up.
	words map[string]any

	FrontTitle, FrontLead, CheckLead, NotFoundTitle, NotFoundText, FailureTitle, FailureText string
	Failing, Busy, FileArgument, HashInvalid, FileCheck                                      string
	SignatureCheck, CodeLanguage, CodeCause, CodeRemedy                                      string
	CodeTryAgain, CodeRetry, CodeLookUp, CodeNoRetry                                         string
	// by state
	Links      map[string]struct{ Title, Text string }
	LinkScopes map[string]string

	// In which the pages of a record and of a certificate differ.
	CheckTitle, StateCheck string
	File, Signature, State map[string]string
	Outcomes               map[string]outcome
	Pasted                 map[string]outcome // of a hash that was pasted

	Developers struct {
		Pages  map[string]struct{ Title, Lead, Short string } // by name, as in DeveloperPages; Short is how it is listed
		Groups map[string]string                              // by tag of the OpenAPI documents
		Files  map[string]string                              // what a download is for
		// SaveAs stands before a file's name, OtherTerminal above what goes on running.
		SaveAs, OtherTerminal string
		// Search is the title of the results, SearchLead what is searched.
		Search, SearchLead string
		// Contracts are the OpenAPI documents, by their paths.
		Contracts map[string]string
	}
	Verify verifyTexts
}

// outcome explains a result: what is established, and what is not.
type outcome struct{ Title, Text, Not string }

// verifyTexts are words of the page that verifies evidence offline. Words, Facts (members of a payload), Parts, Reasons
// and Notes are by the codes of assets/verify.js and verifier.js; Rows and Findings by name, and these by value.
type verifyTexts struct {
	Title, Lead                               string
	Words, Rows, Facts, Parts, Reasons, Notes map[string]string
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
			// The words of the kind are found beside those of all.
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

// catalogue is the words of a page of this kind; those of no kind are a record's.
func (s *Site) catalogue(language evidence.Language, k Kind) *texts {
	if k != Certificate {
		k = Record
	}
	return s.texts[language][k]
}
