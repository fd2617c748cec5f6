package evidence

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	timestampPattern = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$`)
	// ISO 8601 in the extended form as systems write it.
	generatedAtPattern = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?([Zz]|[+-]\d\d(?::?\d\d)?)$`)
)

var (
	errTimestampForm   = errors.New("must be a timestamp such as 2026-11-20T14:03:00Z: date, T, time, at most 9 digits of fraction, Z or an offset")
	errGeneratedAtForm = errors.New("must be a date and time such as 2026-11-20T14:03:00Z: date, T, hours and minutes, perhaps seconds with at most 9 digits of fraction, " +
		"and Z or an offset such as +01, +0100 or +01:00")
	errTimestampDate = errors.New("must be a real date and time: a day of that month, 00:00:00 to 23:59:59, an offset of at most 23:59")
	errTimestampYear = errors.New("must have a year from 0001 to 9999 in UTC")
)

// NormalizeGeneratedAt writes an origin's timestamp in UTC with Z, the zeros at the end of its fraction removed; it
// stays text because the fraction may be finer than anything the service measures. Equal instants have one normal form,
// and normalizing again changes nothing. Contract, sections 3 and 11.
func NormalizeGeneratedAt(s string) (string, error) {
	return normalize(generatedAtPattern.FindStringSubmatch(s), errGeneratedAtForm)
}

// NormalizeTimestamp is NormalizeGeneratedAt for the form of RFC 3339 alone, in
// capitals: the one form that files for verifiers may hold.
func NormalizeTimestamp(s string) (string, error) {
	return normalize(timestampPattern.FindStringSubmatch(s), errTimestampForm)
}

// normalize takes what a pattern found: the text, date, hours and minutes, seconds, digits of the fraction, offset. The
// seconds may be missing, and of the offset its colon or its minutes.
func normalize(found []string, form error) (string, error) {
	if found == nil {
		return "", form
	}
	seconds, fraction, zone := found[3], strings.TrimRight(found[4], "0"), found[5]
	if seconds == "" {
		seconds = "00"
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	t, err := time.Parse(civil, found[1]+"T"+found[2]+":"+seconds)
	if err != nil {
		return "", errTimestampDate
	}
	if zone != "Z" && zone != "z" {
		hours, minutes := digits(zone[1:3]), digits(strings.TrimPrefix(zone[3:], ":"))
		if hours > 23 || minutes > 59 {
			return "", errTimestampDate
		}
		offset := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
		if zone[0] == '+' {
			offset = -offset
		}
		t = t.Add(offset)
	}
	if t.Year() < 1 || t.Year() > 9999 {
		return "", errTimestampYear
	}
	return t.Format(civil) + fraction + "Z", nil
}

// civil is a date and time of no zone. The year 0000 is a year here: only what it is in UTC counts.
const civil = "2006-01-02T15:04:05"

// digits reads two decimal digits; none are 0.
func digits(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// FormatTime writes an instant as every answer and payload does: RFC 3339, UTC
// with Z, cut to microseconds, zeros at the end of the fraction removed.
func FormatTime(t time.Time) string {
	return t.UTC().Truncate(time.Microsecond).Format("2006-01-02T15:04:05.999999Z")
}

// parseServiceTime reads what FormatTime writes and nothing else.
func parseServiceTime(s string) (time.Time, error) {
	if err := checkNormalized(s); err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("timestamp: %w", err)
	}
	if FormatTime(t) != s {
		return time.Time{}, errors.New("must be a timestamp of at most microseconds")
	}
	return t, nil
}

// checkNormalized accepts the results of NormalizeGeneratedAt.
func checkNormalized(s string) error {
	normal, err := NormalizeTimestamp(s)
	if err != nil {
		return err
	}
	if normal != s {
		return fmt.Errorf("must be a timestamp in UTC with Z and without zeros at the end of its fraction: %s", normal)
	}
	return nil
}
