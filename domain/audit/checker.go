// Package audit checks a history from its stored bytes alone. The caller feeds it events from a log or a bundle, and it
// reports the first event that the ledger cannot have written.
//
// For each event it recomputes the hash from the stored members (contract section 4.3) and the canonical form from
// their values. It then checks the signatures against pinned keys, including historical keys, the salted hashes of
// referenced texts, and the values that a signed payload binds. Positions and sequences must have no gaps. Every event
// must be a valid successor of the events before it, by the same domain.State.Apply that the ledger uses. A key must
// not act before it was created or after it was revoked or expired, and only active members may act.
//
// Limits, quotas, scopes and roles are not checked again, because they depended on the plans and policies of the time.
// The backfill allowance, which is in the history, is.
// Times are not compared with another clock.
//
// # Memory
//
// Memory grows with the state of documents and artifacts, and documents are independent of each other. So the first
// pass keeps only organizations, members, keys, companies and destinations. It sets events of documents and artifacts
// aside in one of 256 parts, chosen by the id of the document or artifact. At the end each part is replayed by itself.
// The parts also serve to check uniqueness: a public id names one version, a reference one document, an event id one
// event.
//
// # Going on
//
// A check can save its state, and a later check can begin with it and read only the events since. The state is the same
// whether one check or several have read the events, byte for byte. It has a section for the first pass and one for
// each part, and a part's section is read when that part is replayed.
//
// The package reads no database and no file. The caller stores the parts.
package audit

