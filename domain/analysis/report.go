// Package analysis defines the results of analysing a file: outcomes, evidence and the list of detectors. The detectors
// themselves are in cmd/analyzer/detect.
package analysis

import (
	_ "embed"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// Outcome is the outcome of a detector (contract, section 7).
type Outcome string

// The outcomes. Clear means that the detector examined its whole subject and found nothing. NotApplicable means that
// the file has another format.
const (
	Clear         Outcome = "clear"
	Finding       Outcome = "finding"
	Inconclusive  Outcome = "inconclusive"
	NotApplicable Outcome = "not_applicable"
)

// Outcomes lists all outcomes.
func Outcomes() []Outcome { return []Outcome{Clear, Finding, Inconclusive, NotApplicable} }

// Severity is the attention that a finding deserves; None if there is no finding.
type Severity string

// The severities. Info is a fact without a risk of its own, such as a signature.
const (
	None   Severity = "none"
	Info   Severity = "info"
	Low    Severity = "low"
	Medium Severity = "medium"
	High   Severity = "high"
)

// Severities lists all severities, lowest first.
func Severities() []Severity { return []Severity{None, Info, Low, Medium, High} }

// Unit is the unit of positions.
type Unit string

// The units of positions.
const (
	Bytes   Unit = "byte"   // offset from the file's first byte, which is 0
	Objects Unit = "object" // number of an indirect object of a PDF
	Entries Unit = "entry"  // index in the archive's directory, from 0; for nested archives, in the outermost
)

// MaxPositions is the maximum number of positions in an Evidence. Count is exact even beyond it.
const MaxPositions = 16

// Evidence tells where and how often a structure was found.
type Evidence struct {
	Structure string `json:"structure"` // a name from the format or this package, never text from the file
	Count     int64  `json:"count"`
	Unit      Unit   `json:"unit"`
	// ascending, the first MaxPositions; empty if the structure has no position
	Positions []int64 `json:"positions"`
}

// Result is one detector's result for the file. Its JSON form is defined in contract section 7; all members are always
// present.
type Result struct {
	ID          string     `json:"id"`
	Version     int        `json:"version"` // incremented when the same bytes may give another result
	Outcome     Outcome    `json:"outcome"`
	Severity    Severity   `json:"severity"`
	Summary     string     `json:"summary"` // one sentence
	Evidence    []Evidence `json:"evidence"`
	Limitations []string   `json:"limitations"` // what the detector cannot detect
}

// Report is a whole
type Report struct {
	Results []Result `json:"results"` // one per detector, in the order of Detectors
	// Elapsed is the time that each of Results took, in their order. Shared work, such as parsing the file, is counted for
	// the first detector that needs it. All are zero if the analysis did not end.
	Elapsed []time.Duration `json:"elapsed"`
	// Failure is empty if the analysis completed.
	Failure Reason `json:"-"`
}

// Detector names a detector.
type Detector struct {
	ID          string
	Version     int
	Looks       string   // what it looks for, as a phrase
	Limitations []string // the same as in its results
}

// Limitations returns the limitations of every analysis, regardless of its results.
func Limitations() []string {
	return []string{
		"The analysis looks at structures of the file. It does not say who or what made the content, or whether it is " +
			"true, safe or lawful.",
		"It is no malware scan: nothing is executed, and no signature of known malware is looked for.",
		"Encrypted content is not looked into.",
	}
}

// Reason says why a whole analysis has no result.
type Reason string

// Reasons for an analysis without a result.
const (
	ReasonTime      Reason = "The analysis did not end within its time limit."
	ReasonCPU       Reason = "The analysis used more processor time than its limit."
	ReasonMemory    Reason = "The analysis needed more memory than its limit."
	ReasonCrash     Reason = "The analysis ended abnormally."
	ReasonAnswer    Reason = "The analysis gave no readable answer."
	ReasonIsolation Reason = "The analysis could not be isolated on this machine, so it was not run."
)

// Undecided returns the report of an analysis without a result: every detector is inconclusive.
func Undecided(reason Reason) Report {
	r := Report{Failure: reason}
	for _, d := range Detectors() {
		r.Results, r.Elapsed = append(r.Results, d.Result(Inconclusive, None, string(reason))), append(r.Elapsed, 0)
	}
	return r
}

// Result returns a result of the detector.
func (d Detector) Result(o Outcome, s Severity, summary string, evidence ...Evidence) Result {
	if evidence == nil {
		evidence = []Evidence{}
	}
	return Result{
		ID: d.ID, Version: d.Version, Outcome: o, Severity: s, Summary: summary, Evidence: evidence,
		Limitations: append([]string{}, d.Limitations...),
	}
}

// Detectors lists all detectors in the order of the results.
func Detectors() []Detector {
	return slices.Clone(catalogue())
}

//go:embed detectors.json
var detectors []byte

// catalogue decodes detectors.json.
var catalogue = sync.OnceValue(func() (list []Detector) {
	if err := json.Unmarshal(detectors, &list); err != nil {
		panic("detectors.json is part of the program: " + err.Error())
	}
	return list
})
