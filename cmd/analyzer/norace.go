//go:build !race

package analyzer

const raceDetector = false
