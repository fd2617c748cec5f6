package analysis

// family is a group of detectors that share what they parse.
type family struct {
	detectors []Detector
	// applies says whether a file of the detected media type belongs to the family.
	applies func(detected string) bool
	// look returns one result a detector, in order, calling done after each.
	look func(in Input, detected string, d []Detector, done func(Result))
}

func families() []family { return nil }

// Analyze runs all detectors and calls done with each result as it comes, in the
// order of Detectors. It never fails: what cannot be read is inconclusive.
func Analyze(in Input, done func(Result)) {}
