// Command child is the analysis child alone, for the tests of its limits: built without the race detector.
package main

import (
	"os"

	"integrityledger/cmd/analyzer"
)

func main() { os.Exit(analyzer.Child()) }
