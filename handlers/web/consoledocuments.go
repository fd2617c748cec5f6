package web

import (
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
)

// Documents is the list of an organization's documents.
type Documents struct {
	Console   Console
	Documents []DocumentVersion // the newest version of each
	Older     string            // address of the next page; may be empty
	MayAdd    bool
}

// DocumentVersion is a version of a document. Texts are nil once erased.
type DocumentVersion struct {
	ID, Document               string
	Number                     int32
	Kind                       domain.ContentKind
	Title, FileName, MediaType *string
	SHA256                     string
	SizeBytes                  int64
	Stage                      string // a state, changes_requested, replaced or revoked
	RegisteredAt               time.Time
	KeptUntil, ErasedAt        *time.Time // of the content

	// Only of the version that the page of a document shows.

	Reviews     []Statement // the oldest first
	Approval    *Statement
	Certificate *DocumentCertificate
}

// Statement is a member's statement about a version.
type Statement struct {
	By      string
	At      time.Time
	Text    *string // nil once erased
	Outcome string  // of a review
}

// DocumentCertificate is the certificate of a version.
type DocumentCertificate struct {
	PublicID, Status      string
	IssuedAt              time.Time
	RevokedAt, ReplacedAt *time.Time
	PublicFields          []string
}

// Documents renders the list of documents.
func (s ConsolePages) Documents(d Documents) ([]byte, error) {
	return s.renderConsole("documents.html", struct {
		consoleFrame
		Documents
	}{s.consoleFrame(d.Console), d})
}

// Upload is the page for uploading a file, as a new document or a version of one.
type Upload struct {
	Console  Console
	To       string // path of the console to which the file is sent
	Newest   *DocumentVersion
	MaxFile  int64
	MaxTitle int
}

// Upload renders the page for uploading a file.
func (s ConsolePages) Upload(u Upload) ([]byte, error) {
	f := struct {
		consoleFrame
		Upload
	}{s.consoleFrame(u.Console), u}
	f.Script = "consoledocuments.js"
	return s.renderConsole("document-upload.html", f)
}

// DocumentPage is a document with one of its versions.
type DocumentPage struct {
	Console  Console
	Version  DocumentVersion
	Versions []DocumentVersion // the highest first
	Report   *domain.AnalysisCompletedBody
	Steps    []string // that the member may take with the version
	MayAdd   bool
	Later    bool // a later version has a certificate

	// Only of a step.

	Form                                 StepForm
	Problem                              Problem
	BaseURL, Issuer                      string // of the service
	MaxFile                              int64
	MaxManifest, MaxStatement, MaxReason int
}

// Outcomes returns the outcomes of detectors, those that deserve attention first.
func (DocumentPage) Outcomes() []string {
	return []string{
		string(analysis.Finding), string(analysis.Inconclusive), string(analysis.Clear), string(analysis.NotApplicable),
	}
}

// StepForm is the input of a step.
type StepForm struct {
	Statement                    string
	Consent, Title, Organization bool
}

// Found returns the results of the detectors with an outcome.
func (p DocumentPage) Found(outcome string) (found []domain.DetectorResult) {
	for _, d := range p.Report.Detectors {
		if d.Outcome == outcome {
			found = append(found, d)
		}
	}
	return found
}

// Document renders the page of a document.
func (s ConsolePages) Document(p DocumentPage) ([]byte, error) {
	return s.renderConsole("document.html", s.documentFrame(p))
}

// DocumentStep renders the page of a step with the template of its name.
func (s ConsolePages) DocumentStep(p DocumentPage) ([]byte, error) {
	f := s.documentFrame(p)
	if p.Console.Name == "document-review" {
		f.Script = "consoledocuments.js"
	}
	return s.renderConsole(p.Console.Name+".html", f)
}

type documentFrame struct {
	consoleFrame
	DocumentPage
}

func (s ConsolePages) documentFrame(p DocumentPage) documentFrame {
	return documentFrame{s.consoleFrame(p.Console), p}
}

// CertificatePath returns the public page of a certificate in this language.
func (f documentFrame) CertificatePath(publicID string) string {
	return Path(f.Language, Certificate.Path(publicID))
}
