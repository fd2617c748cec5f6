package handlers

import (
	"testing"

	"integrityledger/domain"
)

func TestEveryCodeIsExplained(t *testing.T) {
	texts, remedies := codeTexts(), remedies()
	if len(texts) != len(domain.Codes()) {
		t.Errorf("%d codes are explained, there are %d", len(texts), len(domain.Codes()))
	}
	for _, code := range domain.Codes() {
		text, remedy := texts[code], remedies[code]
		if text.status < 400 || text.title == "" || text.english == "" || text.spanish == "" || text.english == text.spanish {
			t.Errorf("%s: what it means is not said in both languages", code)
		}
		if remedy.english == "" || remedy.spanish == "" || remedy.english == remedy.spanish {
			t.Errorf("%s: what to do is not said in both languages", code)
		}
	}
}
