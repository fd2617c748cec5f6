// Package checktest generates histories of a correct ledger. The checker must accept them, and tests then corrupt them.
// Calls overlap, answers get lost, and some requests take effect after their clients have given up.
package checktest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain/evidence"
)

// The files beside the history.
const (
	trustFile  = "trusted-keys.json"
	leavesFile = "leaves"
)

// Now is when a simulated run began, by its service's clock. Verifiers should use a clock one hour later.
var Now = epoch

type simulation struct {
	*ledger
	*rand.Rand
	h       *history.History
	numbers int64
	cursors map[string]int64
	past    map[string][]history.Call // answered look-ups, by version
}

// Signer signs checkpoints as the simulated log does.
func Signer() (note.Signer, error) {
	l, err := newLedger()
	return l.notes, err
}

// Sign signs a payload as the simulated service does.
func Sign(payload []byte) (evidence.Signed, error) {
	l, err := newLedger()
	if err != nil {
		return evidence.Signed{}, err
	}
	return l.signer.SignPayload(payload)
}

// Simulate creates a history of many calls in a directory. The same seed gives the same history.
func Simulate(directory string, seed uint64, calls int) (*history.History, error) {
	l, err := newLedger()
	if err != nil {
		return nil, err
	}
	s := &simulation{
		ledger: l, Rand: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // must be reproducible
		cursors: map[string]int64{}, past: map[string][]history.Call{},
		h: &history.History{Directory: directory, Header: history.Header{
			Seed: seed, StartedAt: "2026-11-26T10:00:00Z", Seconds: 60, Versions: map[string]string{"service": "simulated"},
		}},
	}
	s.found()
	for range calls {
		s.step()
	}
	s.heal()
	return s.h, s.end()
}

// found creates the organizations. The second one has few versions a month.
func (s *simulation) found() {
	for i, name := range []string{"a", "b"} {
		o := &organization{
			Organization: history.Organization{ID: "org_" + name, Name: name, Plan: "pro"}, shard: i,
			byCompany: map[string]int64{},
			documents: map[string]*document{}, keys: map[string]*apikey{}, kept: map[string]history.Call{},
		}
		if i == 1 {
			o.VersionsPerMonth = new(int64(20))
		}
		s.organizations = append(s.organizations, o)
		s.put(o, "setup", "organization.created", "", o.ID, map[string]any{})
		for n := range 2 {
			company := history.Company{ID: s.id("com"), Reference: fmt.Sprintf("c-%d", n)}
			o.Companies = append(o.Companies, company)
			s.put(o, "setup", "company.created", company.Reference, company.ID, map[string]any{"reference": company.Reference})
		}
		for range 3 {
			s.newKey(o, "setup")
		}
	}
}

func (s *simulation) newKey(o *organization, request string) *apikey {
	k := &apikey{id: s.id("key"), grants: map[string]bool{}}
	o.keys[k.id] = k
	s.put(o, request, "key.created", "", k.id, map[string]any{"keyId": k.id})
	for _, company := range o.Companies {
		s.grant(o, k, request, company.Reference, true)
	}
	return k
}

func (s *simulation) grant(o *organization, k *apikey, request, company string, on bool) {
	if k.grants[company] != on {
		k.grants[company] = on
		s.put(o, request, "company.access_changed", company, k.id, map[string]any{"keyId": k.id, "enabled": on})
	}
}

// one returns a random element.
func one[T any](s *simulation, list []T) T { return list[s.IntN(len(list))] }

