//go:build race

package analyzer

// raceDetector says that this program, and so its children, are built with the race detector.
const raceDetector = true
