package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/say"
)

// Sums are the numbers of checked items.
type Sums struct {
	Records      int64 `json:"recordSignatures"`
	Certificates int64 `json:"certificateSignatures"`
	Texts        int64 `json:"texts"`
	// Items that could not be checked: erased texts, certificates whose signed text is erased or not supplied, signatures
	// by revoked keys whose public half is unknown.
	Erased      int64 `json:"erasedTexts"`
	Unsigned    int64 `json:"certificatesWithoutText"`
	UnknownKeys int64 `json:"signaturesByUnknownRevokedKeys"`
	// RevokedKeys counts, by keyId, signatures that verify but prove nothing because the key was revoked.
	RevokedKeys map[string]int64 `json:"signaturesByRevokedKeys"`
}

func (s *Sums) add(more Sums) {
	s.Records += more.Records
	s.Certificates += more.Certificates
	s.Texts += more.Texts
	s.Erased += more.Erased
	s.Unsigned += more.Unsigned
	s.UnknownKeys += more.UnknownKeys
	for key, n := range more.RevokedKeys {
		s.RevokedKeys[key] += n
	}
}

// History is the result for one organization.
type History struct {
	Organization string `json:"organization"`
	Events       int64  `json:"events"` // the last sequence
	// Digest is Head after the last event. A reader that keeps it, with the sequence, can detect later whether the history
	// was rewritten.
	Digest   string    `json:"historySha256"`
	Findings int64     `json:"findings"`
	First    *Finding  `json:"firstFinding"`
	Usage    []Used    `json:"usage"`
	Sums     Sums      `json:"checked"`
	all      []Finding // of at most most
}

// Used is the recomputed number of new versions in a month.
type Used struct {
	Period  string `json:"period"`
	Company string `json:"companyId"` // empty: the whole organization
	Used    int64  `json:"used"`
}

// Report is the result of a check.
type Report struct {
	Events        int64
	Organizations []History
	Findings      []Finding // the first ones of each organization, then those without one
	Count         int64     // of all findings
	Texts         int64     // named by the history, each counted once
	// Erasures lists the texts erased by events. While the ledger is in use, the checker cannot tell a restored text from
	// one that is not erased yet: the caller must look after it has read the events.
	Erasures []Erasure
	// Logs are the logs that were read, by shard, if positions were checked.
	Logs []Log
	// Damaged means that the log cannot be replayed: something other than signatures, texts and the comparison with a
	// former history failed. All findings count, including those not listed.
	Damaged    bool
	NotChecked []say.Sentence
}

// Log is how far a shard's log was read: its last position, and Head of the hashes of all its events.
type Log struct {
	Shard    domain.Shard
	Position int64
	Head     [sha256.Size]byte
}

// Erasure is a text that must no longer be stored.
type Erasure struct {
	Organization domain.OrganizationID
	Text         domain.TextID
	Sequence     int64 // of the event that erased it
}

// Found returns the finding that the text is still stored.
func (e Erasure) Found(place string) Finding {
	return Finding{
		Check: CheckText, Organization: e.Organization.String(), Sequence: e.Sequence, Place: place,
		Expected: say.Sentencef("the text %s gone, which this event erased", e.Text), Found: say.Sentencef("one"),
	}
}

// Finish ends the check. done, unless nil, is called with how many of PartCount parts have been replayed.
func (c *Checker) Finish(done func(parts int)) (Report, error) {
	if err := c.endFormer(); err != nil {
		return Report{}, err
	}
	if err := c.save(); err != nil {
		return Report{}, err
	}
	texts, err := c.replayParts(done)
	if err != nil {
		return Report{}, err
	}
	r := Report{Events: c.events, Organizations: []History{}, Texts: texts, Damaged: c.findings.damaged}
	for _, p := range c.places() {
		r.Logs = append(r.Logs, Log{p.Shard, p.Position, p.Head})
	}
	sums := Sums{RevokedKeys: map[string]int64{}}
	for _, h := range c.order {
		c.endTexts(h)
		history := h.report()
		r.Organizations = append(r.Organizations, history)
		r.Findings = append(r.Findings, history.all...)
		r.Count += history.Findings
		r.Damaged = r.Damaged || h.findings.damaged
		for id, sequence := range h.erasures {
			r.Erasures = append(r.Erasures, Erasure{h.id, id, sequence})
		}
		sums.add(h.sums)
	}
	r.Findings = append(r.Findings, c.findings.trim()...)
	r.Count += c.findings.count
	r.NotChecked = c.notChecked(sums)
	return r, nil
}