// keyOf usually returns a working key. The first key of an organization is never revoked.
func (s *simulation) keyOf(o *organization) string {
	ids := make([]string, 0, len(o.keys))
	for id := range o.keys {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if s.IntN(2) == 0 {
		return ids[0]
	}
	return one(s, ids)
}

// do makes one call. If the call reaches the ledger, act happens at one moment.
func (s *simulation) do(c history.Call, act func(c *history.Call)) history.Call {
	s.now += 1 + s.Int64N(2000)
	s.numbers++
	c.Number, c.RequestID, c.Client, c.Service = s.numbers, fmt.Sprintf("r-%d", s.numbers),
		fmt.Sprint("client-", s.IntN(8)), fmt.Sprint("service-", s.IntN(3))
	c.Start, c.End = s.now-s.Int64N(min(s.now, 6000)), s.now+s.Int64N(6000)
	fate := s.IntN(100)
	if fate >= 4 {
		act(&c)
	}
	if fate < 8 { // the request or its answer was lost
		c.Outcome, c.Status, c.Code, c.Answer = history.Unknown, 503, "TEMPORARILY_UNAVAILABLE", history.Answer{}
		if s.IntN(2) == 0 { // the client gave up before it happened
			c.End = c.Start + s.Int64N(s.now-c.Start+1)
		}
	}
	s.h.Calls = append(s.h.Calls, c)
	return c
}

func (s *simulation) step() {
	o := one(s, s.organizations)
	company := one(s, o.Companies).Reference
	c := history.Call{Organization: o.ID, Company: company, Key: s.keyOf(o)}
	number := int32(1 + s.IntN(4))
	c.Request = history.Request{
		Source: "erp", Document: fmt.Sprint("d-", s.IntN(25)), Version: number, SizeBytes: 10, MimeType: "application/pdf",
		GeneratedAt: "2026-11-25T00:00:00Z",
	}
	name := fmt.Sprint(company, c.Request.Document, number)
	c.Request.Hash = hash(name)
	switch s.IntN(18) {
	case 0, 1, 2, 3:
		if s.IntN(5) == 0 {
			c.Request.Hash = hash(name + " changed")
		}
		c.Operation = history.Register
		if s.do(c, func(c *history.Call) { s.admitted(o, c, s.register) }).Outcome == history.Unknown {
			s.lookup(o, c)
			s.do(c, func(c *history.Call) { s.admitted(o, c, s.register) })
		}
	case 4:
		act := s.reserve
		c.Operation = history.Reserve
		if d := o.documents[company+"/erp/"+c.Request.Document]; number == 4 && d != nil && d.versions[number] != nil &&
			d.versions[number].publicID != "" {
			act = s.release
			c.Operation, c.Request = history.Release, history.Request{PublicID: d.versions[number].publicID}
		}
		s.do(c, func(c *history.Call) { s.admitted(o, c, act) })
	case 5:
		s.revokeSome(o, c)
	case 6, 7, 8:
		s.lookup(o, c)
	case 9:
		s.compare(o, c)
	case 10, 11:
		s.page(o, c)
	case 12:
		s.searchOrUse(o, c)
	case 13:
		s.changeKeys(o, c)
	case 14, 16, 17:
		s.certification(o, c)
	case 15:
		s.batch(o, c)
	}
	if s.IntN(40) == 0 {
		s.h.End.Checkpoints = append(
			s.h.End.Checkpoints, history.Checkpoint{Seen: s.now, By: "monitor", Note: s.checkpoint()},
		)
	}
	if s.IntN(60) == 0 {
		s.numbers++
		s.h.Faults = append(
			s.h.Faults, history.Fault{Number: s.numbers, Name: "kill", Target: "service-1", Start: s.now, End: s.now + 5000},
		)
	}
}

func (s *simulation) admitted(o *organization, c *history.Call, act func(*organization, *history.Call)) {
	if o.admit(c) {
		act(o, c)
	}
}

// somePublicID returns one of the organization's public IDs, or an empty one.
func (s *simulation) somePublicID(o *organization) (string, *document, int32) {
	var keys []string
	for key := range o.documents {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		return "", nil, 0
	}
	d := o.documents[one(s, keys)]
	number := int32(1 + s.IntN(4))
	if v := d.versions[number]; v != nil {
		return v.publicID, d, number
	}
	return "", nil, 0
}

func (s *simulation) revokeSome(o *organization, c history.Call) {
	id, d, _ := s.somePublicID(o)
	if id == "" || s.IntN(2) == 0 {
		return
	}
	c.Operation, c.Company, c.Request = history.Revoke, "", history.Request{PublicID: id}
	s.do(c, func(c *history.Call) { s.admitted(o, c, s.revoke) })
	_ = d
}

// lookup looks up a version, sometimes on a replica that lags.
func (s *simulation) lookup(o *organization, c history.Call) {
	c.Operation = history.Lookup
	c.Request = history.Request{Source: c.Request.Source, Document: c.Request.Document, Version: c.Request.Version}
	name := fmt.Sprint(o.ID, c.Company, c.Request.Document, c.Request.Version)
	s.do(c, func(c *history.Call) {
		s.admitted(o, c, func(o *organization, c *history.Call) {
			if s.IntN(3) == 0 {
				c.Request.ReadAfter = new(o.sequence)
				if old := s.past[name]; len(old) > 0 { // Limit holds that answer's sequence; see below
					before := old[s.IntN(len(old))]
					c.Request.ReadAfter = new(int64(before.Request.Limit) - s.Int64N(3))
					c.Answer, c.Outcome, c.Status, c.Code = before.Answer, before.Outcome, before.Status, before.Code
					return
				}
			}
			if d := o.documents[c.Company+"/erp/"+c.Request.Document]; d != nil && d.versions[c.Request.Version] != nil &&
				d.versions[c.Request.Version].registered {
				c.Answer.RecordAnswer = d.record(c.Request.Version)
			} else {
				refuse(c, 404, "RECORD_NOT_FOUND")
			}
			kept := *c
			kept.Request.Limit = int(o.sequence)
			s.past[name] = append(s.past[name], kept)
		})
	})
}

func (s *simulation) compare(o *organization, c history.Call) {
	id, d, number := s.somePublicID(o)
	if id == "" {
		return
	}
	content := hash(fmt.Sprint(d.company, d.reference, number))
	if s.IntN(4) == 0 {
		content = hash("another")
	}
	s.do(history.Call{Operation: history.Compare, Request: history.Request{PublicID: id, Hash: content}},
		func(c *history.Call) {
			c.Outcome, c.Status = history.Answered, 200
			switch v := d.versions[number]; {
			case !v.registered:
				c.Answer.Result = "REGISTRATION_PENDING"
			case v.hash != content:
				c.Answer.Result = "HASH_MISMATCH"
			default:
				c.Answer.Result = map[string]string{
					"current": "MATCH_CURRENT", "superseded": "MATCH_HISTORICAL", "revoked": "RECORD_REVOKED",
				}[d.status(number)]
			}
		})
}

// page reads the next page with one of a feed's readers.
func (s *simulation) page(o *organization, c history.Call) {
	reader := fmt.Sprint(o.ID, c.Company, s.IntN(2))
	c.Operation, c.Request = history.FeedPage, history.Request{After: s.cursors[reader], Limit: 3}
	c = s.do(c, func(c *history.Call) {
		s.admitted(o, c, func(o *organization, c *history.Call) {
			c.Answer.NextCursor = c.Request.After
			for _, f := range s.feed[o.ID+"/"+c.Company] {
				if f.Sequence <= c.Request.After {
					continue
				}
				if len(c.Answer.Events) == c.Request.Limit {
					c.Answer.HasMore = true
					break
				}
				c.Answer.Events, c.Answer.NextCursor = append(c.Answer.Events, f), f.Sequence
			}
		})
	})
	if c.Outcome == history.Answered {
		s.cursors[reader] = c.Answer.NextCursor
	}
}

func (s *simulation) searchOrUse(o *organization, c history.Call) {
	if s.IntN(2) == 0 {
		c.Operation, c.Company, c.Request = history.UsageRead, "", history.Request{}
		s.do(c, func(c *history.Call) {
			s.admitted(o, c, func(o *organization, c *history.Call) { c.Answer.Period, c.Answer.Used = period, new(o.used) })
		})
		return
	}
	c.Operation, c.Company, c.Request = history.Search, "", history.Request{Hash: c.Request.Hash}
	s.do(c, func(c *history.Call) {
		s.admitted(o, c, func(o *organization, c *history.Call) {
			for _, d := range o.documents {
				for number, v := range d.versions {
					if v.registered && v.hash == c.Request.Hash && o.keys[c.Key].grants[d.company] {
						c.Answer.Records = append(c.Answer.Records, d.record(number))
					}
				}
			}
		})
	})
}

// batch registers three versions in one request. Each is decided separately.
func (s *simulation) batch(o *organization, c history.Call) {
	c.Operation = history.Register
	s.numbers++
	c.Batch = s.numbers
	request := fmt.Sprint("batch-", s.numbers)
	s.now += 1 + s.Int64N(2000)
	start, lost := s.now-s.Int64N(min(s.now, 3000)), s.IntN(10) == 0
	document := s.IntN(25)
	from := len(s.h.Calls)
	for i := range 3 {
		item := c
		s.numbers++
		item.Number, item.RequestID, item.Client, item.Service, item.Start = s.numbers, request, "batcher", "service-0", start
		item.Request.Document = fmt.Sprint("d-", (document+i)%25)
		item.Request.Hash = hash(fmt.Sprint(item.Company, item.Request.Document, item.Request.Version))
		s.now += 1 + s.Int64N(100)
		s.admitted(o, &item, s.register)
		if lost {
			item.Outcome, item.Status, item.Answer = history.Unknown, 0, history.Answer{}
		}
		s.h.Calls = append(s.h.Calls, item)
	}
	for i := from; i < len(s.h.Calls); i++ {
		s.h.Calls[i].End = s.now + 10
	}
}
