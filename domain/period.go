package domain

import (
	"fmt"
	"time"
)

// Period is a UTC calendar month as year*100+month, written "2026-11".
type Period int32

// PeriodOf is the month in which t falls, in UTC.
func PeriodOf(t time.Time) Period {
	t = t.UTC()
	return Period(t.Year()*100 + int(t.Month()))
}

// Start is the first moment of the month.
func (p Period) Start() time.Time {
	return time.Date(int(p)/100, time.Month(int(p)%100), 1, 0, 0, 0, 0, time.UTC)
}

// End is the first moment of the next month: when the month's allowance resets.
func (p Period) End() time.Time { return p.Start().AddDate(0, 1, 0) }

// Previous is the month before.
func (p Period) Previous() Period { return PeriodOf(p.Start().AddDate(0, -1, 0)) }

// Next is the month after.
func (p Period) Next() Period { return PeriodOf(p.End()) }

func (p Period) String() string { return fmt.Sprintf("%04d-%02d", int(p)/100, int(p)%100) }

// MarshalText writes "2026-11".
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads "2026-11".
func (p *Period) UnmarshalText(text []byte) error {
	t, err := time.Parse("2006-01", string(text))
	if err != nil {
		return fmt.Errorf("a period has the form 2026-11: %w", err)
	}
	*p = PeriodOf(t)
	return nil
}
