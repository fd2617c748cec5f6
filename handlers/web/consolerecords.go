package web

import "time"

// Problem is what a page says of what was typed and refused.
type Problem struct {
	Fields map[string]bool // that are wrong
	Text   string          // what else is
	Prove  string          // where to prove who the person is first, in a window of its own; empty: no need
}

// Wrong reports whether a field is.
func (p Problem) Wrong(field string) bool { return p.Fields[field] }

// RecordRow is a record in a list.
type RecordRow struct {
	PublicID, Company, Source, Document string
	Version                             int32
	Status                              string
	ReceivedAt                          time.Time
}

// Records is the page on which records are searched for and listed.
type Records struct {
	Console   Console
	Find      string // what is searched for; empty: the records of a company are listed
	Whole     bool   // the search has seen everything
	Companies []string
	Filter    map[string]string // of the list, by the name of the API's parameter; nil where a search is shown
	Problem   Problem
	Records   []RecordRow
	Older     string // address of the records that follow; empty: there are no others
	Empty     bool   // the company has no record
	MaxFile   int    // bytes that a browser hashes
}

// Rows are the records of the table.
func (r Records) Rows() []RecordRow { return r.Records }

// Statuses are those that the list can be filtered by.
func (r Records) Statuses() []string { return []string{"current", "superseded", "revoked"} }

// Records renders it.
func (s ConsolePages) Records(r Records) ([]byte, error) {
	f := struct {
		consoleFrame
		Records
	}{s.consoleFrame(r.Console), r}
	f.Script = "consolerecords.js"
	return render(s.console, "records.html", f)
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
	Older                         string      // address of the versions that follow
	MayRevoke                     bool
	Timestamps                    bool   // evidence holds those that there are
	YourFile                      bool   // the page was found by the record's own hash
	Link                          string // of the public page, for others
	// Of a revocation.
	Reason    string // as it was typed
	MaxReason int
	Problem   Problem
}

// Record renders it.
func (s ConsolePages) Record(p RecordPage) ([]byte, error) { return s.recordPage("record.html", p) }

// Revoke renders the page that asks before a revocation.
func (s ConsolePages) Revoke(p RecordPage) ([]byte, error) { return s.recordPage("revoke.html", p) }

func (s ConsolePages) recordPage(name string, p RecordPage) ([]byte, error) {
	return render(s.console, name, struct {
		consoleFrame
		RecordPage
	}{s.consoleFrame(p.Console), p})
}
