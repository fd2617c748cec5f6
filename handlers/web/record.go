package web

import (
	"time"

	"integrityledger/domain/evidence"
)

// MaxFile is the largest file that the page hashes, in bytes (specification, "Limits").
const MaxFile = 512 << 20

// Record is what the page of a public id shows. It names nobody and nothing but
// the id: no reference, no person.
type Record struct {
	Language evidence.Language
	PublicID string
	URL      string // the verification link
	// Result is the comparison without a file, or with the hash that was pasted.
	Result string
	Values Values
	// Pasted says that Values.File is about a hash that somebody pasted.
	Pasted      bool
	HashInvalid bool   // what was pasted is no hash
	HashText    string // as it was pasted, where it is no hash
	// Of a validated registration; zero and empty otherwise.
	ReceivedAt        time.Time
	KeyID             string
	FingerprintSHA256 string
}

// Record renders the page on which a file is compared.
func (s *Site) Record(r Record) ([]byte, error) {
	t := catalogue(r.Language)
	f := newFrame(r.Language, t.RecordTitle, Path(other(r.Language), "/integrity/"+r.PublicID))
	f.Script = "page.js"
	switch { // what the form led to is the first thing that a screen reader says of the page
	case r.HashInvalid:
		f.Title = t.HashInvalid
	case r.Pasted:
		f.Title = t.Outcomes[r.Result].Title
	}
	limits := evidence.Limits(r.Language, s.relationship[r.Language])
	last := len(limits) - 1
	receiptFile := "integrity-receipt-" + r.PublicID + ".json"
	data := struct {
		frame
		Record
		Shown                 panel
		Blanks                []panel
		MaxFile               int
		Received, ReceivedISO string
		LimitsTitle           string
		Limits                []string
		Operator              string
		Action, QR            string
		Receipt, ReceiptFile  string
		Command               string // to verify offline, with the names under which a browser saves the files
	}{
		frame: f, Record: r, Shown: t.panel(r.Result, r.Values), MaxFile: MaxFile,
		LimitsTitle: evidence.LimitsTitle(r.Language), Limits: limits[:last], Operator: limits[last],
		Action:  Path(r.Language, "/integrity/"+r.PublicID),
		QR:      "/integrity/" + r.PublicID + "/qr.svg",
		Receipt: "/api/public/integrity/" + r.PublicID + "/receipt", ReceiptFile: receiptFile,
		Command: "integrity verify " + receiptFile + " integrity-trusted-keys.json " + t.FileArgument,
	}
	for _, result := range fileResults() {
		data.Blanks = append(data.Blanks, t.blank(result))
	}
	if !r.ReceivedAt.IsZero() {
		data.Received, data.ReceivedISO = date(r.Language, r.ReceivedAt), evidence.FormatTime(r.ReceivedAt)
	}
	return s.render("record.html", data)
}
