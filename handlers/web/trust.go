package web

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// TrustPath is the Spanish address of the page that shows what witnesses and timestamp authorities have signed.
const TrustPath = "/trust"

// trustTexts are the texts of that page. A text with a verb of package fmt takes the values that its name says.
type trustTexts struct {
	Title, Lead                                               string
	OperatorNamed, OperatorUnnamed                            string // name
	Summary, Alone, Off, Empty, Unavailable                   string
	Checkpoint, CheckpointText, CheckpointHow                 string // size, time
	Witnesses, NoWitness, NoneCounts, WitnessNote, WitnessHow string
	WitnessCount                                              string // cosigned, that count
	Newest, Older, Never                                      string // time; size, time
	Own, NotPinned, NotConfigured, WitnessKey                 string
	Refused                                                   string // reason, time
	Reasons                                                   map[string]string
	Authorities, NoAuthority, AuthorityNote, AuthorityHow     string
	Stamped                                                   string // size, time, authority
	NotNewest, NotStamped, Certificate, NoCertificate         string
	Custody, CustodyNote, SigningKey, LogKey                  string
	Places                                                    map[string]string
	Keys, KeysNote, KeysHow                                   string
	Status                                                    map[string]string
	KeyOf                                                     map[string]string // signing, log
	KeySet, KeySetNone, KeySetUnknown, KeySetDiffers          string
	KeySetPayload, KeySetOld, KeySetHow                       string
	KeySetText, KeySetPending, KeySetBound, KeySetCosigned    string // time, entry; time; size; cosigned, that count
	Operator                                                  string
	OwnWitness, OwnWitnessText, OwnAddress, NoAddress         string
}

// vouchTexts are the texts of the line on a record's page.
type vouchTexts struct {
	Label, Alone, OneWitness string
	Witnesses                string // number
	Before                   string // time, authority
	More                     string // of the link to the page
}

// Vouching is what a record's page says about the parties besides the operator that bind it. The zero Vouching says
// nothing.
type Vouching struct {
	Known     bool
	Witnesses int
	Authority string
	Before    time.Time // zero without an authority
}

// line returns the sentences, empty if nothing is known.
func (v Vouching) line(t vouchTexts, language evidence.Language) (line string) {
	if !v.Known {
		return ""
	}
	switch {
	case v.Witnesses == 1:
		line = t.OneWitness
	case v.Witnesses > 1:
		line = fmt.Sprintf(t.Witnesses, v.Witnesses)
	}
	if v.Authority != "" {
		if line != "" {
			line += " "
		}
		line += fmt.Sprintf(t.Before, date(language, roundUp(v.Before)), v.Authority)
	}
	if line == "" {
		line = t.Alone
	}
	return line
}

// roundUp returns the first whole second that is not before a time: what existed before the time existed before that.
func roundUp(at time.Time) time.Time {
	if whole := at.Truncate(time.Second); !whole.Equal(at) {
		return whole.Add(time.Second)
	}
	return at
}

// trustSection is a part of the page: its facts, and how a reader can check them.
type trustSection struct {
	ID, Title  string
	Paragraphs []string
	Rows       []trustRow
	How        string
	Command    string
}

type trustRow struct {
	Name  string
	Lines []trustLine
}

// trustLine is a sentence, or a label with a value that is read by machines.
type trustLine struct {
	Text, Code string
	Strong     bool
}

// trustPage collects the sections of the page.
type trustPage struct {
	trustTexts
	view     wire.Independence
	language evidence.Language
	baseURL  string
	operated string // a sentence that names the operator; may be empty
}

// Trust renders the page that shows what witnesses and timestamp authorities have signed, and all keys.
func (s *Site) Trust(language evidence.Language, view wire.Independence) ([]byte, error) {
	t := s.catalogue(language, Record)
	f := s.newFrame(t, language, t.Trust.Title, Path(Other(language), TrustPath))
	f.Indexed = true
	f.publish(t.Trust.Lead)
	f.stay(language)
	p := trustPage{t.Trust, view, language, s.BaseURL, t.Trust.OperatorUnnamed}
	if s.OperatorName != "" {
		p.operated = fmt.Sprintf(t.Trust.OperatorNamed, s.OperatorName)
	}
	sections := []trustSection{p.summary()}
	if view.State == wire.LogPublished {
		sections = append(sections, p.checkpoint())
	}
	if view.State == wire.LogPublished || view.State == wire.LogEmpty {
		sections = append(sections, p.witnesses(), p.authorities())
	}
	sections = append(sections, p.keys())
	if view.State == wire.LogPublished || view.State == wire.LogEmpty {
		sections = append(sections, p.keySet())
	}
	sections = append(sections, p.custody(), p.operator())
	if view.Witness != nil {
		sections = append(sections, p.ownWitness())
	}
	return s.render("trust.html", struct {
		frame
		Sections []trustSection
	}{f, sections})
}

func (p trustPage) at(text string) string {
	at, _ := time.Parse(time.RFC3339, text) // the service wrote it, so it is valid
	return date(p.language, at)
}

