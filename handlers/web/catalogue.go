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

	RecordTitle string
	RecordLead  string

	Choose, OrDrop, AnyType      string
	Privacy, NeedsScript         string
	Hashing, Asking              string
	Cancel, Cancelled, TryAgain  string
	OneFile, TooLarge            string
	Unreadable, CannotHash       string
	Offline, Busy, Failing, Wait string
	YourFile, ComputedHash       string
	Received, Checked            string
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
	Schemas, LimitsLink          string
	ContractNote, KeysNote       string
	SchemasNote                  string
	OlderContract, OlderNote     string
	NotFoundTitle, NotFoundText  string
	FailureTitle, FailureText    string
	FailureCode, BackToFront     string

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

func catalogue(language evidence.Language) *texts {
	if language == evidence.Spanish {
		return spanish()
	}
	return english()
}
