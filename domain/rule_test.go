package domain_test

import (
	"testing"

	"integrityledger/domain"
)

// TestRules: names are unique, releases are in order and after the floor, and no rule has a future release.
func TestRules(t *testing.T) {
	seen := map[domain.Rule]bool{}
	var last domain.Release
	for _, r := range domain.Rules() {
		if r.Name == "" || seen[r.Name] || r.Changes == "" || r.Since < last || r.Since <= domain.Floor ||
			r.Since > domain.ThisRelease || r.Since%1000 != 0 {
			t.Errorf("%+v", r)
		}
		seen[r.Name], last = true, r.Since
	}
	for release, want := range map[domain.Release]string{
		0: "0.0.0", 1_000_000: "1.0.0", 1_002_003: "1.2.3", 12_034_056: "12.34.56",
	} {
		if release.String() != want {
			t.Errorf("%d is %s, want %s", release, release, want)
		}
	}
}
