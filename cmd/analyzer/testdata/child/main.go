// Command child is only the analysis child, built without the race detector for the tests of its limits.
package main

import (
	"os"

	"integrityledger/cmd/analyzer"
)

func main() { os.Exit(analyzer.Child()) }
