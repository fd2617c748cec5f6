package audit

import (
	"errors"
	"testing"

	"integrityledger/domain/evidence"
)

// TestOtherRules: a state of earlier or later rules is refused, although its fields are the same.
func TestOtherRules(t *testing.T) {
	key := evidence.GenerateSigner().Key()
	trusted, err := evidence.NewTrustedKeys([]evidence.TrustedKey{{PublicKey: key}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []int{rules - 1, rules + 1, rules} {
		c, err := New(Config{Issuer: "https://ledger.example", Trusted: trusted, Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		shape := c.shape(of)
		c.Since = func(int) ([]byte, error) { return c.state.Parties().Append(append(shape[:], 0, 0)), nil }
		if err := c.load(); errors.Is(err, errOtherVersion) != (of != rules) || of == rules && err != nil {
			t.Errorf("a state of the rules %d, by the rules %d: %v", of, rules, err)
		}
	}
}
