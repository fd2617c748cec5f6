package domain

import (
	"fmt"
	"time"
)

// AnalysisCompletedStatus is the one status of an analysis: what could not be found out is said by each detector.
const AnalysisCompletedStatus = "completed"

// DetectorEvidence is where a detector found a structure: names, counts and positions, never a piece of the content.
type DetectorEvidence struct {
	Structure string  `json:"structure"`
	Count     int64   `json:"count"`
	Unit      string  `json:"unit"`
	Positions []int64 `json:"positions"`
}

// DetectorResult is what one detector came to (contract section 7).
type DetectorResult struct {
	ID          string             `json:"id"`
	Version     int                `json:"version"`
	Outcome     string             `json:"outcome"`
	Severity    string             `json:"severity"`
	Summary     string             `json:"summary"`
	Evidence    []DetectorEvidence `json:"evidence"`
	Limitations []string           `json:"limitations"`
}

// AnalysisReport is a finished analysis of a content.
type AnalysisReport struct {
	Results     []DetectorResult
	Elapsed     []time.Duration // of each of Results
	Duration    time.Duration   // of all
	Limitations []string
}

// with adds the result of the one detector that looks at the organization rather than at the bytes.
func (r AnalysisReport) with(last DetectorResult) (results []DetectorResult, elapsedMicros []int64) {
	results = append(append([]DetectorResult{}, r.Results...), last)
	elapsedMicros = make([]int64, len(results))
	for i, d := range r.Elapsed {
		elapsedMicros[i] = d.Microseconds()
	}
	return results, elapsedMicros
}

// DuplicateDetector is the detector that knows the organization's other versions.
const DuplicateDetector = "duplicate-content"

// duplicateResult says whether the same bytes are in the organization already.
func duplicateResult(others int64) DetectorResult {
	r := DetectorResult{
		ID: DuplicateDetector, Version: 1, Outcome: "clear", Severity: "none", Evidence: []DetectorEvidence{},
		Summary:     "No other version of an artifact of this organization has the same bytes.",
		Limitations: []string{"Only exactly the same bytes are found, and only among the artifacts of this organization."},
	}
	if others > 0 {
		r.Outcome, r.Severity = "finding", "info"
		r.Summary = fmt.Sprintf("%d other versions of artifacts of this organization have the same bytes.", others)
		if others == 1 {
			r.Summary = "One other version of an artifact of this organization has the same bytes."
		}
		r.Evidence = []DetectorEvidence{{Structure: "version of an artifact", Count: others, Unit: "version", Positions: []int64{}}}
	}
	return r
}

// AnalysisCompletedBody is the whole analysis of a version.
type AnalysisCompletedBody struct {
	ArtifactID     ArtifactID        `json:"artifactId"`
	VersionID      ArtifactVersionID `json:"versionId"`
	AnalysisID     AnalysisID        `json:"analysisId"`
	Status         string            `json:"status"`
	Detectors      []DetectorResult  `json:"detectors"`
	ElapsedMicros  []int64           `json:"elapsedMicros"` // of each of Detectors
	DurationMillis int64             `json:"durationMs"`
	Limitations    []string          `json:"limitations"`
}

func (b *AnalysisCompletedBody) apply(s *State, e *Event) error {
	v := s.certification.versions[b.VersionID]
	if v == nil || v.State != VersionRegistered {
		return fmt.Errorf("event %s analyses a version that was never registered, or a second time", e.ID)
	}
	v.State = VersionAnalyzed
	return nil
}
