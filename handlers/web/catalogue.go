package web

import (
	"embed"
	"encoding/json"
	"fmt"

	"integrityledger/domain/evidence"
)

//go:embed texts
var textFiles embed.FS

// texts are the words of the pages in one language, as texts/<language>.json has them: a member for every field. What
// is and is not proven comes from domain/evidence, and the codes of the API from where they are answered.
type texts struct {
	Lang, Locale             string // BCP 47, of the page; of dates and numbers
	OtherLanguage, OtherLang string
	Skip, Brand              string
	ServicePage, FooterNote  string
	Contract, TrustedKeys    string

	Choose, OrDrop, AnyType      string
	Privacy, NeedsScript         string
	Hashing, Asking              string
	Cancel, Cancelled, TryAgain  string
	OneFile, TooLarge            string
	Unreadable, CannotHash       string
	Offline, Busy, Failing, Wait string
	YourFile, ComputedHash       string
	Checked, NotEstablished      string
	FileCheck, SignatureCheck    string
	HashTitle, HashLead          string
	HashLabel, HashHint          string
	HashButton, HashInvalid      string
	KeyID, Fingerprint           string
	Receipt, ReceiptNote         string
	PublicID, Title              string
	Organization, Words          string
	QRTitle, QRAlt, QRNote       string
	OperatorTitle, NoDownload    string
	OfflineTitle, FileArgument   string

	kindTexts           `json:"-"` // of the page's kind: one of these two
	Record, Certificate kindTexts

	FrontTitle, FrontLead       string
	FrontHowTitle               string
	FrontHow                    []string
	FrontLinkTitle, FrontLink   string
	FrontDevelopers             string
	GuidesLink, GuidesNote      string
	Schemas, SchemasNote        string
	ContractNote, KeysNote      string
	CertificationContract       string
	CertificationNote           string
	LimitsLink                  string
	NotFoundTitle, NotFoundText string
	FailureTitle, FailureText   string
	FailureCode, BackToFront    string
	CodeLanguage, CodeCause     string
	CodeRemedy, CodeTryAgain    string
	CodeRetry, CodeNoRetry      string

	Links                          map[string]linkText // by state
	LinkOrganization, LinkProvider string
	LinkUntil, LinkConsent         string
	LinkScopes                     map[string]string
	LinkWithdraw, LinkButton       string
	LinkNumber, LinkEndpoint       string
	LinkCookie                     string

	Developers developerTexts
	Verify     verifyTexts
	// Summaries are what operations do, by operation id, where the words of the OpenAPI documents, which are English,
	// are not those of the page.
	Summaries map[string]string
}

// kindTexts are the words in which the pages of a record and of a certificate differ.
type kindTexts struct {
	CheckTitle, CheckLead   string
	Dated, StateCheck       string
	File, Signature, State  map[string]string
	DetailsTitle, NoDetails string
	Declared                string
	OfflineSteps            []string
	OfflineNote             string
	Outcomes                map[string]outcome
}

// linkText says where a link stands.
type linkText struct{ Title, Text string }

// outcome explains a result: what is established, and what is not.
type outcome struct{ Title, Text, Not string }

// verifyTexts are the words of the page that verifies evidence offline. Reasons and Notes are by the codes of
// assets/verifier.js.
type verifyTexts struct {
	Title, Lead, Heading      string
	Receipt, ReceiptHint      string
	Keys, KeysHint, FetchKeys string
	NotIndependentHint        string
	Document, DocumentHint    string
	Button, Privacy           string
	NeedsScript, Unsupported  string
	Cleared, Hashing          string
	ChooseReceipt, ChooseKeys string
	TooLarge, Unreadable      string
	CannotFetch, CannotCheck  string
	KeysRefused               string
	Invalid, Besides, Signed  string
	Rows                      map[string]string // of findings, by name
	Signature                 map[string]string // words of a finding, by value
	References                map[string]string
	Observation               map[string]string
	Status                    map[string]string
	History                   map[string]string // of the state as of an earlier moment
	File, Inclusion           map[string]string
	Source                    map[string]string // of the keys: file or service
	Facts                     map[string]string // members of a payload, by name
	Parts                     map[string]string
	Reasons, Notes            map[string]string
	OnlineTitle, Online       string
}

// developerTexts are the words of the pages for developers that are not in a template of one language.
type developerTexts struct {
	Pages     map[string]pageText // by name, as in DeveloperPages
	Groups    map[string]string   // by tag of the OpenAPI documents
	Files     map[string]string   // what a download is for
	Rules     map[string]string   // kinds of constraints
	In        map[string]string   // where a parameter stands
	Contracts map[string]string   // the OpenAPI documents, by their paths

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
	Repeat, Yes, No             string
	Bytes                       string
	Plan, Price, PerMinute      string
	Versions, Requests          string
	Registrations, Sent         string
}

// pageText names a page; Short is how it is listed.
type pageText struct{ Title, Lead, Short string }

// loadTexts reads the catalogue of each language. A member without a field is an error; a field without a member is
// found by a test.
func loadTexts() (map[evidence.Language]*texts, error) {
	loaded := map[evidence.Language]*texts{}
	for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
		name := "texts/" + string(language) + ".json"
		file, err := textFiles.Open(name)
		if err != nil {
			return nil, err
		}
		t := &texts{}
		decoder := json.NewDecoder(file)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(t); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		t.kindTexts = t.Record
		loaded[language] = t
	}
	return loaded, nil
}

// catalogue is the words of a page of this kind; those of no kind are a record's.
func (s *Site) catalogue(language evidence.Language, k Kind) *texts {
	if k != Certificate {
		return s.texts[language]
	}
	t := *s.texts[language]
	t.kindTexts = t.Certificate
	return &t
}
