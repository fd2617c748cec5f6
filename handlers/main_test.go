package handlers_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/browsertest"
)

func TestMain(m *testing.M) { pgtest.Main(wholeContract{m}) }

// wholeContract fails a run of the whole package that did not exercise a part of the contract.
type wholeContract struct{ *testing.M }

func (w wholeContract) Run() int {
	code := w.M.Run()
	browsertest.Close()
	removePackages()
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.bench", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return code
		}
	}
	if code != 0 {
		return code
	}
	c, err := published()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, missing := range c.neverExercised() {
		fmt.Fprintln(os.Stderr, "FAIL: no test exercises", missing)
		code = 1
	}
	return code
}
