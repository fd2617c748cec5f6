package check

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain/evidence"
)

// regions judges a run in which a region was lost, as two runs: up to the loss, and from the promotion on.
func regions(h *history.History, o Options) (Report, error) {
	before, after := eras(h)
	// The followers of the lost ledger went on with the second one, and the tree of the second one stands still.
	first, second := o, o
	first.Skip = append(slices.Clone(o.Skip), Feed, Stream, Webhook, Usage, Checkpoint, Leaf, Verdict)
	second.Skip = append(slices.Clone(o.Skip), Stream, Webhook, Checkpoint, Leaf)
	report, err := one(before, first)
	if err != nil {
		return Report{}, err
	}
	more, err := one(after, second)
	if err != nil {
		return Report{}, err
	}
	report.Violations = append(report.Violations, more.Violations...)
	report.Undecided = append(report.Undecided, more.Undecided...)
	report.Skipped = slices.Clone(second.Skip)
	for name, n := range more.Counts {
		report.Counts[name] += n
	}
	x, err := newIndex(before)
	if err != nil {
		return Report{}, err
	}
	y, err := newIndex(after)
	if err != nil {
		return Report{}, err
	}
	r := &regional{
		checker: &checker{index: y, Options: o, report: Report{Counts: report.Counts}}, loss: h.End.Loss, former: x,
	}
	r.logs()
	r.losses()
	r.proofs()
	report.Violations = append(report.Violations, r.report.Violations...)
	slices.SortStableFunc(report.Violations, compareViolations)
	slices.SortStableFunc(report.Undecided, compareViolations)
	return report, nil
}

// eras returns the histories before and after the loss.
func eras(h *history.History) (before, after *history.History) {
	loss := h.End.Loss
	before = &history.History{Directory: h.Directory, Header: h.Header, End: history.EndState{Trust: h.End.Trust}}
	after = &history.History{Directory: h.Directory, Header: h.Header, Faults: h.Faults, End: h.End}
	before.Header.Lost, after.Header.Prefix = true, loss.Kept
	for _, e := range h.End.Log {
		if e.Position <= loss.Kept[e.Shard] {
			before.End.Log = append(before.End.Log, e)
		}
	}
	before.End.Log = append(before.End.Log, loss.Lost...)
	told := map[string]int64{}  // the highest sequence that the second region has told a client
	for _, c := range h.Calls { // by start
		if !strings.HasPrefix(c.Service, loss.Region) && (c.Service != "" || c.Start < loss.At) {
			before.Calls = append(before.Calls, c)
			continue
		}
		if least := c.Request.ReadAfter; least != nil && *least > told[c.Client] {
			c.Request.ReadAfter = nil // a sequence of the lost ledger
		}
		told[c.Client] = max(told[c.Client], c.Answer.Sequence, c.Answer.NextCursor)
		after.Calls = append(after.Calls, c)
	}
	return before, after
}

// regional compares the ledger after a loss with the one before.
type regional struct {
	*checker // of the calls after the loss

	loss   *history.Loss
	former *index
}

// logs checks that both logs are the same up to the promotion, and that the lost events are all that follow.
func (r *regional) logs() {
	for _, e := range r.former.events {
		if is := r.byID[e.ID]; e.Position > r.loss.Kept[e.Shard] && is != nil {
			r.violate(Region, e.ID, nil, "%s was lost, but stands in the log at %d", e, is.Position)
		}
	}
	position := map[int]int64{}
	for _, e := range r.events {
		position[e.Shard] = e.Position
	}
	for shard, kept := range r.loss.Kept {
		if position[shard] < kept {
			r.violate(Region, "the log", nil, "shard %d ends at %d, but the standby had %d events", shard, position[shard], kept)
		}
	}
	r.add("region: lost events", int64(len(r.loss.Lost)))
}

// acknowledged returns the versions of the public ids that the service answered before the loss, without those that
// the standby had.
func (r *regional) acknowledged() map[string]versionKey {
	lost := map[string]versionKey{}
	for i := range r.former.Calls {
		c := &r.former.Calls[i]
		if c.Operation == history.Register && c.Outcome == history.Answered {
			lost[c.Answer.PublicID], _ = r.former.ofCall(c)
		}
	}
	for _, e := range r.events {
		if e.prefix && e.Type == registered {
			delete(lost, e.Subject)
		}
	}
	return lost
}

// losses checks that the command printed exactly what the clients miss, and that all of it came back, and nothing else.
func (r *regional) losses() {
	lost := r.acknowledged()
	planned := map[string]bool{}
	for _, id := range r.loss.Planned {
		planned[id] = true
		if _, missed := lost[id]; !missed {
			r.violate(Region, id, nil, "heal plan prints it as lost, but no client misses it")
		}
	}
	back := map[string]*event{}
	for _, e := range r.events {
		if e.prefix || !e.healed && e.Type != aliased {
			continue
		}
		back[e.Subject] = e
		if _, missed := lost[e.Subject]; !missed {
			r.violate(Region, e.Subject, nil, "%s brings back what no client misses", e)
		}
	}
	for _, id := range sortedKeys(lost) {
		if !planned[id] {
			r.violate(Region, id, nil, "it was acknowledged and is lost, but heal plan does not print it")
		}
		switch e := back[id]; {
		case e == nil:
			r.violate(Region, id, nil, "it was acknowledged and is lost, and heal apply did not bring it back")
		case e.of != lost[id]:
			r.violate(Region, id, nil, "it was the public id of %s, and came back for %s", lost[id], e.of)
		case e.Type == aliased:
			r.add("region: aliases", 1)
		default:
			r.add("region: healed records", 1)
		}
	}
	r.add("region: acknowledged and lost", int64(len(lost)))
}

// proofs checks that every receipt, and every revocation that evidence shows, came back as it was.
func (r *regional) proofs() {
	payloads, revokedNow := map[string]string{}, map[versionKey]bool{}
	for _, e := range r.events {
		var canonical bytes.Buffer
		if json.Compact(&canonical, e.Payload) == nil && (e.Type == registered || e.Type == aliased) {
			payloads[e.Subject] = canonical.String()
		}
		if e.Type == revoked {
			revokedNow[e.of] = true
		}
	}
	held := map[string]bool{}
	for i := range r.former.Calls {
		c := &r.former.Calls[i]
		if c.Operation != history.EvidenceRead || c.Outcome != history.Answered {
			continue
		}
		of := []*history.Call{c}
		text, err := os.ReadFile(filepath.Join(r.Directory, c.Answer.File))
		if err != nil {
			r.violate(Region, c.Request.PublicID, of, "%v", err)
			continue
		}
		e, err := evidence.ParseEnvelope(text)
		if err != nil {
			r.violate(Region, c.Request.PublicID, of, "%v", err)
			continue
		}
		held[c.Request.PublicID] = true
		if payloads[c.Request.PublicID] != e.Payload {
			r.violate(Region, c.Request.PublicID, of, "a client holds another receipt than the log has after healing")
		}
		stated, err := evidence.ParseStatusPayload([]byte(e.StatusObservation.Payload))
		if key, _ := r.former.ofCall(c); err == nil && stated.Status == evidence.Revoked && !revokedNow[key] {
			r.violate(Region, c.Request.PublicID, of, "a client holds evidence of its revocation, which is lost")
		}
	}
	r.add("region: evidence held", int64(len(slices.Collect(maps.Keys(held)))))
}
