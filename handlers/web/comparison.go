package web

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"integrityledger/domain/evidence"
)

// MaxFile is the largest file that the page hashes, in bytes (specification, "Limits").
const MaxFile = 512 << 20

// Kind is the kind of a public id: what a file is compared with.
type Kind string

// The kinds. Their pages differ only in texts, in the requested address, and in how its answer is read
// (assets/page.js).
const (
	Record      Kind = "record"
	Certificate Kind = "certificate"
)

// Chosen is the query of a public id's page whose reader has chosen Spanish. Without it the address answers in the
// language that the browser prefers.
const Chosen = "lang=es"

// HashApart is the query of a public id's page that a person has reached with a text that has a hash too. The page says
// that it was not compared.
const HashApart = "hash=apart"

// Path returns the Spanish address of the page, for a public id or a variable of a route.
func (k Kind) Path(id string) string {
	path, _, _ := k.addresses(id)
	return path
}

// addresses returns the address of the page, the address that its script asks to compare a hash, and the name of the
// signed file for offline verification.
func (k Kind) addresses(id string) (path, ask, savedAs string) {
	if k == Certificate {
		return "/certificates/" + id, "/api/v1/certificates/" + id + "/verify", "certificate-" + id + ".json"
	}
	return "/integrity/" + id, "/api/public/integrity/" + id, "integrity-receipt-" + id + ".json"
}

// Limits returns the heading and the points of the fixed text on what this kind proves.
func (k Kind) Limits(language evidence.Language, relationship string) (title string, points []string) {
	if k == Certificate {
		return evidence.CertificateLimitsTitle(language), evidence.CertificateLimits(language, relationship)
	}
	return evidence.LimitsTitle(language), evidence.Limits(language, relationship)
}

// Comparison is the content of a public id's page. It names no reference and no person. It shows only those texts of an
// organization whose publication was authorized.
type Comparison struct {
	Kind     Kind
	Language evidence.Language
	PublicID string
	URL      string // of this page, as in its QR code
	// Result is the comparison without a file, or with the pasted hash.
	Result      string
	Values      Values
	Released    bool   // of a pending result: the organization has released the reservation
	Pasted      bool   // the visitor has pasted a hash
	Apart       bool   // the text that led here has a hash too, which was not compared
	HashInvalid bool   // the pasted text is not a hash
	Several     bool   // with HashInvalid: the pasted text has several hashes
	HashText    string // the pasted text, if it is not a hash
	// Of a validated record or certificate; otherwise zero.
	At                time.Time // of receipt, or of issue
	KeyID             string
	FingerprintSHA256 string
	AliasOf           string // the public id of the record that is kept, if PublicID is a former one
	Vouching          Vouching
	Log               bool // the service has a transparency log
	// Of a certificate, if their publication was authorized.
	CertifiedTitle, OrganizationName string
	// Publisher is what the organization of a validated record says about itself.
	Publisher Publisher
}

// Comparison renders the page on which a file is compared.
func (s *Site) Comparison(c Comparison) ([]byte, error) {
	t := s.catalogue(c.Language, c.Kind)
	path, ask, file := c.Kind.addresses(c.PublicID)
	f := s.newFrame(t, c.Language, t.CheckTitle, Path(Other(c.Language), path))
	f.Script = "page.js"
	f.publish(t.CheckLead)
	f.stay(c.Language)
	lines := t.lines(c.Language, c.Publisher)
	panelFor := func(p panel) panel {
		if p.Result == Pending && c.Released {
			p.Title, p.Text = t.ReleasedTitle, t.Released
			for i := range p.Checks {
				for j := range p.Checks[i].Choices {
					if c := &p.Checks[i].Choices[j]; c.Value == "pending" {
						c.Text = t.ReleasedState
					}
				}
			}
		}
		return p.of(lines)
	}
	var shown *panel
	if c.Result != FileNotCompared {
		p := panelFor(t.panel(c.Result, c.Values))
		shown = &p
	}
	switch { // screen readers read the title first, so it has the result of the form
	case c.HashInvalid && c.Several:
		f.Title = t.HashSeveral
	case c.HashInvalid:
		f.Title = t.HashInvalid
	case c.Pasted:
		f.Title = shown.Title
	}
	data := struct {
		frame
		Comparison
		Lines                *publisherLines
		Shown                *panel // nil until something is compared, unless nothing can be
		Seen, NotCompared    string // the state of the record if there is no panel
		Noticed              bool   // the reader must not miss it
		Blanks               []panel
		MaxFile              int
		Date, DateISO        string
		Vouched              string // who vouches for the record; may be empty
		Limits               limits
		Ask, Action, QR      string
		VerifyPage           string
		Receipt, ReceiptFile string // empty if there is no public signed file
		Report, Proof        string // likewise
		Command              string // for offline verification, with the names under which a browser saves the files
	}{
		frame: f, Comparison: c, Lines: lines, Shown: shown, MaxFile: MaxFile,
		Limits: s.limits(c.Kind, c.Language),
		Ask:    ask, Action: Path(c.Language, path), QR: path + "/qr.svg",
		VerifyPage: Path(c.Language, VerifyPath),
		Command:    "integrity verify " + file + " integrity-trusted-keys.json " + t.FileArgument,
	}
	if shown == nil {
		data.Seen, data.NotCompared = t.Seen[c.Values.State], t.Outcomes[FileNotCompared].Title
		data.Noticed = c.Values.State != "current" && c.Values.State != "valid"
	}
	if c.Kind == Record {
		data.Receipt, data.ReceiptFile = ask+"/receipt", file
		data.Report = ask + "/report?lang=" + string(c.Language)
		if c.Log {
			data.Proof = ask + "/tlog-proof"
		}
	}
	data.Vouched = c.Vouching.line(t.Vouch, c.Language)
	for _, result := range c.Kind.fileResults() {
		data.Blanks = append(data.Blanks, panelFor(t.blank(result)))
	}
	if !c.At.IsZero() {
		data.Date, data.DateISO = date(c.Language, c.At), evidence.FormatTime(c.At)
	}
	return s.render("comparison.html", data)
}

