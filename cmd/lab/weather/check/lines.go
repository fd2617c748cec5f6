package check

import (
	"fmt"
	"strings"

	"integrityledger/cmd/lab/weather/history"
)

// lines builds the lines of all objects and has each decided.
func (c *checker) lines(decided func(func())) {
	m := newModels(c)
	for _, e := range c.events {
		m.event(e)
	}
	m.sequences()
	for i := range c.Calls {
		m.call(&c.Calls[i])
	}
	submit(c, decided, m.versions)
	submit(c, decided, m.documents)
	submit(c, decided, m.sequence)
	submit(c, decided, m.quotas)
	submit(c, decided, m.keys)
	submit(c, decided, m.access)
	submit(c, decided, m.artifacts)
}

func submit[S any](c *checker, decided func(func()), lines map[string]*line[S]) {
	for _, name := range sortedKeys(lines) {
		decided(func() { decide(c, lines[name]) })
	}
}

// models are the lines of each kind, by object.
type models struct {
	*checker
	versions  map[string]*line[version]
	documents map[string]*line[document]
	sequence  map[string]*line[int64]
	quotas    map[string]*line[int64]
	keys      map[string]*line[key]
	access    map[string]*line[bool]
	artifacts map[string]*line[artifact]

	artifactOf map[string]string // by version and by certificate
}

func newModels(c *checker) *models {
	return &models{
		checker: c, versions: map[string]*line[version]{}, documents: map[string]*line[document]{},
		sequence: map[string]*line[int64]{},
		quotas:   map[string]*line[int64]{}, keys: map[string]*line[key]{}, access: map[string]*line[bool]{},
		artifacts:  map[string]*line[artifact]{},
		artifactOf: map[string]string{},
	}
}

// at returns the line of a name, and creates it if it is missing.
func at[S any](lines map[string]*line[S], check Name, of string) *line[S] {
	l := lines[of]
	if l == nil {
		l = &line[S]{check: check, of: of}
		lines[of] = l
	}
	return l
}

// event adds the effects of an event in the log.
func (m *models) event(e *event) {
	switch e.Type {
	case reserved, released, registered, superseded, revoked, aliased:
		m.versionEvent(e)
		if e.Type == registered && e.charged() {
			m.takeUnit(e)
		}
	case keyCreated, keyRevoked, keyExpiry:
		m.keyEvent(e)
	case accessChanged:
		at(m.access, Access, e.KeyID+" "+e.Organization+"/"+m.reference(e)).happen(e, func(bool) (bool, string) {
			return e.Enabled, ""
		})
	default:
		if e.ArtifactID != "" {
			m.artifactEvent(e)
		}
	}
}

// call adds a call's observations.
func (m *models) call(c *history.Call) {
	if c.Outcome == history.Unknown {
		return
	}
	m.seenVersion(c)
	m.seenUse(c)
	m.seenKey(c)
	m.seenAccess(c)
	m.seenArtifact(c)
}

// sequences builds the line of each organization. All events of one call happen at once.
func (m *models) sequences() {
	for _, id := range sortedKeys(m.checker.sequences) {
		if m.organizations[id] == nil {
			continue
		}
		l := at(m.sequence, Sequence, id)
		list := m.checker.sequences[id]
		for len(list) > 0 {
			n := 1
			for n < len(list) && list[n].call != nil && list[n].call == list[0].call {
				n++
			}
			first, last := list[0].Sequence, list[n-1].Sequence
			l.happen(list[0], func(at int64) (int64, string) {
				if at != first-1 {
					return last, fmt.Sprintf("sequence %d comes after %d", first, at)
				}
				return last, ""
			})
			list = list[n:]
		}
	}
}

// seenUse adds a call's observations of its organization's sequence and usage.
func (m *models) seenUse(c *history.Call) {
	if m.organizations[c.Organization] == nil {
		return
	}
	if q := c.Answer.Sequence; q != 0 && c.Outcome == history.Answered {
		l := at(m.sequence, Sequence, c.Organization)
		if m.effect(c) == nil {
			l.observe(c, fmt.Sprintf("the sequence is %d", q), func(at int64) bool { return at == q })
		} else {
			l.observe(c, fmt.Sprintf("the sequence is at least %d", q), func(at int64) bool { return at >= q })
		}
	}
	if c.Outcome == history.Refused {
		if o := m.organizations[c.Organization]; c.Code == "REGISTRATION_QUOTA_EXHAUSTED" && o.VersionsPerMonth != nil {
			if period, ok := m.onlyPeriod(c.Organization); ok {
				m.quota(c.Organization, period).observe(c, "the month is used up", func(used int64) bool {
					return used >= *o.VersionsPerMonth
				})
			}
		}
		return
	}
	if used := c.Answer.Used; used != nil && c.Answer.Period != "" && m.effect(c) == nil {
		m.quota(c.Organization, c.Answer.Period).observe(c, fmt.Sprintf("%d versions are used", *used), func(at int64) bool {
			return at == *used
		})
	}
}

func (m *models) quota(organization, period string) *line[int64] {
	return at(m.quotas, Quota, organization+" "+period)
}

