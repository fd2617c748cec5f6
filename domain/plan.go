package domain

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

//go:embed plans.json
var defaultPlans []byte

// Plan is what an organization may use. A nil limit means none.
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

// ParsePlans reads a plan table; it must hold the plan gratis, and each plan a
// positive perMinute.
func ParsePlans(text []byte) (Plans, error) {
	var plans Plans
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&plans); err != nil {
		return nil, fmt.Errorf("plan table: %w", err)
	}
	if _, ok := plans["gratis"]; !ok {
		return nil, fmt.Errorf("plan table: the plan gratis is missing")
	}
	for name, plan := range plans {
		if plan.PerMinute < 1 {
			return nil, fmt.Errorf("plan table: %s: perMinute must be at least 1", name)
		}
		for _, limit := range []*int64{plan.VersionsPerMonth, plan.RequestsPerMonth, plan.RegistrationsPerMonth, plan.WebhookAttemptsPerMonth} {
			if limit != nil && *limit < 0 {
				return nil, fmt.Errorf("plan table: %s: a limit must not be negative", name)
			}
		}
	}
	return plans, nil
}

// Names lists the plans in order.
func (p Plans) Names() []string { return slices.Sorted(maps.Keys(p)) }

// Versions is the allowance of new versions a month; nil means none.
func (p Plans) Versions(plan string, internal bool) *int64 {
	if internal {
		return nil
	}
	return p[plan].VersionsPerMonth
}

// Registrations is the allowance of the older workflow's registrations a month; nil means none.
func (p Plans) Registrations(plan string, internal bool) *int64 {
	if internal {
		return nil
	}
	return p[plan].RegistrationsPerMonth
}

// PerMinute is an organization's limit: its own where the operator set one, else its plan's.
func (p Plans) PerMinute(plan string, own *int32) int {
	if own != nil {
		return int(*own)
	}
	return p[plan].PerMinute
}