import (
	"crypto/sha256"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// PartCount is the number of parts in which the events of documents and artifacts are set aside.
const PartCount = 256

// Parts stores events that are set aside until the whole history has been read.
type Parts interface {
	// Append adds bytes to the end of a part. It must not retain the slice.
	Append(part int, bytes []byte) error
	// Open returns a reader of a part from its beginning. It is called after the last Append; different parts are read
	// concurrently.
	Open(part int) io.Reader
}

// Former is an earlier history of one organization: the hashes of its events from sequence 1. Next returns io.EOF after
// the last; any other error means that the histories cannot be compared.
type Former interface {
	Organization() domain.OrganizationID
	Next() (hash [sha256.Size]byte, err error)
}

// Config is the configuration of a check.
type Config struct {
	Issuer  string                // the ledger's, the same in all payloads
	Trusted *evidence.TrustedKeys // pinned; nil trusts no key
	Parts   Parts
	// Whole means that events arrive shard by shard and complete, so that positions are checked. Otherwise they arrive by
	// organization, and positions are not checked.
	Whole bool
	// WithoutTexts means that no texts are supplied, so a missing text is no finding.
	WithoutTexts bool
	Former       Former // nil: none
	// Since returns a section of the state that an earlier check has saved: the events that are added come after its
	// last ones. Different sections are read concurrently. Nil: the history begins with the first event that is added.
	Since func(section int) ([]byte, error)
	// Save receives the SectionCount sections of the state after the last event, in order, unless something was found
	// before. Nil: the state is not saved.
	Save func(section []byte) error
}

// Checker checks a history. Add is called with its events in order, then Finish once. It is not safe for concurrent
// use; it uses all processors itself.
type Checker struct {
	Config
	pinned  *evidence.TrustedKeys // the same keys, without revocations
	revoked map[string]bool

	state     *domain.State
	histories map[domain.OrganizationID]*history
	order     []*history
	shards    map[domain.Shard]*place
	since     map[domain.Shard]int64 // the last positions of the check that goes on
	findings  findings               // of no organization
	events    int64
	former    *formerHistory
	aside     []byte // the event being set aside; the buffer is reused
}

// place is the last event read from a shard's log.
type place struct {
	Shard    domain.Shard
	Position int64
	At       time.Time
	Reset    time.Time         // the date that the last reset went back from
	Head     [sha256.Size]byte // Head of all hashes of the log
}

// history is the state of one organization during the check.
type history struct {
	id       domain.OrganizationID
	sequence int64
	holes    bool // events are missing, so the states of keys and members are unknown
	at       time.Time
	head     [sha256.Size]byte
	findings findings
	usage    map[usageKey]int64
	sums     Sums
	erased   map[domain.TextID]int64 // missing texts, by the sequence that names them first
	erasures map[domain.TextID]int64 // texts erased by an event, by its sequence
}

type usageKey struct {
	period  domain.Period
	company domain.CompanyID
}

// New returns a checker.
func New(config Config) (*Checker, error) {
	pinned, err := evidence.NewTrustedKeys(config.Trusted.Keys(), nil, nil)
	if err != nil {
		return nil, say.Errorf("audit: %w", err)
	}
	c := &Checker{
		Config: config, pinned: pinned, revoked: map[string]bool{}, state: domain.NewState(domain.Plans{}),
		histories: map[domain.OrganizationID]*history{}, shards: map[domain.Shard]*place{}, since: map[domain.Shard]int64{},
	}
	for _, key := range config.Trusted.Revoked() {
		c.revoked[key.KeyID] = true
	}
	if config.Former != nil {
		c.former = &formerHistory{Former: config.Former}
	}
	return c, c.load()
}

// Add checks the next events: each by itself on all processors, then in order. An error means that the check cannot
// continue, never that an event is wrong.
func (c *Checker) Add(events []Event) error {
	verdicts := make([]verdict, len(events))
	Spread(len(events), func(i int) { verdicts[i] = c.inspect(&events[i]) })
	for i := range events {
		if err := c.follow(&events[i], &verdicts[i]); err != nil {
			return err
		}
	}
	return nil
}

// Spread calls do with 0 to n-1 on all processors. Each takes the next few numbers when it has finished the previous
// ones.
func Spread(n int, do func(i int)) { spread(n, 8, do) }

func spread(n, few int, do func(i int)) {
	var wg sync.WaitGroup
	var taken atomic.Int64
	for range min(runtime.GOMAXPROCS(0), (n+few-1)/few) {
		wg.Go(func() {
			for {
				end := int(taken.Add(int64(few)))
				for i := end - few; i < min(end, n); i++ {
					do(i)
				}
				if end >= n {
					return
				}
			}
		})
	}
	wg.Wait()
}

// follow checks an event against the events before it.
func (c *Checker) follow(e *Event, v *verdict) error {
	c.events++
	h := c.history(e.Organization)
	h.findings.add(c.placed(e, h)...)
	h.findings.merge(&v.findings)
	h.findings.add(c.ordered(e, h)...)
	h.findings.add(c.acted(e, h)...)
	h.head = Head(h.head, e.Hash)
	if err := c.compareFormer(e, h); err != nil {
		return err
	}
	if e.Body == nil {
		c.skip(e)
		return nil
	}
	h.count(e, v)
	h.findings.add(c.charged(e, h)...)
	return c.apply(e, h, v)
}

func (c *Checker) history(id domain.OrganizationID) *history {
	h := c.histories[id]
	if h == nil {
		h = &history{
			id: id, usage: map[usageKey]int64{}, erased: map[domain.TextID]int64{}, erasures: map[domain.TextID]int64{},
			sums: Sums{RevokedKeys: map[string]int64{}},
		}
		c.histories[id] = h
		c.order = append(c.order, h)
	}
	return h
}

// Head returns the digest of a history with one more event: SHA-256 of the previous digest, which is 32 zero bytes at
// the beginning, and the event's hash. A reader that keeps it can detect later whether the history up to there was
// rewritten.
func Head(before, hash [sha256.Size]byte) [sha256.Size]byte {
	return sha256.Sum256(append(before[:], hash[:]...))
}

// placed checks the position in the shard and the times, which may decrease only at a reset event.
func (c *Checker) placed(e *Event, h *history) (found []Finding) {
	p := &place{At: h.at}
	if c.Whole {
		if c.shards[e.Shard] == nil {
			c.shards[e.Shard] = &place{Shard: e.Shard}
		}
		p = c.shards[e.Shard]
		if e.Position != p.Position+1 {
			found = append(
				found,
				finding(
					e, CheckPosition, say.Sentencef("an event at position %d", p.Position+1),
					say.Sentencef("the next at %d", e.Position),
				),
			)
		}
		p.Position, p.Head = e.Position, Head(p.Head, e.Hash)
	}
	reset, _ := e.Body.(*domain.ClockResetBody)
	switch last := later(p.At, h.at); {
	case e.Fault.Format != "":
	case reset == nil && e.OccurredAt.Before(last):
		found = append(
			found, finding(
				e, CheckTime, say.Sentencef("a time not before %s", evidence.FormatTime(last)),
				say.Sentencef("%s", evidence.FormatTime(e.OccurredAt)),
			),
		)
	case reset != nil && !c.mayReset(e, reset, p, h):
		found = append(found,
			finding(e, CheckTime,
				say.Sentencef(
					"a reset of the date of the shard's head to an earlier one, where this organization has a later event",
				),
				say.Sentencef("%s to %s", evidence.FormatTime(reset.From), evidence.FormatTime(e.OccurredAt))))
	}
	if reset != nil {
		p.At, p.Reset, h.at = e.OccurredAt, reset.From, e.OccurredAt
		return found
	}
	p.At, h.at = later(p.At, e.OccurredAt), later(h.at, e.OccurredAt)
	return found
}

// mayReset reports whether a reset is justified: the organization has a later event, and the shard's head had the date
// that the reset names, or was reset for the organization before.
func (c *Checker) mayReset(e *Event, b *domain.ClockResetBody, p *place, h *history) bool {
	if !e.OccurredAt.Before(h.at) || h.at.After(b.From) {
		return false
	}
	return !c.Whole || p.At.Equal(b.From) || p.At.Equal(e.OccurredAt) && p.Reset.Equal(b.From)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// ordered checks the sequence. A gap is reported at the first missing event.
func (c *Checker) ordered(e *Event, h *history) (found []Finding) {
	if want := h.sequence + 1; e.Sequence != want {
		f := finding(
			e, CheckSequence, say.Sentencef("the event of sequence %d", want),
			say.Sentencef("the next of sequence %d", e.Sequence),
		)
		if e.Sequence > want {
			f.Sequence, f.Event = want, ""
		}
		found = append(found, f)
		h.holes = true
	}
	h.sequence = e.Sequence
	if o := c.state.Organization(e.Organization); o != nil {
		o.Sequence = e.Sequence - 1
	} else if e.Type != domain.OrganizationCreated {
		found = append(
			found, finding(
				e, CheckHistory, say.Sentencef("organization.created as the organization's first event"),
				say.Sentencef("%s", e.Type),
			),
		)
		c.state.AddOrganization(domain.Organization{ID: e.Organization, Sequence: e.Sequence - 1})
	}
	return found
}

// acted checks that the actor could act. The state must be the state before the event.
func (c *Checker) acted(e *Event, h *history) []Finding {
	if e.Fault.Format != "" || h.holes {
		return nil
	}
	if expected := c.state.MayAct(e.Organization, e.Actor, e.OccurredAt); expected.Format != "" {
		return []Finding{finding(
			e, CheckActor, expected, say.Sentencef("%s at %s", e.Actor, evidence.FormatTime(e.OccurredAt)),
		)}
	}
	return nil
}

// skip advances the state past an event that does not concern it.
func (c *Checker) skip(e *Event) {
	if o := c.state.Organization(e.Organization); o != nil {
		o.Sequence = e.Sequence
	}
}

// count adds the event to the numbers of the report.
func (h *history) count(e *Event, v *verdict) {
	h.sums.add(v.sums)
	for _, id := range v.erased {
		if h.erased[id] == 0 {
			h.erased[id] = e.Sequence
		}
	}
	switch b := e.Body.(type) {
	case *domain.TextsErasedBody:
		for _, id := range b.Texts {
			h.erasures[id] = e.Sequence
		}
	}
	if b, ok := e.Body.(interface{ Charged() domain.Period }); ok && b.Charged() != 0 {
		h.usage[usageKey{b.Charged(), domain.CompanyID{}}]++
		h.usage[usageKey{b.Charged(), e.Company}]++
	}
}

// charged checks that a registration was charged to the backfill allowance exactly while any of it was left. A record
// that was healed without a receipt is charged nowhere.
func (c *Checker) charged(e *Event, h *history) []Finding {
	b := domain.Registration(e.Body)
	if b == nil {
		return nil
	}
	want := c.state.Backfill(e.Organization).Charged()
	if healed, ok := e.Body.(*domain.RecordHealedBody); ok && healed.Proof == domain.ByDeclaration {
		want = 0
	}
	if b.FromBackfill != 0 {
		c.state.ChargeBackfill(e.Organization)
	}
	if h.holes || b.FromBackfill == want {
		return nil
	}
	return []Finding{finding(
		e, CheckHistory, say.Sentencef("fromBackfill %d by the allowances before it, 0 for none", want),
		say.Sentencef("%d", b.FromBackfill),
	)}
}

// Beside holds the rows stored beside the log of one shard, read together with its last events.
type Beside struct {
	Shard      domain.Shard
	Missing    bool  // the head is missing
	Position   int64 // of the shard's head
	OccurredAt time.Time
}

// Shard checks the head of a shard whose events were all added.
func (c *Checker) Shard(b Beside) {
	p := c.shards[b.Shard]
	if p == nil {
		p = &place{At: b.OccurredAt} // the head of an empty log has its creation time
	}
	at := Finding{Check: CheckHead, Place: "shard_heads"}.InShard(b.Shard)
	if b.Missing {
		at.Expected, at.Found = say.Sentencef("the shard's head"), say.Sentencef("none")
		c.findings.add(at)
		return
	}
	if b.Position < c.since[b.Shard] {
		at.Check, at.Position = CheckFormer, b.Position+1
		at.Expected = say.Sentencef("a log of at least %d events, as the mark says", c.since[b.Shard])
		at.Found = say.Sentencef("%d: its end was cut off, or the database was restored to an earlier state", b.Position)
		c.findings.add(at)
		return
	}
	if b.Position != p.Position {
		at.Position, at.Found = p.Position+1, say.Sentencef("position %d", b.Position)
		at.Expected = say.Sentencef("position %d, that of the last event", p.Position)
		c.findings.add(at)
	}
	if !b.OccurredAt.Equal(p.At) {
		at.Position, at.Found = 0, say.Sentencef("%s", evidence.FormatTime(b.OccurredAt))
		at.Expected = say.Sentencef("the time of the last event, %s", evidence.FormatTime(p.At))
		c.findings.add(at)
	}
}

// Found adds the caller's own findings.
func (c *Checker) Found(f ...Finding) { c.findings.add(f...) }

// formerHistory is a former history while it is compared.
type formerHistory struct {
	Former
	sequence int64 // of the last hash that was read
	ended    bool  // nothing more to compare: it ended or differed
}

// compareFormer compares an event's hash with the former history. Only the first difference is a finding, because
// everything after it may differ.
func (c *Checker) compareFormer(e *Event, h *history) error {
	f := c.former
	if f == nil || f.ended || e.Organization != f.Organization() {
		return nil
	}
	for f.sequence < e.Sequence {
		hash, err := f.Next()
		if errors.Is(err, io.EOF) {
			f.ended = true
			return nil
		}
		if err != nil {
			return say.Errorf("former history: %w", err)
		}
		f.sequence++
		if f.sequence < e.Sequence {
			continue // the gap is a finding already
		}
		if hash != e.Hash {
			f.ended = true
			h.findings.add(finding(
				e, CheckFormer, say.Sentencef("the event with hash %x, as in the former history", hash),
				say.Sentencef("%x", e.Hash),
			))
		}
	}
	return nil
}

// endFormer reports events of the former history beyond the end of this one.
func (c *Checker) endFormer() error {
	f := c.former
	if f == nil || f.ended {
		return nil
	}
	h := c.history(f.Organization())
	first := f.sequence + 1
	var gone int64
	for {
		_, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return say.Errorf("former history: %w", err)
		}
		f.sequence++
		gone++
	}
	if gone > 0 {
		h.findings.add(Finding{
			Check: CheckFormer, Organization: h.id.String(), Sequence: first,
			Expected: say.Sentencef("a history of at least %d events, as the former one", f.sequence),
			Found:    say.Sentencef("%d: its end was cut off, or the database was restored to an earlier state", h.sequence),
		})
	}
	return nil
}
