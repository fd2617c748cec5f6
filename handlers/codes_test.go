package handlers

import (
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// A code of the domain that codes.json does not explain in full would be answered as an internal error, or without a page.
func TestEveryCodeIsExplained(t *testing.T) {
	codes, err := ErrorCodes()
	if err != nil {
		t.Fatal(err)
	}
	if len(codes) != len(domain.Codes()) {
		t.Errorf("%d codes are explained, there are %d", len(codes), len(domain.Codes()))
	}
	for i, code := range domain.Codes() {
		c := codes[min(i, len(codes)-1)]
		if c.Code != code {
			t.Fatalf("code %d is %s in codes.json and %s in domain.Codes", i, c.Code, code)
		}
		waits := c.Status == 408 || c.Status == 429 || c.Status == 503
		if c.Status < 400 || c.Status > 599 || waits != (c.RetryAfter > 0) || c.RetryAfter < 0 || len(c.Text) != 2 {
			t.Errorf("%+v", c)
		}
		english, spanish := c.Text[evidence.English], c.Text[evidence.Spanish]
		for part, texts := range map[string][2]string{
			"title": {english.Title, spanish.Title}, "cause": {english.Cause, spanish.Cause}, "remedy": {english.Remedy, spanish.Remedy},
		} {
			if texts[0] == "" || texts[1] == "" || texts[0] == texts[1] {
				t.Errorf("the %s of %s is not in both languages: %q", part, code, texts)
			}
		}
	}
}
