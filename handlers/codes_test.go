package handlers_test

import (
	"os"
	"regexp"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/edge"
)

// An error code of the domain that codes.json does not fully explain would be answered as an internal error, or have no
// page.
func TestEveryCodeIsExplained(t *testing.T) {
	explained, err := edge.ErrorCodes()
	check(t, err)
	codes := declaredCodes(t)
	if len(explained) != len(codes) {
		t.Errorf("%d codes are explained, there are %d", len(explained), len(codes))
	}
	for i, code := range codes {
		c := explained[min(i, len(explained)-1)]
		if c.Code != code {
			t.Fatalf("code %d is %s in codes.json and %s in domain/error.go", i, c.Code, code)
		}
		// The log includes a record within seconds; it is no fault of the client or the service that would have a status of
		// its own.
		waits := c.Retryable && (c.Status == 408 || c.Status == 429 || c.Status == 503 || c.Code == domain.InclusionPending)
		if c.Status < 400 || c.Status > 599 || waits != (c.RetryAfter > 0) || c.RetryAfter < 0 || len(c.Text) != 2 {
			t.Errorf("%+v", c)
		}
		english, spanish := c.Text[evidence.English], c.Text[evidence.Spanish]
		for part, texts := range map[string][2]string{
			"title": {english.Title, spanish.Title}, "cause": {english.Cause, spanish.Cause},
			"remedy": {english.Remedy, spanish.Remedy},
		} {
			if texts[0] == "" || texts[1] == "" || texts[0] == texts[1] {
				t.Errorf("the %s of %s is not in both languages: %q", part, code, texts)
			}
		}
	}
}

// declaredCodes reads the constants from the domain's source.
func declaredCodes(t *testing.T) (codes []domain.Code) {
	t.Helper()
	source, err := os.ReadFile("../domain/error.go")
	check(t, err)
	for _, match := range regexp.MustCompile(`(?m)^\s\w+\s+Code = "([A-Z_]+)"$`).FindAllSubmatch(source, -1) {
		codes = append(codes, domain.Code(match[1]))
	}
	if len(codes) < 35 {
		t.Fatalf("the domain declares %v", codes)
	}
	return codes
}
