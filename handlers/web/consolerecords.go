package web

import "time"

// Problem explains on a page why its input was refused.
type Problem struct {
	Fields map[string]bool // the wrong fields
	Text   string          // any other problem
	Prove  string          // the page for a proof of identity, to open in another window; empty if needless
}

// Wrong reports whether a field is wrong.
func (p Problem) Wrong(field string) bool { return p.Fields[field] }

// RecordRow is a record in a list.
type RecordRow struct {
	PublicID, Company, Source, Document string
	Version                             int32
	Status                              string
	ReceivedAt                          time.Time
}

// Records is the page for searching and listing records.
type Records struct {
	Console   Console
	Find      string // the text of the search; empty if the records of a company are listed
	Whole     bool   // the search was complete
	Companies []string
	Filter    map[string]string // of the list, by the name of the API's parameter; nil for a search
	Problem   Problem
	Records   []RecordRow
	Older     string    // address of the next page; may be empty
	Empty     bool      // the company has no record
	MayAdd    bool      // the member may register files by hand
	Waiting   []Waiting // reservations that the text names, if no record has it
}

// Rows returns the records of the table.
func (r Records) Rows() []RecordRow { return r.Records }

// Statuses returns the statuses for the filter of the list.
func (r Records) Statuses() []string { return []string{"current", "superseded", "revoked"} }

// Records renders the page of records.
func (s ConsolePages) Records(r Records) ([]byte, error) {
	f := struct {
		consoleFrame
		Records
	}{s.consoleFrame(r.Console), r}
	f.Script = "consolerecords.js"
	return s.renderConsole("records.html", f)
}

// RecordPage is a record, with the versions of its document.
type RecordPage struct {
	Console                       Console
	Row                           RecordRow
	SHA256, MimeType              string
	GeneratedAt                   time.Time
	SizeBytes                     int64
	PreviousVersion, SupersededBy *int32
	RevokedAt                     *time.Time
	Versions                      []RecordRow // the highest first
	Older                         string      // address of the next versions
	MayRevoke, MayAdd             bool
	ByHand                        bool   // a person registered it in the console
	Timestamps                    bool   // evidence may include timestamps
	Log                           bool   // the service has a transparency log
	YourFile                      bool   // the search was for the record's own hash
	Link                          string // of the public page, for other people
	Reason                        string // of a revoked record, if the person may see it; of a revocation as typed
	// Only of a revocation.
	MaxReason int
	Problem   Problem
}

// Record renders the page of a record.
func (s ConsolePages) Record(p RecordPage) ([]byte, error) { return s.recordPage("record.html", p) }

// Revoke renders the page before a revocation.
func (s ConsolePages) Revoke(p RecordPage) ([]byte, error) { return s.recordPage("revoke.html", p) }

func (s ConsolePages) recordPage(name string, p RecordPage) ([]byte, error) {
	return s.renderConsole(name, struct {
		consoleFrame
		RecordPage
	}{s.consoleFrame(p.Console), p})
}
