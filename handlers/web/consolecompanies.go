package web

import "time"

// Companies is a page of companies, with the matrix of their access by keys.
type Companies struct {
	Console     Console
	Rows        []Company
	Manages     bool      // may create, close and reopen them, and grant them to keys
	Keys        []KeyName // columns of the matrix
	Save        string    // the address to which the matrix is sent
	First, Next string    // addresses of the first and the next companies; may be empty
	// Addresses of the first and the next keys; may be empty.
	FirstKeys, NextKeys string
	Error, Typed        string // the problem of the typed reference, as the texts name it
}

// Company is a row, with a cell for each key.
type Company struct {
	ID, Reference string
	CreatedAt     time.Time
	ClosedAt      *time.Time
	Granted       []bool
}

// KeyName names an API key for people; the name may be empty.
type KeyName struct{ ID, Name string }

// Companies renders a page of companies.
func (s ConsolePages) Companies(p Companies) ([]byte, error) {
	return s.renderConsole("companies.html", struct {
		consoleFrame
		Companies
	}{s.consoleFrame(p.Console), p})
}

// CompanyStatus renders the page that explains the effect of closing or reopening a company.
func (s ConsolePages) CompanyStatus(c Console, reference string) ([]byte, error) {
	return s.renderConsole("companies-status.html", struct {
		consoleFrame
		Reference string
	}{s.consoleFrame(c), reference})
}