// endTexts reports texts that are missing although no event erased them.
func (c *Checker) endTexts(h *history) {
	byID := func(a, b domain.TextID) int { return bytes.Compare(a[:], b[:]) }
	for _, id := range slices.SortedFunc(maps.Keys(h.erased), byID) {
		if h.erasures[id] != 0 {
			h.sums.Erased++
			continue
		}
		h.findings.add(Finding{
			Check: CheckText, Organization: h.id.String(), Sequence: h.erased[id],
			Expected: say.Sentencef("the text %s, or a texts.erased event that names it", id),
			Found:    say.Sentencef("an empty one, and no such event"),
		})
	}
}

func (h *history) report() History {
	r := History{
		Organization: h.id.String(), Events: h.sequence, Digest: hex.EncodeToString(h.head[:]), Findings: h.findings.count,
		Usage: []Used{}, Sums: h.sums, all: h.findings.trim(),
	}
	if len(r.all) > 0 {
		r.First = new(r.all[0])
	}
	for _, k := range h.months() {
		r.Usage = append(r.Usage, Used{k.period.String(), k.company.String(), h.usage[k]})
	}
	return r
}

func (c *Checker) notChecked(s Sums) []say.Sentence {
	var not []say.Sentence
	add := func(n int64, some say.Sentence) {
		if n > 0 {
			not = append(not, some)
		}
	}
	add(s.Erased, say.Sentencef("%d texts that were erased: what they said", s.Erased))
	add(s.Unsigned,
		say.Sentencef("%d signatures of certificates whose signed text was erased or is not supplied", s.Unsigned))
	add(s.UnknownKeys,
		say.Sentencef("%d signatures by revoked keys that are not in the trusted-keys file", s.UnknownKeys))
	for _, key := range slices.Sorted(maps.Keys(s.RevokedKeys)) {
		not = append(
			not,
			say.Sentencef(
				"%d signatures by the revoked key %s: they fit, and a holder of the key can make more", s.RevokedKeys[key], key,
			),
		)
	}
	if c.WithoutTexts {
		not = append(not, say.Sentencef("erasable texts: they are not supplied"))
	}
	switch {
	case c.Since != nil:
	case c.former == nil:
		not = append(
			not,
			say.Sentencef("whether the history was rewritten as a whole, or its end cut off with all that depends on it: "+
				"compare it with a former bundle or exports to locked storage (--against), with the mark of an earlier audit "+
				"(--mark, --since), or with checkpoints that witnesses have cosigned (integrity monitor)"),
		)
	case c.Whole:
		not = append(
			not,
			say.Sentencef("whether the history of any organization but %s was rewritten as a whole, or its end cut off with "+
				"all that depends on it: the bundle contains no other. Compare each with its own bundle or exports to locked "+
				"storage (--against), or all with the mark of an earlier audit (--mark, --since)", c.former.Organization()),
		)
	}
	return append(not,
		say.Sentencef(
			"limits, quotas, scopes and roles, and whether a request had the secret of the key that acts: they are "+
				"not judged again",
		),
		say.Sentencef("the truth of times: they are the service's own clock"),
		say.Sentencef("anything outside the log: documents, what an origin declares, who a person is"))
}

// Check names a kind of finding. The set only grows.
type Check string

// Checks.
const (
	CheckReadable   Check = "readable"   // the row or line cannot be read
	CheckPosition   Check = "position"   // gapless within a shard
	CheckSequence   Check = "sequence"   // gapless within an organization, from 1
	CheckTime       Check = "time"       // never decreasing, except at a reset
	CheckHash       Check = "hash"       // RFC 6962 leaf hash of the stored members
	CheckCanonical  Check = "canonical"  // data is in RFC 8785 form
	CheckBinding    Check = "binding"    // redundant members agree
	CheckSignature  Check = "signature"  // of records and certificates
	CheckText       Check = "text"       // erasable texts by their salted hashes
	CheckHistory    Check = "history"    // an event can follow the events before it
	CheckActor      Check = "actor"      // no act of an ended key or member
	CheckUnique     Check = "unique"     // an id identifies one thing
	CheckFormer     Check = "former"     // history was only extended
	CheckHead       Check = "head"       // the rows beside the log agree with its end
	CheckProjection Check = "projection" // a row agrees with the log
	CheckStray      Check = "stray"      // no rows outside the shards of the ledger
	CheckLog        Check = "log"        // the transparency tree follows from the events, and its checkpoint is signed
	CheckFile       Check = "file"       // a file of a bundle or export agrees with its manifest
	CheckExport     Check = "export"     // the log continues what was exported to locked storage
)