func (p trustPage) before(text string) string {
	at, _ := time.Parse(time.RFC3339, text) // as above
	return date(p.language, roundUp(at))
}

// counts returns the number of witnesses that count, and the number of those that cosigned the newest checkpoint.
func (p trustPage) counts() (all, newest int) {
	for _, w := range p.view.Witnesses {
		if !w.Counts() {
			continue
		}
		all++
		if w.Cosignature != nil && w.Cosignature.Newest {
			newest++
		}
	}
	return all, newest
}

// stamped says what the newest token of an authority says.
func (p trustPage) stamped(a wire.IndependentAuthority) string {
	return fmt.Sprintf(p.Stamped, a.Stamp.TreeSize, p.before(a.Stamp.ExistedBefore), a.Name)
}

func (p trustPage) summary() trustSection {
	section := trustSection{ID: "summary", Title: p.Summary}
	say := func(text string) { section.Paragraphs = append(section.Paragraphs, text) }
	switch p.view.State {
	case wire.LogOff:
		say(p.Off)
	case wire.LogUnavailable:
		say(p.Unavailable)
	case wire.LogEmpty:
		say(p.Empty)
	case wire.LogPublished:
		all, newest := p.counts()
		if newest == 0 && !slices.ContainsFunc(p.view.TimestampAuthorities, func(a wire.IndependentAuthority) bool {
			return a.Stamp != nil && a.Stamp.Newest
		}) {
			say(p.Alone)
		}
		switch {
		case len(p.view.Witnesses) == 0:
			say(p.NoWitness)
		case all == 0:
			say(p.NoneCounts)
		default:
			say(fmt.Sprintf(p.WitnessCount, newest, all))
		}
		if len(p.view.TimestampAuthorities) == 0 {
			say(p.NoAuthority)
		}
		for _, a := range p.view.TimestampAuthorities {
			if a.Stamp != nil {
				say(p.stamped(a))
			}
		}
	}
	return section
}

func (p trustPage) checkpoint() trustSection {
	c := p.view.Checkpoint
	return trustSection{
		ID: "checkpoint", Title: p.Checkpoint,
		Paragraphs: []string{fmt.Sprintf(p.CheckpointText, c.TreeSize, p.at(c.SignedAt))},
		How:        p.CheckpointHow, Command: "curl -s " + p.baseURL + "/api/public/log/checkpoint",
	}
}

func (p trustPage) witnesses() trustSection {
	section := trustSection{ID: "witnesses", Title: p.Witnesses}
	if len(p.view.Witnesses) == 0 {
		section.Paragraphs = []string{p.NoWitness}
		return section
	}
	section.Paragraphs = []string{p.WitnessNote}
	for _, w := range p.view.Witnesses {
		row := trustRow{Name: w.Name}
		line := func(text string, strong bool) { row.Lines = append(row.Lines, trustLine{Text: text, Strong: strong}) }
		switch c := w.Cosignature; {
		case c == nil:
			line(p.Never, true)
		case c.Newest:
			line(fmt.Sprintf(p.Newest, p.at(c.CosignedAt)), false)
		default:
			line(fmt.Sprintf(p.Older, c.TreeSize, p.at(c.CosignedAt)), true)
		}
		if w.Refusal != nil {
			line(fmt.Sprintf(p.Refused, p.at(w.Refusal.At), p.Reasons[w.Refusal.Reason]), true)
		}
		if w.Own {
			line(p.Own, true)
		}
		if !w.Pinned {
			line(p.NotPinned, false)
		}
		if !w.Configured {
			line(p.NotConfigured, false)
		}
		row.Lines = append(row.Lines, trustLine{Text: p.WitnessKey, Code: w.FingerprintSHA256})
		section.Rows = append(section.Rows, row)
	}
	section.How = p.WitnessHow
	section.Command = "curl -fsS -o integrity-trusted-keys.json " + p.baseURL +
		"/.well-known/integrity-trusted-keys.json\n" +
		"integrity monitor " + p.baseURL + " --trusted-keys integrity-trusted-keys.json --state log.json"
	if _, newest := p.counts(); newest > 0 {
		section.Command += " --require-witnesses " + strconv.Itoa(newest)
	}
	return section
}

func (p trustPage) authorities() trustSection {
	section := trustSection{ID: "authorities", Title: p.Authorities}
	if len(p.view.TimestampAuthorities) == 0 {
		section.Paragraphs = []string{p.NoAuthority}
		return section
	}
	section.Paragraphs = []string{p.AuthorityNote}
	after := int64(0)
	for _, a := range p.view.TimestampAuthorities {
		row := trustRow{Name: a.Name}
		if s := a.Stamp; s == nil {
			row.Lines = append(row.Lines, trustLine{Text: p.NotStamped, Strong: true})
		} else {
			row.Lines = append(row.Lines, trustLine{Text: p.stamped(a)})
			if !s.Newest {
				row.Lines = append(row.Lines, trustLine{Text: p.NotNewest})
			}
			after = max(after, s.TreeSize-1)
		}
		for _, fingerprint := range a.CertificateSHA256 {
			row.Lines = append(row.Lines, trustLine{Text: p.Certificate, Code: fingerprint})
		}
		if len(a.CertificateSHA256) == 0 {
			row.Lines = append(row.Lines, trustLine{Text: p.NoCertificate, Strong: true})
		}
		section.Rows = append(section.Rows, row)
	}
	section.How = p.AuthorityHow
	section.Command = fmt.Sprintf("curl -s '%s/api/public/log/timestamps?after=%d' > page.json\n", p.baseURL, after) +
		"jq -j '.timestamps[0].checkpoint' page.json > note\n" +
		"jq -r '.timestamps[0].token' page.json | base64 -d > token\n" +
		"openssl ts -verify -data note -token_in -in token -CAfile root.pem"
	return section
}

