package web

import "integrityledger/domain/evidence"

// developerTexts are the words of the pages for developers that are not in a
// template of one language.
type developerTexts struct {
	Pages  map[string]pageText // by name, as in DeveloperPages
	Groups map[string]string   // by tag of the OpenAPI documents
	Files  map[string]string   // what a download is for
	Rules  map[string]string   // kinds of constraints
	In     map[string]string   // where a parameter stands
	// Contracts names the OpenAPI documents by their paths.
	Contracts map[string]string

	Chapters, OnThisPage        string
	Copy, Copied, CannotCopy    string
	Operations, Conventions     string
	ContractFile, ReferenceNote string
	NeedsKey, NoKey, Delivered  string
	Parameters, Body, Request   string
	Answer, Example, Headers    string
	Required, Optional          string
	Refusals, SameBody          string
	NoBody, OneOf               string
	Repeat                      string
	Yes, No                     string
	Bytes                       string
	Plan, Price, PerMinute      string
	Versions, OlderRequests     string
	OlderRegistrations, Sent    string
}

// pageText names a page; Short is how it is listed.
type pageText struct{ Title, Lead, Short string }

// summaries are what operations do, by operation id, where the words of the
// OpenAPI documents, which are English, are not those of the page.
func summaries(language evidence.Language) map[string]string {
	if language == evidence.Spanish {
		return spanishSummaries()
	}
	return nil
}