// Finding is one fault. Zero members do not apply.
type Finding struct {
	Check        Check  `json:"check"`
	Organization string `json:"organization,omitempty"`
	Sequence     int64  `json:"sequence,omitempty"` // the organization's
	Shard        *int   `json:"shard,omitempty"`
	Position     int64  `json:"position,omitempty"` // the shard's
	Event        string `json:"event,omitempty"`
	// Place is a table with a row's key, or a file, if the finding is not about an event.
	Place    string       `json:"place,omitempty"`
	Expected say.Sentence `json:"expected"`
	Found    say.Sentence `json:"found"`
}

// String returns the finding in words.
func (f Finding) String() string { return f.Said().String() }

// Said is String in any language.
func (f Finding) Said() say.Sentence {
	var where []say.Sentence
	if f.Organization != "" {
		where = append(where, say.Sentencef(" organization %s", f.Organization))
	}
	if f.Sequence != 0 {
		where = append(where, say.Sentencef(" sequence %d", f.Sequence))
	}
	if f.Shard != nil {
		where = append(where, say.Sentencef(" shard %d", *f.Shard))
		if f.Position != 0 {
			where = append(where, say.Sentencef(" position %d", f.Position))
		}
	}
	if f.Place != "" {
		where = append(where, say.Sentencef(" %s", f.Place))
	}
	return say.Sentencef("%s:%s: expected %s, found %s", f.Check, say.Join(where, ""), f.Expected, f.Found)
}

// damages reports whether the finding means that the log cannot be replayed. An act of an ended key does not: earlier
// releases checked keys only at the beginning of a request, so a running request could finish after the key had ended,
// and its events stay.
func (f Finding) damages() bool {
	switch f.Check {
	case CheckText, CheckSignature, CheckActor, CheckFormer, CheckStray, CheckExport:
		return false
	}
	return true
}

// InShard sets the shard.
func (f Finding) InShard(shard domain.Shard) Finding {
	f.Shard = new(int(shard))
	return f
}

// most is the number of findings kept in words; further findings are only counted.
const most = 100

// findings keeps the first findings, by sequence.
type findings struct {
	all     []Finding
	count   int64
	damaged bool // one of the counted findings means that the log cannot be replayed
}

func (f *findings) add(more ...Finding) {
	f.count += int64(len(more))
	f.damaged = f.damaged || slices.ContainsFunc(more, Finding.damages)
	for _, one := range more {
		one.Expected, one.Found = kept(one.Expected), kept(one.Found)
		if f.all = append(f.all, one); len(f.all) > 2*most {
			f.trim()
		}
	}
}

// merge adds the findings and counts of others.
func (f *findings) merge(others *findings) {
	f.add(others.all...)
	f.count += others.count - int64(len(others.all))
	f.damaged = f.damaged || others.damaged
}

// kept returns a sentence that holds nothing of an event besides its own words. It returns only the beginning of a long
// one, in English. Findings are kept to the end, so the long actors and subjects of a hostile bundle must not be kept
// with them.
func kept(s say.Sentence) say.Sentence {
	const enough = 1000
	if text := s.String(); len(text) > enough {
		return say.Sentence{Format: strings.ToValidUTF8(text[:enough], "") + "…"}
	}
	args := slices.Clone(s.Args)
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = strings.Clone(arg)
		case say.Sentence:
			args[i] = kept(arg)
		case *say.Error:
			args[i] = kept(arg.Sentence)
		case say.Phrase: // holds little
		case error:
			args[i] = arg.Error()
		}
	}
	return say.Sentence{Format: s.Format, Args: args}
}

// trim sorts the findings by sequence; findings about one event keep their order.
func (f *findings) trim() []Finding {
	slices.SortStableFunc(f.all, func(a, b Finding) int { return cmp.Compare(a.Sequence, b.Sequence) })
	if len(f.all) > most {
		clear(f.all[most:])
		f.all = f.all[:most]
	}
	return f.all
}