func (p trustPage) keys() trustSection {
	section := trustSection{
		ID: "keys", Title: p.Keys, Paragraphs: []string{p.KeysNote}, How: p.KeysHow,
		Command: "curl -s " + p.baseURL + "/.well-known/integrity-trusted-keys.json | " +
			"jq -r '.keys[].fingerprintSha256, .logKeys[].verifierKey'",
	}
	row := func(name, status string, lines ...trustLine) {
		section.Rows = append(section.Rows, trustRow{Name: name, Lines: append([]trustLine{{
			Text: p.Status[status], Strong: status == evidence.ReasonCompromised || status == evidence.ReasonRevoked,
		}}, lines...)})
	}
	for _, k := range p.view.SigningKeys {
		row(p.KeyOf["signing"], k.Status, trustLine{Text: "SHA-256", Code: k.FingerprintSHA256},
			trustLine{Text: "keyId", Code: k.KeyID})
	}
	for _, k := range p.view.LogKeys {
		row(p.KeyOf["log"], k.Status, trustLine{Text: "SHA-256", Code: k.FingerprintSHA256},
			trustLine{Text: "verifier key", Code: k.VerifierKey})
	}
	return section
}

// keySet shows which keys the log binds, and which checkpoint covers them.
func (p trustPage) keySet() trustSection {
	section := trustSection{ID: "key-set", Title: p.KeySet}
	say := func(text string) { section.Paragraphs = append(section.Paragraphs, text) }
	k := p.view.KeySet
	if k == nil {
		say(map[wire.KeySetState]string{
			wire.KeySetNone: p.KeySetNone, wire.KeySetUnknown: p.KeySetUnknown, wire.KeySetDiffers: p.KeySetDiffers,
		}[p.view.KeySetState])
		return section
	}
	if k.LeafIndex != nil && k.TreeSize != nil {
		say(fmt.Sprintf(p.KeySetText, p.at(k.PublishedAt), *k.LeafIndex) + " " + fmt.Sprintf(p.KeySetBound, *k.TreeSize))
		all, cosigned := 0, 0
		for _, w := range p.view.Witnesses {
			if !w.Counts() {
				continue
			}
			all++
			if w.Cosignature != nil && w.Cosignature.TreeSize > *k.LeafIndex {
				cosigned++
			}
		}
		if all > 0 {
			say(fmt.Sprintf(p.KeySetCosigned, cosigned, all))
		}
	} else {
		say(fmt.Sprintf(p.KeySetPending, p.at(k.PublishedAt)))
	}
	if !k.Newest {
		say(p.KeySetOld)
	}
	section.Rows = []trustRow{{Name: p.KeySetPayload, Lines: []trustLine{{Text: "SHA-256", Code: k.PayloadSHA256}}}}
	section.How = p.KeySetHow
	section.Command = "curl -s " + p.baseURL + "/api/public/log/keys > keys.tlog-proof\n" +
		"integrity verify-keys keys.tlog-proof --log-key VERIFIER_KEY"
	return section
}

func (p trustPage) custody() trustSection {
	c := p.view.Custody
	return trustSection{
		ID: "custody", Title: p.Custody, Paragraphs: []string{p.CustodyNote}, Rows: []trustRow{
			{Name: p.SigningKey, Lines: []trustLine{{Text: p.Places[string(c.SigningKey)]}}},
			{Name: p.LogKey, Lines: []trustLine{{Text: p.Places[string(c.LogKey)]}}},
		},
	}
}

func (p trustPage) operator() trustSection {
	text := p.view.Relationship.EN
	if p.language == evidence.Spanish {
		text = p.view.Relationship.ES
	}
	return trustSection{ID: "operator", Title: p.Operator, Paragraphs: []string{p.operated, text}}
}

func (p trustPage) ownWitness() trustSection {
	w := p.view.Witness
	lines := []trustLine{{Text: p.WitnessKey, Code: w.FingerprintSHA256}, {Text: "verifierKey", Code: w.VerifierKey}}
	if w.Address != nil {
		lines = append(lines, trustLine{Text: p.OwnAddress, Code: *w.Address})
	} else {
		lines = append(lines, trustLine{Text: p.NoAddress})
	}
	return trustSection{
		ID: "witness", Title: p.OwnWitness, Paragraphs: []string{p.OwnWitnessText},
		Rows: []trustRow{{Name: w.Name, Lines: lines}},
	}
}
