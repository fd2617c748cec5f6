// Command again makes the page of a recorded run anew: go run ./weather/report/again DIR.
package main

import (
	"fmt"
	"os"

	"integrityledger/cmd/lab/weather/report"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: again DIR, the directory of a recorded run")
		os.Exit(2)
	}
	if err := report.Again(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "again:", err)
		os.Exit(1)
	}
}
