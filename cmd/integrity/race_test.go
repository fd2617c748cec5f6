//go:build race

package main

// raceDetector says that the program under test is built like the test.
const raceDetector = true
