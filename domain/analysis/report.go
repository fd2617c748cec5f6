package analysis

import "time"

// Report is a whole analysis.
type Report struct {
	Results []Result // one a detector, in the order of Detectors
	// Elapsed is the time that each of Results took, in their order. What detectors share, such as parsing
	// the file, is counted with the first of them. All zero where the analysis came to nothing.
	Elapsed []time.Duration
	// Failure is empty where the analysis ran to its end.
	Failure Reason
}
