package domain

import (
	"strings"
	"testing"
)

const wholePlan = `{"perMinute": 30, "versionsPerMonth": 1000, "requestsPerMonth": null, "registrationsPerMonth": 0, "webhookAttemptsPerMonth": 1}`

func TestParsePlans(t *testing.T) {
	plans, err := ParsePlans([]byte(`{"gratis": ` + wholePlan + `, "big": ` + strings.Replace(wholePlan, "{", `{"priceEur": 29.5, `, 1) + `}`))
	if err != nil {
		t.Fatal(err)
	}
	g, b := plans["gratis"], plans["big"]
	if len(plans) != 2 || g.PriceEUR != nil || *b.PriceEUR != 29.5 || g.PerMinute != 30 || *g.VersionsPerMonth != 1000 ||
		g.RequestsPerMonth != nil || *g.RegistrationsPerMonth != 0 || *g.WebhookAttemptsPerMonth != 1 {
		t.Errorf("%+v", plans)
	}
	if _, err := DefaultPlans(); err != nil {
		t.Error(err)
	}
}

// TestParsePlansRefuses: what is left out or misspelt must not become "no limit".
func TestParsePlansRefuses(t *testing.T) {
	gratis := func(from, to string) string { return `{"gratis": ` + strings.Replace(wholePlan, from, to, 1) + `}` }
	for text, want := range map[string]string{
		`{}`:                                     "/gratis: the plan is missing",
		`[]`:                                     "must be an object",
		`{"gratis": 1}`:                          "/gratis: must be an object",
		`{"pro": ` + wholePlan + `}`:             "/gratis: the plan is missing",
		gratis("", "") + "x":                     "invalid character",
		gratis(`"versionsPerMonth": 1000, `, ""): "/gratis/versionsPerMonth: the member is required",
		gratis(`, "webhookAttemptsPerMonth": 1`, ""):                 "/gratis/webhookAttemptsPerMonth: the member is required",
		gratis(`versionsPerMonth`, "versionspermonth"):               "did you mean versionsPerMonth?",
		gratis(`"perMinute": 30`, `"perMinute": 0`):                  "/gratis/perMinute: ",
		gratis(`"perMinute": 30`, `"perMinute": null`):               "/gratis/perMinute: ",
		gratis(`1000`, `-1`):                                         "/gratis/versionsPerMonth: ",
		gratis(`1000`, `1000, "versionsPerMonth": 2000`):             "/gratis/versionsPerMonth: the member appears more than once",
		gratis(`{`, `{"priceEur": -1, `):                             "/gratis/priceEur: must be a number of at least 0",
		gratis(`{`, `{"priceEur": "1", `):                            "/gratis/priceEur: must be a number of at least 0",
		`{"gratis": ` + wholePlan + `, "gratis": ` + wholePlan + `}`: "/gratis: the member appears more than once",
	} {
		if plans, err := ParsePlans([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", text, plans, err, want)
		}
	}
}
