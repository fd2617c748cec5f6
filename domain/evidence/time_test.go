package evidence

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"integrityledger/schemas"
)

type generatedAtVector struct {
	Name       string  `json:"name"`
	Text       string  `json:"text"`
	Normalized *string `json:"normalized"` // nil: refused
	Form       bool    `json:"form"`       // the pattern of the OpenAPI document lets it pass
}

// generatedAtVectors are the published forms of generatedAt.
func generatedAtVectors(t testing.TB) []generatedAtVector {
	t.Helper()
	text, err := schemas.File(schemas.GeneratedAtFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []generatedAtVector }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Vectors) < 80 {
		t.Fatalf("%d vectors: %v", len(file.Vectors), err)
	}
	return file.Vectors
}

func TestNormalizeGeneratedAt(t *testing.T) {
	for _, v := range generatedAtVectors(t) {
		got, err := NormalizeGeneratedAt(v.Text)
		want := ""
		if v.Normalized != nil {
			want = *v.Normalized
		}
		if got != want || (err == nil) != (v.Normalized != nil) {
			t.Errorf("%s: %q became %q, %v; want %q", v.Name, v.Text, got, err, want)
		}
		if err != nil && (errors.Is(err, errGeneratedAtForm) && v.Form) {
			t.Errorf("%s: %q is of the right form: %v", v.Name, v.Text, err)
		}
		if strict, err := NormalizeTimestamp(v.Text); err == nil && (strict != want || !timestampPattern.MatchString(v.Text)) {
			t.Errorf("%s: %q became %q as a timestamp of RFC 3339", v.Name, v.Text, strict)
		}
		if v.Normalized == nil {
			continue
		}
		if strict, err := NormalizeTimestamp(want); err != nil || strict != want {
			t.Errorf("%s: %q is not in the form that is signed: %v", v.Name, want, err)
		}
	}
}

// naive reads generatedAt by trying every layout of the standard library that a
// spelling can have; ok is false where none fits.
func naive(s string) (at time.Time, ok bool) {
	for _, t := range []string{"T", "t"} {
		for _, clock := range []string{"15:04", "15:04:05", "15:04:05.999999999", "15:04:05,999999999"} {
			for _, zone := range []string{"Z07:00", "Z0700", "Z07", "-07:00", "-0700", "-07", "z"} {
				at, err := time.Parse("2006-01-02"+t+clock+zone, s)
				if err == nil {
					return at.UTC(), true
				}
			}
		}
	}
	return at, false
}

// FuzzNormalizeGeneratedAt: what is accepted denotes the instant that the standard library reads by some layout, what
// is refused is read by none, and the normal form is stable.
func FuzzNormalizeGeneratedAt(f *testing.F) {
	for _, v := range generatedAtVectors(f) {
		f.Add(v.Text)
	}
	f.Fuzz(func(t *testing.T, s string) { againstNaive(t, s) })
}

// Random spellings, good ones and near misses, against the naive reading.
func TestGeneratedAtSpellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		againstNaive(t, part("year", "0000", "0001", "1999", "2026", "9999")+"-"+part("month", "00", "01", "02", "12", "13")+"-"+part("day", "00", "01", "28", "29", "30", "31", "32")+
			part("T", "T", "t", " ")+part("hour", "00", "23", "24")+":"+part("minute", "00", "59", "60")+
			part("second", "", ":00", ":59", ":60")+part("fraction", "", ".", ",", ".0", ",5", ".120", ",123456789", ".1234567890")+
			part("zone", "Z", "z", "", "+00", "-00:00", "+0200", "-0330", "+23:59", "-2359", "+24:00", "+00:60", "+1", "+100"))
	})
}

func againstNaive(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, s string) {
	t.Helper()
	normal, err := NormalizeGeneratedAt(s)
	want, ok := naive(s)
	// The standard library reads offsets up to 24:60, any number of digits of a fraction,
	// and a fraction of its own where a layout has none.
	ok = ok && want.Year() >= 1 && want.Year() <= 9999 && generatedAtPattern.MatchString(s) && !beyondDay.MatchString(s)
	if (err == nil) != ok {
		t.Fatalf("%q: %v, but the standard library reads %v, %t", s, err, want, ok)
	}
	if err != nil {
		return
	}
	got, err := time.Parse(time.RFC3339Nano, normal)
	if err != nil || !got.Equal(want) || !strings.HasSuffix(normal, "Z") || strings.HasSuffix(normal, "0Z") && strings.Contains(normal, ".") {
		t.Fatalf("%q became %q", s, normal)
	}
	if again, err := NormalizeGeneratedAt(normal); err != nil || again != normal {
		t.Fatalf("%q became %q", normal, again)
	}
}

// beyondDay finds offsets that no place has.
var beyondDay = regexp.MustCompile(`[+-](2[4-9]:?[0-9]*|[3-9][0-9]:?[0-9]*|[0-9]{2}:?[6-9][0-9])$`)

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
