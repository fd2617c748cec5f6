package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Target is one row of the table of targets.
type Target struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"`
	Value    *float64 `json:"value"` // null: not measured
	Least    bool     `json:"atLeast"`
	Target   float64  `json:"target"`
	Moonshot float64  `json:"moonshot,omitempty"` // 0: none
	Verdict  string   `json:"verdict"`
	Note     string   `json:"note,omitempty"` // or why it was not measured
}

const (
	targetDisk   = "disk a registration"
	targetWAL    = "WAL a registration, over a whole checkpoint cycle"
	targetMemory = "memory of the service, c = 1,024"
	targetGrowth = "cost of a registration in a grown ledger : at 50,000 records"
	targetSoak   = "registrations/s of the last minute : of the first"

	unitRatio = ": 1"
	unitTime  = "ms"
	unitSize  = "KB"
	unitMB    = "MB"
	unitRate  = "/s"

	atLeast = true
	atMost  = false

	verdictMoonshot = "moonshot"
	verdictReached  = "reached"
	verdictMissed   = "missed"
	notMeasured     = "not measured"
)

// measurement is a value, or why it is missing.
type measurement struct {
	value         float64
	note, missing string
}

func newTarget(name, unit string, least bool, target, moonshot float64, m measurement) Target {
	t := Target{Name: name, Unit: unit, Least: least, Target: target, Moonshot: moonshot, Verdict: notMeasured, Note: m.missing}
	if m.missing != "" {
		return t
	}
	t.Value, t.Note, t.Verdict = &m.value, m.note, verdictMissed
	better := func(than float64) bool { return least && m.value >= than || !least && m.value <= than }
	switch {
	case moonshot != 0 && better(moonshot):
		t.Verdict = verdictMoonshot
	case better(target):
		t.Verdict = verdictReached
	}
	return t
}

// targets are the rows in the order of the design. A ratio is the median of the ratios of the rounds.
func (r *run) targets() []Target {
	ratio := func(of, to string) measurement {
		a, b := r.figures[of], r.figures[to]
		for _, f := range []*Figure{a, b} {
			if f.NotMeasured != "" {
				return measurement{missing: f.Name + ": " + f.NotMeasured}
			}
		}
		ratios := make([]float64, len(a.Rounds))
		for i := range ratios {
			ratios[i] = a.Rounds[i].PerSecond / b.Rounds[i].PerSecond
		}
		m := measurement{value: median(ratios, func(v float64) float64 { return v })}
		if len(ratios) > 1 {
			m.note = fmt.Sprintf("rounds from %.2f to %.2f", slices.Min(ratios), slices.Max(ratios))
		}
		return m
	}
	proved := ratio(evidences, comparisons)
	if exports := r.exports.Load(); exports > 0 {
		proved.note = strings.TrimPrefix(fmt.Sprintf("%s; %d %% of the evidence held a proof of inclusion", proved.note, r.proofs.Load()*100/exports), "; ")
	}
	light := r.figures[httpLight]
	p50 := milliseconds(light.P50)
	return append([]Target{
		newTarget("in process : group size one, 16 organizations", unitRatio, atLeast, 7, 12, ratio(groupsMany, singleMany)),
		newTarget("in process : group size one, 1 organization, c = 512", unitRatio, atLeast, 12, 20, ratio(groupsOne, singleOne)),
		newTarget("in process : pgbench on the same tables", unitRatio, atLeast, 0.33, 0.5, ratio(groupsMany, ceiling)),
		newTarget("over HTTP, c = 256 : empty JSON POST", unitRatio, atLeast, 0.30, 0.45, ratio(httpBusy, emptyPOST)),
		newTarget("batch endpoint : in process, 16 organizations", unitRatio, atLeast, 0.8, 0.95, ratio(batches, groupsMany)),
		newTarget("p99 over HTTP, c = 64", unitTime, atMost, 2*p50+10, 2*p50,
			measurement{value: milliseconds(light.P99), note: fmt.Sprintf("wanted 2 × p50 + 10 ms, moonshot 2 × p50; p50 is %.3g ms", p50)}),
		newTarget("public comparison : empty JSON GET", unitRatio, atLeast, 0.25, 0.5, ratio(comparisons, emptyGET)),
		newTarget("feed over HTTP : the same pages by SQL", unitRatio, atLeast, 0.2, 0.5, ratio(feedHTTP, feedSQL)),
		newTarget("evidence : public comparison", unitRatio, atLeast, 0.5, 0.8, proved),
		newTarget(targetGrowth, unitRatio, atMost, 1.3, 1.1, r.measured[targetGrowth]),
		newTarget(targetDisk, unitSize, atMost, 2.5, 1.8, r.measured[targetDisk]),
		newTarget(targetWAL, unitSize, atMost, 5, 3, r.measured[targetWAL]),
		newTarget(targetMemory, unitMB, atMost, 250, 120, r.measured[targetMemory]),
		newTarget(targetWebhooks, unitRate, atLeast, 2000, 5000, r.measured[targetWebhooks]),
		newTarget(targetRebuild, unitRate, atLeast, 20_000, 60_000, r.measured[targetRebuild]),
	}, r.floodTargets()...)
}

func (r *run) floodTargets() []Target {
	return []Target{
		newTarget(targetFloodQuiet, unitRatio, atMost, 4, 2, r.measured[targetFloodQuiet]),
		newTarget(targetFloodOwn, unitRatio, atLeast, 0.9, 1, r.measured[targetFloodOwn]),
	}
}