// onlyPeriod returns the month of all registrations of an organization, if there is only one. The services' clocks may
// be in different months, and a refusal does not name its month.
func (m *models) onlyPeriod(organization string) (string, bool) {
	var found []string
	for name := range m.quotas {
		if period, ok := strings.CutPrefix(name, organization+" "); ok {
			found = append(found, period)
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

// takeUnit adds a registration to its month.
func (m *models) takeUnit(e *event) {
	o := m.organizations[e.Organization]
	if o == nil {
		return
	}
	m.quota(e.Organization, e.Period).happen(e, func(used int64) (int64, string) {
		used++
		switch c := e.call; {
		case o.VersionsPerMonth != nil && used > *o.VersionsPerMonth && !e.healed:
			return used, fmt.Sprintf("it is version %d of %d", used, *o.VersionsPerMonth)
		case c != nil && c.Outcome == history.Answered && c.Answer.Used != nil && *c.Answer.Used != used:
			return used, fmt.Sprintf("the answer says that %d are used, but it is version %d of the month", *c.Answer.Used, used)
		}
		return used, ""
	})
}

// key is the state of an API key. An ending key works at least until one moment and at most until another.
type key struct {
	exists, ended, ending bool
	least, most           int64
}

func (m *models) keyEvent(e *event) {
	at(m.keys, Key, e.KeyID).happen(e, func(k key) (key, string) {
		switch {
		case e.Type == keyCreated && k.exists:
			return k, "the key exists"
		case e.Type == keyCreated:
			return key{exists: true}, ""
		case !k.exists:
			return k, "there is no such key"
		case e.Type == keyRevoked:
			k.ended = true
			return k, ""
		}
		k.ending, k.least, k.most = true, 0, never
		if c := e.call; c != nil && c.Operation == history.KeyRotate {
			overlap, skew := c.Request.OverlapSeconds*1e9, 2*m.Header.SkewNanoseconds+int64(1e9)
			k.least, k.most = max(0, e.after+overlap-skew), min(e.before, never-overlap-skew)+overlap+skew
		}
		return k, ""
	})
}

// seenKey adds whether a key worked for a call.
func (m *models) seenKey(c *history.Call) {
	if c.Key == "" {
		return
	}
	l := at(m.keys, Key, c.Key)
	now := *c // keys are looked up on the primary, whatever Integrity-Read-After says
	now.Request.ReadAfter = nil
	if a := c.Answer; c.Operation == history.KeyRead && c.Outcome == history.Answered {
		at(m.keys, Key, c.Request.Target).observe(c, "the key is "+a.KeyState, func(k key) bool {
			return k.exists && k.ended == (a.KeyState == "revoked") && (k.ended || k.ending == (a.KeyState == "ending"))
		})
	}
	switch {
	case c.Outcome == history.Refused && c.Code == "INVALID_KEY":
		l.observe(&now, "the key was refused", func(k key) bool {
			return !k.exists || k.ended || k.ending && c.End >= k.least
		})
	case c.Outcome == history.Answered, c.Status == 403, c.Status == 404, c.Status == 409, c.Status == 422:
		l.observe(&now, "the key worked", func(k key) bool {
			return k.exists && !k.ended && (!k.ending || c.Start <= k.most)
		})
	}
}

// seenAccess adds whether a call's key had its company.
func (m *models) seenAccess(c *history.Call) {
	if c.Key == "" || c.Organization == "" {
		return
	}
	now := *c
	now.Request.ReadAfter = nil
	see := func(company, says string, on bool) {
		at(m.access, Access, c.Key+" "+c.Organization+"/"+company).observe(&now, says, func(is bool) bool { return is == on })
	}
	company := c.Company
	if of, ok := m.ofCall(c); ok {
		company = of.company
	}
	switch {
	case c.Operation == history.KeyRead:
		if granted := c.Answer.Granted; company != "" && c.Outcome == history.Answered {
			at(m.access, Access, c.Request.Target+" "+c.Organization+"/"+company).observe(c,
				fmt.Sprintf("the key's access to the company is %t", granted), func(is bool) bool {
					return is == granted
				})
		}
	case c.Operation == history.Search && c.Outcome == history.Answered:
		for _, r := range c.Answer.Records {
			see(m.public[r.PublicID].company, "a record of the company was shown to the key", true)
		}
	case company == "":
	case c.Code == "COMPANY_NOT_AUTHORIZED":
		see(company, "the company was refused to the key", false)
	case needsCompany(c):
		see(company, "the company was open to the key", true)
	}
}

// needsCompany reports whether a call's outcome shows that its key had the company.
func needsCompany(c *history.Call) bool {
	switch c.Operation {
	case history.Register, history.Reserve, history.Lookup, history.FeedPage:
		switch c.Code {
		case "VERSION_CONFLICT", "REGISTRATION_QUOTA_EXHAUSTED", "RESERVATION_MISMATCH", "CURSOR_AHEAD":
			return true
		case "RECORD_NOT_FOUND":
			return c.Operation == history.Lookup
		}
		return c.Outcome == history.Answered
	case history.Record, history.EvidenceRead, history.Revoke, history.Release:
		return c.Outcome == history.Answered
	}
	return false
}
