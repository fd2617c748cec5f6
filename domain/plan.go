package domain

import (
	_ "embed"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

//go:embed plans.json
var defaultPlans []byte

// Plan holds an organization's limits. A nil limit means unlimited.
type Plan struct {
	PriceEUR                *float64 `json:"priceEur,omitempty"`
	PerMinute               int      `json:"perMinute"`
	VersionsPerMonth        *int64   `json:"versionsPerMonth"`
	RequestsPerMonth        *int64   `json:"requestsPerMonth"`
	RegistrationsPerMonth   *int64   `json:"registrationsPerMonth"`
	WebhookAttemptsPerMonth *int64   `json:"webhookAttemptsPerMonth"`
	// AdministrativeEventsPerDay is the only limit per UTC day.
	AdministrativeEventsPerDay *int64 `json:"administrativeEventsPerDay"`
}

// Plans is the plan table by name (contract section 6). It is configuration, not state.
type Plans map[string]Plan

// Plans that every table contains, or that the program itself uses.
const (
	FreePlan     = "gratis"   // of organizations that people create themselves
	InternalPlan = "internal" // of operator-authorized internal organizations
)

// DefaultPlans returns the embedded table.
func DefaultPlans() (Plans, error) { return ParsePlans(defaultPlans) }

// ParsePlans parses a plan table: a JSON object with one plan per member, including gratis. Every member of a plan
// except priceEur is required, so that omitting one cannot remove a limit; null does. All faults are reported at once.
func ParsePlans(text []byte) (Plans, error) {
	value, err := strictjson.Parse(text, 2)
	if err != nil {
		return nil, say.Errorf("plan table: %w", err)
	}
	table := strictjson.Decode(value)
	plans := Plans{}
	for _, name := range table.Names() {
		if o := table.Object(name, strictjson.Required); o.Present() {
			plans[name] = readPlan(o)
		}
	}
	if table.Present() && !table.Has(FreePlan) {
		table.Problem(FreePlan, strictjson.CodeRequired, "the plan is missing")
	}
	var faults []string
	for _, problem := range table.Problems() {
		faults = append(faults, problem.Pointer+": "+problem.Message)
	}
	if faults != nil {
		return nil, say.Errorf("plan table: %s", strings.Join(faults, "; "))
	}
	return plans, nil
}

func readPlan(o *strictjson.Object) Plan {
	limit := func(name string, least int64) *int64 {
		return o.NullableInt(name, least, strictjson.MaxInteger, strictjson.Required)
	}
	plan := Plan{
		PerMinute:                  int(o.Int("perMinute", 1, math.MaxInt32, strictjson.Required)),
		VersionsPerMonth:           limit("versionsPerMonth", 0),
		RequestsPerMonth:           limit("requestsPerMonth", 0),
		RegistrationsPerMonth:      limit("registrationsPerMonth", 0),
		WebhookAttemptsPerMonth:    limit("webhookAttemptsPerMonth", 0),
		AdministrativeEventsPerDay: limit("administrativeEventsPerDay", 1),
	}
	if o.Has("priceEur") {
		price, err := strconv.ParseFloat(o.Value("priceEur", strictjson.Optional).Text(), 64)
		if plan.PriceEUR = &price; err != nil || price < 0 ||
			o.Value("priceEur", strictjson.Optional).Kind() != strictjson.Number {
			o.Problem("priceEur", strictjson.CodeRange, "must be a number of at least 0")
		}
	}
	return plan
}

// Names lists the plans in order.
func (p Plans) Names() []string { return slices.Sorted(maps.Keys(p)) }

// Of returns the limits of an organization: its plan, without monthly and daily limits if it is internal.
func (p Plans) Of(plan string, internal bool) Plan {
	of := p[plan]
	if internal {
		of.VersionsPerMonth, of.RequestsPerMonth, of.RegistrationsPerMonth, of.WebhookAttemptsPerMonth = nil, nil, nil, nil
		of.AdministrativeEventsPerDay = nil
	}
	return of
}

// PerMinute returns an organization's limit: its own if the operator has set one, otherwise its plan's.
func (p Plans) PerMinute(plan string, own *int32) int {
	if own != nil {
		return int(*own)
	}
	return p[plan].PerMinute
}

// Period is a UTC calendar month as year*100+month, written "2026-11".
type Period int32

// PeriodOf returns the month of t in UTC.
func PeriodOf(t time.Time) Period {
	t = t.UTC()
	return Period(t.Year()*100 + int(t.Month()))
}

// Start returns the first moment of the month.
func (p Period) Start() time.Time {
	return time.Date(int(p)/100, time.Month(int(p)%100), 1, 0, 0, 0, 0, time.UTC)
}

// End returns the first moment of the next month, when the month's allowance resets.
func (p Period) End() time.Time { return p.Start().AddDate(0, 1, 0) }

// Previous returns the month before.
func (p Period) Previous() Period { return PeriodOf(p.Start().AddDate(0, -1, 0)) }

// Next returns the month after.
func (p Period) Next() Period { return PeriodOf(p.End()) }

func (p Period) String() string {
	return string([]byte{
		digit(p / 100_000), digit(p / 10_000), digit(p / 1000), digit(p / 100), '-', digit(p / 10), digit(p),
	})
}

func digit(p Period) byte { return '0' + byte(p%10) }

// MarshalText writes "2026-11".
func (p Period) MarshalText() ([]byte, error) { return p.AppendText(nil) }

// AppendText appends what String writes.
func (p Period) AppendText(dst []byte) ([]byte, error) { return append(dst, p.String()...), nil }

// UnmarshalText reads "2026-11".
func (p *Period) UnmarshalText(text []byte) error {
	t, err := time.Parse("2006-01", string(text))
	if err != nil {
		return say.Errorf("a period has the form 2026-11: %w", err)
	}
	*p = PeriodOf(t)
	return nil
}

const (
	warningCount   = 3
	allowanceCount = 6
)

// WarningPercents returns the thresholds of an allowance at which an organization is warned, once for each month,
// allowance and limit (specification, Events; contract, section 12).
func WarningPercents() [warningCount]int { return [warningCount]int{80, 95, 100} }

// Allowance is an allowance with warnings.
type Allowance uint8

// The allowances (specification, Limits). VersionsAllowance is zero, because events about it do not name it.
const (
	VersionsAllowance      Allowance = iota // new hash-only versions
	RequestsAllowance                       // requests outside the integrity API
	RegistrationsAllowance                  // registrations of artifacts, without credits
	AttemptsAllowance                       // webhook attempts
	PendingAllowance                        // pending reservations
	UnfinalizedAllowance                    // reserved but unregistered versions
)

var allowanceNames = [allowanceCount]string{
	"versions", "requests", "registrations", "webhookAttempts", "pendingReservations", "unfinalizedIdentities",
}

func (a Allowance) String() string { return allowanceNames[a] }

// MarshalText writes the name.
func (a Allowance) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the name.
func (a *Allowance) UnmarshalText(text []byte) error {
	i := slices.Index(allowanceNames[:], string(text))
	if i < 0 {
		return say.Errorf("the allowance must be %s", OneOf(allowanceNames[:]))
	}
	*a = Allowance(i)
	return nil
}

// Warnings holds an organization's warnings of an allowance in the last month and limit with a warning; nil means not
// reached. An earlier month can follow only after a ClockReset. Both months then cause warnings again.
//
// A warning of another month or limit replaces the earlier ones.
type Warnings struct {
	Period    Period
	Limit     int64
	ReachedAt [warningCount]*time.Time // by WarningPercents
	Used      [warningCount]int64      // by WarningPercents
}

// With returns the warnings after another one.
func (w Warnings) With(b *QuotaWarningReachedBody, at time.Time) Warnings {
	if w.Period != b.Period || w.Limit != b.Limit {
		w = Warnings{Period: b.Period, Limit: b.Limit}
	}
	for i, percent := range WarningPercents() {
		if percent == b.Percent && w.ReachedAt[i] == nil {
			w.ReachedAt[i], w.Used[i] = &at, b.Used
		}
	}
	return w
}

// given reports whether the organization was warned of a threshold of this limit in a month.
func (w Warnings) given(period Period, limit int64, part int) bool {
	return w.Period == period && w.Limit == limit && w.ReachedAt[part] != nil
}

// QuotaWarningReachedBody records that the organization has reached a threshold of an allowance. It never buys anything
// or changes the plan.
type QuotaWarningReachedBody struct {
	Allowance Allowance `json:"allowance,omitempty"`
	Percent   int       `json:"percent"`
	Period    Period    `json:"period"`
	Used      int64     `json:"used"`
	Limit     int64     `json:"limit"`
	ByLimit   bool      `json:"byLimit,omitempty"` // true since version 2
}

func (b *QuotaWarningReachedBody) apply(s *State, e *Event) error {
	o := s.organizations[e.Organization]
	o.Warned[b.Allowance] = o.Warned[b.Allowance].With(b, e.OccurredAt)
	return nil
}

// warning drafts a warning.
func warning(o *Organization, a Allowance, period Period, percent int, used, limit int64) Draft {
	return Draft{Subject: o.ID.String(), Body: &QuotaWarningReachedBody{
		Allowance: a, Percent: percent, Period: period, Used: used, Limit: limit, ByLimit: true,
	}}
}

// warn drafts a warning for each threshold of the allowance that used reaches and that was not given. A limit of nil or
// 0 has no thresholds.
func (s *State) warn(o *Organization, a Allowance, period Period, used int64, limit *int64) []Draft {
	if limit == nil || *limit <= 0 || used < share(*limit, WarningPercents()[0]) {
		return nil
	}
	var drafts []Draft
	for i, percent := range WarningPercents() {
		if used >= share(*limit, percent) && !o.Warned[a].given(period, *limit, i) {
			drafts = append(drafts, warning(o, a, period, percent, used, *limit))
		}
	}
	return drafts
}

// MeterUsage is a meter's count of a month. Counting causes no events, but reaching a threshold does.
type MeterUsage struct {
	Used int64
	// ReachedAt holds the time when each threshold was reached, by WarningPercents, with its limit; nil if it was not
	// reached or not noted.
	ReachedAt [warningCount]*time.Time
	Limits    [warningCount]*int64
}

// MeteredAllowances lists the allowances that are counted outside the log.
func MeteredAllowances() []Allowance { return []Allowance{RequestsAllowance, AttemptsAllowance} }

// limitOf returns the plan's limit of an allowance of MeteredAllowances.
func (p Plan) limitOf(a Allowance) *int64 {
	if a == AttemptsAllowance {
		return p.WebhookAttemptsPerMonth
	}
	return p.RequestsPerMonth
}

type meterKey struct {
	organization OrganizationID
	allowance    Allowance
	period       Period
}

// AddMetered loads a meter's count of a month.
func (s *Loaded) AddMetered(o OrganizationID, a Allowance, p Period, u MeterUsage) {
	s.meters.put(meterKey{o, a, p}, u)
}

// AddWarnings loads the warnings of an organization, which must be loaded first.
func (s *Loaded) AddWarnings(id OrganizationID, a Allowance, w Warnings) {
	if o := s.organizations[id]; o != nil {
		o.Warned[a] = w
	}
}

// WarningLifetime is how long after its end a month still causes warnings.
const WarningLifetime = 72 * time.Hour

// WarnOfMeters turns reached thresholds of meters into events. The service itself sends it, from the process that
// notices one. Its data is read under the shard's lock, so several processes warn only once, and if a process stops
// between counting and warning, another one warns.
type WarnOfMeters struct {
	Origin
}

func (c *WarnOfMeters) Need(n *Needs) { n.Metered = append(n.Metered, c.Organization) }

// Decide implements Command.
func (c *WarnOfMeters) Decide(s *State, now time.Time) ([]Draft, error) {
	o := s.Organization(c.Organization)
	if o == nil {
		return nil, errUnknownOrganization
	}
	var drafts []Draft
	for _, a := range MeteredAllowances() {
		given := o.Warned[a]
		drafts = append(drafts, s.warnOfPlan(o, a, &given, now)...)
	}
	return drafts, nil
}

// warnOfPlan drafts the warnings of the limit in the organization's plan. The previous month comes first, because the
// process that counted its last use may have stopped before it warned.
func (s *State) warnOfPlan(o *Organization, a Allowance, given *Warnings, now time.Time) []Draft {
	period, limit := PeriodOf(now), s.plans.Of(o.Plan, o.Internal).limitOf(a)
	return append(s.warnOfMeter(o, a, given, period.Previous(), limit, now),
		s.warnOfMeter(o, a, given, period, limit, now)...)
}

// warnOfMeter drafts a warning for each threshold of limit that the meter noted or, in the current month, that is
// reached now, and adds it to given. Notes of another limit belong to a plan that is no longer in force: ChangePlan has
// warned of them, or a process that did not know of the change has noted them.
//
// A month before the last warning gets none. The current month is before it only after a ClockReset.
func (s *State) warnOfMeter(
	o *Organization, a Allowance, given *Warnings, period Period, limit *int64, now time.Time,
) []Draft {
	present, u := period == PeriodOf(now), s.meters[meterKey{o.ID, a, period}]
	if limit == nil || *limit <= 0 || given.Period > period && !present {
		return nil
	}
	var drafts []Draft
	for i, percent := range WarningPercents() {
		least := share(*limit, percent)
		reached := present && u.Used >= least
		if of := u.Limits[i]; of != nil && *of == *limit && u.ReachedAt[i] != nil {
			reached = present || now.Sub(*u.ReachedAt[i]) <= WarningLifetime
		}
		if !reached || given.given(period, *limit, i) {
			continue
		}
		// A request that was refused later is subtracted again, but its warning stays.
		draft := warning(o, a, period, percent, max(u.Used, least), *limit)
		*given = given.With(draft.Body.(*QuotaWarningReachedBody), now) //nolint:forcetypeassert // warning creates no other
		drafts = append(drafts, draft)
	}
	return drafts
}

// share returns the lowest use that reaches a percentage of a limit, without overflow.
func share(limit int64, percent int) int64 {
	p := int64(percent)
	return limit/100*p + (limit%100*p+99)/100
}
