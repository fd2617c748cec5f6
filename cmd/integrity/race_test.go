//go:build race

package main

// raceDetector is true if the program under test is built with the race detector, like the test.
const raceDetector = true
