package check

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"integrityledger/cmd/lab/weather/check/checktest"
	"integrityledger/cmd/lab/weather/history"
)

// needVerifiers skips the test without Python and its packages, or Node.js.
func needVerifiers(t *testing.T) {
	t.Helper()
	for _, command := range [][]string{{"python3", "-c", "import cryptography"}, {"node", "--version"}} {
		if err := exec.CommandContext(t.Context(), command[0], command[1:]...).Run(); err != nil {
			t.Skipf("%v: %v", command, err)
		}
	}
}

func simulated(t *testing.T) *history.History {
	t.Helper()
	h, err := checktest.Simulate(t.TempDir(), 3, 500)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestThreeVerifiersAgree: all three verifiers judge every evidence of a correct run alike.
func TestThreeVerifiersAgree(t *testing.T) {
	t.Parallel()
	needVerifiers(t)
	h := simulated(t)
	r, err := Check(h, Options{Now: checktest.Now.Add(time.Hour)})
	if err != nil || !r.Good() {
		t.Fatalf("%v, violations %v", err, r.Violations)
	}
	n := int64(len(h.End.Evidence))
	if r.Counts["evidence: verified in Python"] != n || r.Counts["evidence: verified in JavaScript"] != n || n < 20 {
		t.Errorf("%d exports, verified: %v", n, r.Counts)
	}
}

// TestVerifiersThatDisagree: if a verifier's findings differ, the file becomes a violation.
func TestVerifiersThatDisagree(t *testing.T) {
	t.Parallel()
	needVerifiers(t)
	c := newChecker(small)
	var err error
	if c.index, err = newIndex(simulated(t)); err != nil {
		t.Fatal(err)
	}
	trust, keys, err := c.trust()
	if err != nil {
		t.Fatal(err)
	}
	now, list := checktest.Now.Add(time.Hour), c.exports()
	want := make([]findings, len(list))
	for i, e := range list {
		want[i] = verify(e, trust, now)
	}
	want[7].Observation = "invalid"
	if err := c.others(list, want, keys, now); err != nil {
		t.Fatal(err)
	}
	if v := c.report.Violations; len(v) != 2 || slices.ContainsFunc(v, func(v Violation) bool {
		return v.Check != Evidence || v.Of != list[7].file
	}) {
		t.Errorf("violations %v, must be one of each other verifier about %s", v, list[7].file)
	}
}