// Results with a panel: the results of the public comparison (specification), and Unavailable. A certificate's results
// have the same names: valid is MATCH_CURRENT, replaced is MATCH_HISTORICAL, revoked is RECORD_REVOKED, and none is
// pending. The result of a pasted hash has the same name and other texts.
const (
	MatchCurrent     = "MATCH_CURRENT"
	MatchHistorical  = "MATCH_HISTORICAL"
	HashMismatch     = "HASH_MISMATCH"
	RecordRevoked    = "RECORD_REVOKED"
	FileNotCompared  = "FILE_NOT_COMPARED"
	SignatureInvalid = "SIGNATURE_INVALID"
	Pending          = "REGISTRATION_PENDING"
	NotFound         = "RECORD_NOT_FOUND"
	Unavailable      = "UNAVAILABLE"
)

// fileResults returns the results that the script may have to show.
func (k Kind) fileResults() []string {
	results := []string{
		MatchCurrent, MatchHistorical, HashMismatch, RecordRevoked, FileNotCompared, SignatureInvalid, NotFound, Unavailable,
	}
	if k == Record {
		results = append(results, Pending)
	}
	return results
}

// Values are the values of the three checks in a panel. An empty value is shown as "none".
type Values struct {
	File      string // match, mismatch, hash-match, hash-mismatch
	Signature string // valid, invalid, untrusted
	State     string // of a record: current, superseded, revoked, pending; of a certificate: valid, replaced, revoked
}

// panel shows a result.
type panel struct {
	T      map[string]any
	Result string
	outcome
	Hash   bool // a hash was compared, not a file
	Checks []checkRow
	Note   string // why there is no answer
	Wait   string // seconds
	Facts  bool   // the script adds the properties of the file
	Lines  *publisherLines
}

// of adds the lines about the organization to the panel of a file that was found to be the record's.
func (p panel) of(lines *publisherLines) panel {
	if p.Result == MatchCurrent || p.Result == MatchHistorical || p.Result == RecordRevoked {
		p.Lines = lines
	}
	return p
}

type checkRow struct {
	Name, Label string
	Choices     []choice
}

// choice is a value with its text. A template contains all possible values, and the script removes all but one.
type choice struct{ Value, Text, Mark string }

// mark returns the sign next to a value: yes, no or none. A value that says nothing about the person's file has no
// sign, so that nothing looks verified.
func mark(file bool, value string) string {
	if !file {
		return "none"
	}
	switch value {
	case "match", "valid", "current":
		return "yes"
	case "mismatch", "invalid", "untrusted", "revoked":
		return "no"
	default:
		return "none"
	}
}

// choices returns the values of words in the order of their names.
func choices(file bool, words map[string]string) (list []choice) {
	for _, value := range slices.Sorted(maps.Keys(words)) {
		list = append(list, choice{value, words[value], mark(file, value)})
	}
	return list
}

// aboutFile reports whether the check of the file, and the checks of the record, say something about the person's file.
// After a mismatch the record is another file's.
func aboutFile(result string) (file, record bool) {
	return result != FileNotCompared, result != FileNotCompared && result != HashMismatch
}

// ofHash is the prefix of the values for a pasted hash.
const ofHash = "hash-"

// panel returns the panel of a result with these values.
func (t *texts) panel(result string, v Values) panel {
	hash := strings.HasPrefix(v.File, ofHash)
	one := func(about bool, value string, words map[string]string) []choice {
		value = cmp.Or(value, "none")
		return []choice{{value, words[value], mark(about && !hash, value)}}
	}
	file, record := aboutFile(result)
	p := t.panelOf(
		result, one(file, v.File, t.File), one(record, v.Signature, t.Signature), one(record, v.State, t.State),
	)
	if hash {
		p.Hash, p.outcome = true, t.Pasted[result]
	}
	return p
}

// blank returns the panel of a result with every value that it may have for a file.
func (t *texts) blank(result string) panel {
	compared, record := aboutFile(result)
	file := slices.DeleteFunc(choices(compared, t.File), func(c choice) bool { return strings.HasPrefix(c.Value, ofHash) })
	p := t.panelOf(result, file, choices(record, t.Signature), choices(record, t.State))
	p.Facts = true
	return p
}

func (t *texts) panelOf(result string, file, signature, state []choice) panel {
	signatureCheck, stateCheck := t.SignatureCheck, t.StateCheck
	if result == HashMismatch {
		signatureCheck, stateCheck = t.RecordSignature, t.RecordState
	}
	return panel{T: t.words, Result: result, outcome: t.Outcomes[result], Checks: []checkRow{
		{"file", t.FileCheck, file}, {"signature", signatureCheck, signature}, {"state", stateCheck, state},
	}}
}
