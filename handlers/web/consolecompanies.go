package web

import "time"

// Companies is a page of companies, with the matrix of which keys may use them.
type Companies struct {
	Console     Console
	Rows        []Company
	Manages     bool      // may create, close and open them, and grant them to keys
	Keys        []KeyName // columns of the matrix
	Save        string    // where the matrix goes
	First, Next string    // addresses of the first companies and of the following ones; empty without them
	// The same of keys.
	FirstKeys, NextKeys string
	Error, Typed        string // what is wrong with the reference that was typed, as the texts name it
}

// Company is one of them, with a cell for each key.
type Company struct {
	ID, Reference string
	CreatedAt     time.Time
	ClosedAt      *time.Time
	Granted       []bool
}

// KeyName is what people know an API key by; the name may be empty.
type KeyName struct{ ID, Name string }

// Companies renders them.
func (s ConsolePages) Companies(p Companies) ([]byte, error) {
	return render(s.console, "companies.html", struct {
		consoleFrame
		Companies
	}{s.consoleFrame(p.Console), p})
}

// CompanyStatus renders what closing or opening a company does.
func (s ConsolePages) CompanyStatus(c Console, reference string) ([]byte, error) {
	return render(s.console, "companies-status.html", struct {
		consoleFrame
		Reference string
	}{s.consoleFrame(c), reference})
}
