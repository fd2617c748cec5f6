package evidence

import (
	"strings"
	"testing"
	"time"
)

func TestNormalizeGeneratedAt(t *testing.T) {
	for in, want := range map[string]string{
		"2026-11-20T10:00:00Z":                "2026-11-20T10:00:00Z",
		"2026-11-20T10:00:00+00:00":           "2026-11-20T10:00:00Z",
		"2026-11-20T10:00:00-00:00":           "2026-11-20T10:00:00Z",
		"2026-11-20T01:30:00+02:00":           "2026-11-19T23:30:00Z",
		"2026-12-31T23:30:00-00:45":           "2027-01-01T00:15:00Z",
		"2026-11-20T10:00:00.120000000+23:59": "2026-11-19T10:01:00.12Z",
		"2026-11-20T10:00:00.000Z":            "2026-11-20T10:00:00Z",
		"2026-11-20T10:00:00.000000001Z":      "2026-11-20T10:00:00.000000001Z",
		"2024-02-29T00:00:00Z":                "2024-02-29T00:00:00Z",
		"2000-02-29T00:00:00Z":                "2000-02-29T00:00:00Z",
		"0000-12-31T23:59:59-00:01":           "0001-01-01T00:00:59Z",
		"0001-01-01T00:00:00Z":                "0001-01-01T00:00:00Z",
		"9999-12-31T23:59:59.999999999Z":      "9999-12-31T23:59:59.999999999Z",
		"1582-10-10T00:00:00Z":                "1582-10-10T00:00:00Z",
		"0001-01-01T00:00:00+00:01":           "", "9999-12-31T23:59:59-00:01": "", "0000-06-01T00:00:00Z": "", "0000-01-01T00:00:00+23:59": "",
		"2025-02-29T00:00:00Z": "", "1900-02-29T00:00:00Z": "", "2026-04-31T00:00:00Z": "", "2026-13-01T00:00:00Z": "", "2026-00-01T00:00:00Z": "",
		"2026-01-00T00:00:00Z": "", "2026-01-01T24:00:00Z": "", "2026-01-01T23:60:00Z": "", "2016-12-31T23:59:60Z": "",
		"2026-01-01T00:00:00+24:00": "", "2026-01-01T00:00:00+00:60": "", "2026-01-01T00:00:00.Z": "", "2026-01-01T00:00:00.1234567890Z": "",
		"2026-01-01T00:00:00,5Z": "", "2026-01-01t00:00:00Z": "", "2026-01-01T00:00:00z": "", "2026-01-01 00:00:00Z": "", "2026-01-01T00:00:00": "",
		"2026-01-01T00:00Z": "", "2026-01-01T00:00:00+0000": "", "2026-01-01T00:00:00Z\n": "", " 2026-01-01T00:00:00Z": "", "٢٠٢٦-01-01T00:00:00Z": "", "": "",
		"+2026-01-01T00:00:00Z": "", "20260101T000000Z": "", "2026-1-1T00:00:00Z": "", "2026-01-01T0:00:00Z": "",
	} {
		got, err := NormalizeGeneratedAt(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

// FuzzNormalizeGeneratedAt: accepted text denotes the same instant as the standard
// library reads from it, and its normal form is stable.
func FuzzNormalizeGeneratedAt(f *testing.F) {
	for _, s := range []string{"2026-11-20T10:00:00.120-05:30", "0000-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "2025-02-29T00:00:00Z", "2026-01-01T00:00:00+24:00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		normal, err := NormalizeGeneratedAt(s)
		if err != nil {
			// The standard library also takes offsets up to 24:60.
			if at, err := time.Parse(time.RFC3339Nano, s); err == nil && timestampPattern.MatchString(s) &&
				at.UTC().Year() >= 1 && at.UTC().Year() <= 9999 && !strings.Contains(s, ":60") && !strings.Contains(s, "24:") {
				t.Fatalf("%q was refused", s)
			}
			return
		}
		want, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		got, err := time.Parse(time.RFC3339Nano, normal)
		if err != nil || !got.Equal(want) || !strings.HasSuffix(normal, "Z") {
			t.Fatalf("%q became %q", s, normal)
		}
		if again, err := NormalizeGeneratedAt(normal); err != nil || again != normal {
			t.Fatalf("%q became %q", normal, again)
		}
	})
}

func TestFormatTime(t *testing.T) {
	zone := time.FixedZone("", 3600)
	for want, at := range map[string]time.Time{
		"2026-11-20T09:00:00Z":        time.Date(2026, 11, 20, 10, 0, 0, 999, zone),
		"2026-11-20T10:00:00.000001Z": time.Date(2026, 11, 20, 10, 0, 0, 1999, time.UTC),
		"2026-11-20T10:00:00.12Z":     time.Date(2026, 11, 20, 10, 0, 0, 120_000_000, time.UTC),
	} {
		if got := FormatTime(at); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if back, err := parseServiceTime(want); err != nil || FormatTime(back) != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}
