// Package check judges the recorded history of a weather drill. It decides whether all answers to clients are
// consistent with one ledger that executed every request at one moment between its start and its end.
//
// The final log is the evidence. Each event contains the id of its request, so the log shows which unknown calls took
// effect, and the order of all effects. The log is not trusted blindly: direct checks compare it with every
// acknowledged call, and porcupine (github.com/anishathalye/porcupine) decides whether each version, document, key,
// grant and artifact, and each organization's sequence and quota, is linearizable with it.
//
// If a region was lost, the calls before and after it have two ledgers, which share the log up to the promotion. Each
// is judged as a whole ledger: the calls before with the log of the dead servers, the calls after with the log that
// went on. So nothing but the events beyond the promotion can be missing.
//
//   - A call that was answered took effect between its start and its end.
//   - A refusal changed nothing, and was correct at one moment in between.
//   - An unknown call with an event took effect after its start, and before the end of every call whose event comes
//     later in the log. An unknown call without an event never took effect, and it is a violation if any client has
//     seen its effect.
//   - A read with Integrity-Read-After may be answered from an earlier state, but not from before that sequence.
package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"integrityledger/cmd/lab/weather/history"
)

// Name is a check. A violation carries the name of the check that found it.
type Name string

// The checks.
const (
	// format, positions and sequences without gaps, signatures, the possible successors of each event
	Log           Name = "log"
	Order         Name = "order"         // the log's order agrees with the clients' clock
	Acknowledged  Name = "acknowledged"  // every acknowledged write is in the log, once and as answered
	Refusal       Name = "refusal"       // a refused call changed nothing
	Resolved      Name = "resolved"      // an unknown call took effect once or never
	Idempotency   Name = "idempotency"   // one Idempotency-Key has one effect and one answer
	Version       Name = "version"       // linearizable: one version
	Document      Name = "document"      // linearizable: highest version, supersession
	Sequence      Name = "sequence"      // linearizable: an organization's sequence
	Quota         Name = "quota"         // linearizable: an organization's use of a month, and its limit
	Key           Name = "key"           // linearizable: an API key
	Access        Name = "access"        // linearizable: a key's access to a company
	Certification Name = "certification" // linearizable: an artifact, its versions and certificates
	ReadAfter     Name = "read-after"    // a read shows at least the state it asked for
	FeedPage      Name = "feed-page"     // no feed reader misses an event
	Feed          Name = "feed"          // the final feed equals the log's
	Search        Name = "search"        // a search shows all matching records and no others
	Stream        Name = "stream"        // the broker's stream equals the log's
	Webhook       Name = "webhook"       // receivers got each of their events
	Usage         Name = "usage"         // usage = units = events
	Evidence      Name = "evidence"      // every evidence verifies, with three verifiers
	Checkpoint    Name = "checkpoint"    // all checkpoints belong to one tree
	Leaf          Name = "leaf"          // the tree holds each event of the log once
	Verdict       Name = "verdict"       // audit, rebuild --check and bundles are clean; monitors raise no alarm
	Region        Name = "region"        // what a region loses is known exactly, and comes back
)

// Names returns all checks.
func Names() []Name {
	return []Name{
		Log, Order, Acknowledged, Refusal, Resolved, Idempotency, Version, Document, Sequence, Quota, Key, Access,
		Certification, ReadAfter,
		FeedPage, Feed, Search, Stream, Webhook, Usage, Evidence, Checkpoint, Leaf, Verdict, Region,
	}
}

// Violation is an observation that is impossible with a correct ledger.
type Violation struct {
	Check Name    `json:"check"`
	Of    string  `json:"of"` // the subject: a version, an organization, a file
	Text  string  `json:"text"`
	Calls []int64 `json:"calls,omitempty"` // numbers of the calls that show it
}

func (v Violation) String() string {
	text := fmt.Sprintf("%s: %s: %s", v.Check, v.Of, v.Text)
	if len(v.Calls) > 0 {
		text += fmt.Sprintf(" (calls %s)", strings.Trim(fmt.Sprint(v.Calls), "[]"))
	}
	return text
}

// Report is the result of a check. A run is good if Violations and Undecided are empty.
type Report struct {
	Violations []Violation      `json:"violations"`
	Undecided  []Violation      `json:"undecided"` // partitions that porcupine did not decide within the limit
	Skipped    []Name           `json:"skipped"`
	Counts     map[string]int64 `json:"counts"`
}

// Good reports whether everything was decided and no violation was found.
func (r Report) Good() bool { return len(r.Violations) == 0 && len(r.Undecided) == 0 }

// Options configure Check.
type Options struct {
	// Limit is the time limit for porcupine on one partition; 0 means two minutes.
	Limit time.Duration
	// Workers is how many partitions are decided concurrently; 0 means one.
	Workers int
	// Skip lists checks to skip; they are reported as skipped.
	Skip []Name
	// GoAlone leaves out the verifiers in Python and JavaScript.
	GoAlone bool
	// Picture is a directory for porcupine's pages of illegal partitions; empty: no pages.
	Picture string
	// Now is the verifier's clock.
	Now time.Time
}

// checker checks one history.
type checker struct {
	*index
	Options

	small int // maximum number of operations given to porcupine at once

	mu     sync.Mutex
	report Report
}

// Check judges a history. It returns an error if the history cannot be judged.
func Check(h *history.History, o Options) (Report, error) {
	if h.End.Loss != nil {
		return regions(h, o)
	}
	return one(h, o)
}

// one judges a history of one ledger.
func one(h *history.History, o Options) (Report, error) {
	o.Limit = cmp.Or(o.Limit, 2*time.Minute)
	o.Workers = cmp.Or(o.Workers, 1)
	c := &checker{Options: o, small: small, report: Report{Skipped: o.Skip, Counts: map[string]int64{}}}
	var err error
	if c.index, err = newIndex(h); err != nil {
		return Report{}, err
	}
	c.count()
	c.log()
	c.order()
	c.acknowledged()
	c.idempotency()
	c.feed()
	c.search()
	c.stream()
	c.webhooks()
	c.usage()
	c.checkpoints()
	c.verdicts()
	if err := c.evidence(); err != nil {
		return Report{}, err
	}
	c.linear()
	r := c.report
	slices.SortStableFunc(r.Violations, compareViolations)
	slices.SortStableFunc(r.Undecided, compareViolations)
	return r, nil
}

func compareViolations(a, b Violation) int {
	return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Text, b.Text))
}

// violate records a violation, unless its check is skipped.
func (c *checker) violate(check Name, of string, calls []*history.Call, format string, values ...any) {
	if slices.Contains(c.Skip, check) {
		return
	}
	v := Violation{Check: check, Of: of, Text: fmt.Sprintf(format, values...)}
	for _, call := range calls {
		if call != nil {
			v.Calls = append(v.Calls, call.Number)
		}
	}
	slices.Sort(v.Calls)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Violations = append(c.report.Violations, v)
}

func (c *checker) add(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Counts[name] += n
}

func (c *checker) count() {
	for i := range c.Calls {
		call := &c.Calls[i]
		c.add("calls", 1)
		c.add("calls: "+string(call.Outcome), 1)
		c.add("operation: "+string(call.Operation), 1)
		if call.Outcome == history.Refused {
			c.add("refused: "+call.Code, 1)
		}
	}
	for _, f := range c.Faults {
		c.add("faults", 1)
		c.add("fault: "+f.Name, 1)
	}
	c.add("events", int64(len(c.events)))
}

// sortedKeys returns a map's keys in order, so that two checks of a history print the same.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
