package domain

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"integrityledger/domain/strictjson"
)

//go:embed plans.json
var defaultPlans []byte

// Plan is what an organization may use. A nil limit is no limit.
type Plan struct {
	PriceEUR                *float64 `json:"priceEur,omitempty"`
	PerMinute               int      `json:"perMinute"`
	VersionsPerMonth        *int64   `json:"versionsPerMonth"`
	RequestsPerMonth        *int64   `json:"requestsPerMonth"`
	RegistrationsPerMonth   *int64   `json:"registrationsPerMonth"`
	WebhookAttemptsPerMonth *int64   `json:"webhookAttemptsPerMonth"`
}

// Plans is the plan table by name (contract section 6). It is configuration, not state.
type Plans map[string]Plan

// InternalPlan is the plan of operator-authorized internal organizations.
const InternalPlan = "internal"

// DefaultPlans is the embedded table.
func DefaultPlans() (Plans, error) { return ParsePlans(defaultPlans) }

// ParsePlans reads a plan table: a JSON object with a plan a member, gratis among
// them. Every member of a plan but priceEur must be there, so that nothing is
// without a limit by omission: null says so. All faults are reported at once.
func ParsePlans(text []byte) (Plans, error) {
	value, err := strictjson.Parse(text, 2)
	if err != nil {
		return nil, fmt.Errorf("plan table: %w", err)
	}
	table := strictjson.Decode(value)
	plans := Plans{}
	for _, name := range table.Names() {
		if o := table.Object(name, strictjson.Required); o.Present() {
			plans[name] = readPlan(o)
		}
	}
	if table.Present() && !table.Has("gratis") {
		table.Problem("gratis", strictjson.CodeRequired, "the plan is missing")
	}
	var faults []string
	for _, problem := range table.Problems() {
		faults = append(faults, problem.Pointer+": "+problem.Message)
	}
	if faults != nil {
		return nil, fmt.Errorf("plan table: %s", strings.Join(faults, "; "))
	}
	return plans, nil
}

func readPlan(o *strictjson.Object) Plan {
	limit := func(name string) *int64 { return o.NullableInt(name, 0, strictjson.MaxInteger, strictjson.Required) }
	plan := Plan{
		PerMinute:               int(o.Int("perMinute", 1, math.MaxInt32, strictjson.Required)),
		VersionsPerMonth:        limit("versionsPerMonth"),
		RequestsPerMonth:        limit("requestsPerMonth"),
		RegistrationsPerMonth:   limit("registrationsPerMonth"),
		WebhookAttemptsPerMonth: limit("webhookAttemptsPerMonth"),
	}
	if o.Has("priceEur") {
		price, err := strconv.ParseFloat(o.Value("priceEur", strictjson.Optional).Text(), 64)
		if plan.PriceEUR = &price; err != nil || price < 0 || o.Value("priceEur", strictjson.Optional).Kind() != strictjson.Number {
			o.Problem("priceEur", strictjson.CodeRange, "must be a number of at least 0")
		}
	}
	return plan
}

// Names lists the plans in order.
func (p Plans) Names() []string { return slices.Sorted(maps.Keys(p)) }

// Of is what an organization may use: its plan, without the limits of a month where it is internal.
func (p Plans) Of(plan string, internal bool) Plan {
	of := p[plan]
	if internal {
		of.VersionsPerMonth, of.RequestsPerMonth, of.RegistrationsPerMonth, of.WebhookAttemptsPerMonth = nil, nil, nil, nil
	}
	return of
}

// PerMinute is an organization's limit: its own where the operator set one, else its plan's.
func (p Plans) PerMinute(plan string, own *int32) int {
	if own != nil {
		return int(*own)
	}
	return p[plan].PerMinute
}
