package domain

import "time"

const warningCount = 3

// WarningPercents are the parts of a month's allowance at which an organization
// is warned, once a month each (specification, Events).
func WarningPercents() [warningCount]int { return [warningCount]int{80, 95, 100} }

// Warnings is what an organization was warned of in the last month that had a
// warning; nil is not reached. Decision times of a shard never decrease, so an
// earlier month cannot come back.
type Warnings struct {
	Period    Period
	ReachedAt [warningCount]*time.Time // by WarningPercents
}

// In is the warnings of one month.
func (w Warnings) In(p Period) Warnings {
	if w.Period == p {
		return w
	}
	return Warnings{Period: p}
}

// With is the warnings after one more.
func (w Warnings) With(p Period, percent int, at time.Time) Warnings {
	w = w.In(p)
	for i, known := range WarningPercents() {
		if known == percent && w.ReachedAt[i] == nil {
			w.ReachedAt[i] = &at
		}
	}
	return w
}

// QuotaWarned says that the organization has used a part of its month's
// allowance. It changes nothing: nothing is ever bought, and no plan changed.
type QuotaWarned struct {
	Percent int    `json:"percent"`
	Period  Period `json:"period"`
	Used    int64  `json:"used"`
	Limit   int64  `json:"limit"`
}

// warn drafts a warning for each part of the allowance that is reached by used
// and was not told this month. A limit of nil or 0 has no parts. seeds holds one
// for each percentage.
func (o *Organization) warn(period Period, used int64, limit *int64, seeds []Seed) []Draft {
	if limit == nil || *limit <= 0 || used < share(*limit, WarningPercents()[0]) {
		return nil
	}
	given := o.Warned.In(period)
	var drafts []Draft
	for i, percent := range WarningPercents() {
		if given.ReachedAt[i] == nil && used >= share(*limit, percent) {
			drafts = append(drafts, Draft{
				Seed: seeds[i], Subject: o.ID.String(), Body: &QuotaWarned{Percent: percent, Period: period, Used: used, Limit: *limit},
			})
		}
	}
	return drafts
}

// share is the least use that is a percentage of a limit, without overflow.
func share(limit int64, percent int) int64 {
	p := int64(percent)
	return limit/100*p + (limit%100*p+99)/100
}
