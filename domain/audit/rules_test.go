package audit

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/judged.golden anew, from a run of all tests")

// Judged are the judgements of the histories that the tests of this package audit, by the test.
var Judged = map[string]map[string]bool{}

// Judge notes a judgement. A test may audit its histories in any order.
func Judge(t *testing.T, judgement string) {
	if Judged[t.Name()] == nil {
		Judged[t.Name()] = map[string]bool{}
	}
	Judged[t.Name()][judgement] = true
}

// TestMain reminds a developer to raise the number of the rules: after the tests have passed, it compares how the
// rules have judged their histories with how the numbered rules did. It cannot see a change that no history shows.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := compareRules("testdata/judged.golden"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func compareRules(golden string) error {
	number := fmt.Sprint("rules ", rules)
	now := []string{number}
	for _, name := range slices.Sorted(maps.Keys(Judged)) {
		now = append(now, name+": "+strings.Join(slices.Sorted(maps.Keys(Judged[name])), "; "))
	}
	if *update {
		return os.WriteFile(golden, []byte(strings.Join(now, "\n")+"\n"), 0o600)
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		return err
	}
	recorded := strings.Split(string(text), "\n")
	others := slices.DeleteFunc(now, func(line string) bool { return slices.Contains(recorded, line) })
	switch {
	case len(others) == 0:
		return nil
	case others[0] != number:
		others = append(others, "If a check or the saved state has changed, raise the number \"rules\" in saved.go: "+
			"a later audit must not go on from a state of the former rules.")
	}
	return fmt.Errorf("%s lacks these judgements:\n%s\nThen record them: go test ./domain/audit -update", golden,
		strings.Join(others, "\n"))
}
