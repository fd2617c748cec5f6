package operator

import (
	"testing"
	"time"
)

func TestLifetime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90d": 90 * 24 * time.Hour, "1h": time.Hour, "730d": 730 * 24 * time.Hour,
		"0d": 0, "731d": 0, "90": 0, "": 0, "d": 0, "-1d": 0, "59m": 0, "99999999999999d": 0,
	} {
		if got, err := readLifetime(text); (err == nil) != (want != 0) || err == nil && got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
