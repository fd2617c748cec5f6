//go:build race

package analyzer

// raceDetector is true if this program, and so its children, are built with the race detector.
const raceDetector = true
