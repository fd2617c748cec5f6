package web

import "integrityledger/domain/evidence"

// texts are the words of the pages in one language. Every member of both is
// filled in; what is and is not proven comes from domain/evidence, and the codes
// of the API from where they are answered.
type texts struct {
	Lang          string // BCP 47, of the page
	Locale        string // of dates and numbers
	OtherLanguage string
	OtherLang     string
	Skip          string
	Brand         string
	ServicePage   string
	Contract      string
	TrustedKeys   string
	FooterNote    string

	CheckTitle string
	CheckLead  string

	Choose, OrDrop, AnyType      string
	Privacy, NeedsScript         string
	Hashing, Asking              string
	Cancel, Cancelled, TryAgain  string
	OneFile, TooLarge            string
	Unreadable, CannotHash       string
	Offline, Busy, Failing, Wait string
	YourFile, ComputedHash       string
	Dated, Checked               string
	NotEstablished               string
	FileCheck, SignatureCheck    string
	StateCheck                   string
	File, Signature, State       map[string]string
	HashTitle, HashLead          string
	HashLabel, HashHint          string
	HashButton, HashInvalid      string
	DetailsTitle, KeyID          string
	Fingerprint, Receipt         string
	ReceiptNote, NoDetails       string
	PublicID, Declared           string
	Title, Organization, Words   string
	QRTitle, QRAlt, QRNote       string
	OperatorTitle, NoDownload    string
	OfflineTitle                 string
	OfflineSteps                 []string
	FileArgument, OfflineNote    string
	Outcomes                     map[string]outcome
	FrontTitle, FrontLead        string
	FrontHowTitle                string
	FrontHow                     []string
	FrontLinkTitle, FrontLink    string
	FrontDevelopers              string
	GuidesLink, GuidesNote       string
	Schemas, LimitsLink          string
	ContractNote, KeysNote       string
	SchemasNote                  string
	OlderContract, OlderNote     string
	NotFoundTitle, NotFoundText  string
	FailureTitle, FailureText    string
	FailureCode, BackToFront     string
	Developers                   developerTexts
	Verify                       verifyTexts

	Links                          map[string]linkText // by state
	LinkOrganization, LinkProvider string
	LinkUntil, LinkConsent         string
	LinkScopes                     map[string]string
	LinkWithdraw, LinkButton       string
	LinkNumber, LinkEndpoint       string
	LinkCookie                     string
}

// linkText says where a link stands.
type linkText struct{ Title, Text string }

// outcome explains a result: what is established, and what is not.
type outcome struct{ Title, Text, Not string }

// verifyTexts are the words of the page that verifies evidence offline. Reasons and
// Notes are by the codes of assets/verifier.js.
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

func catalogue(language evidence.Language) *texts {
	if language == evidence.Spanish {
		return spanish()
	}
	return english()
}

// catalogue is the words of a page of this kind; no kind is a record's.
func (k Kind) catalogue(language evidence.Language) *texts {
	t := catalogue(language)
	switch {
	case k != Certificate:
	case language == evidence.Spanish:
		certificateSpanish(t)
	default:
		certificateEnglish(t)
	}
	return t
}
