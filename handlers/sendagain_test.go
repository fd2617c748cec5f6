package handlers_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/edge"
)

var (
	// unknownOutcome matches the causes of an unknown outcome.
	unknownOutcome = regexp.MustCompile(
		`\b50[03]\b|5xx|\b(INTERNAL|TEMPORARILY_UNAVAILABLE)\b|lost connection|connection that breaks|no answer|outcome ?[uU]nknown|outcome is (un|not )known|conexión (perdida|que se)|sin respuesta|no se conoce`,
	)
	sendsAgain = regexp.MustCompile(
		`(?i)\b(sends?|sent|send it|send them)\b[^.:]*\bagain\b|same again|repeat(s|ed)? (it|the same|the very)|(env(í|i)\w+)[^.:]*(otra vez|de nuevo|lo mismo)|lo mismo otra vez|repita lo mismo`,
	)
	looksUp = regexp.MustCompile(`(?i)\blook\w*\b[^.]*\bup\b|\blook-up\b|consult[aeó]|reconcile`)
)

// Every text states the same rule for failed writes: correct a refused write, repeat a write that was not done, and if
// the outcome is unknown, after any 5xx or no answer, look the version up first, then send the same values again.
func TestOneRuleForSendingAgain(t *testing.T) {
	passages := map[string][]string{} // by place
	read := func(path string, split func(text string) []string) {
		files, err := filepath.Glob(path)
		check(t, err)
		if len(files) == 0 {
			t.Errorf("there is no %s", path)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			check(t, err)
			passages[file] = split(string(text))
		}
	}
	tag := regexp.MustCompile(`<[^>]*>|\{\{.*?\}\}`)
	read("web/templates/developers/e[ns]/*.html", func(text string) (list []string) {
		for _, block := range regexp.MustCompile(
			`(?s)<(p|li|dd|tr|ol)\b.*?</(p|li|dd|tr|ol)>|<div><dt>.*?</dd>`,
		).FindAllString(text, -1) {
			list = append(list, tag.ReplaceAllString(block, " "))
		}
		return list
	})
	paragraphs := func(text string) []string {
		return regexp.MustCompile(`\n(//)?\s*\n|\n- `).Split(regexp.MustCompile(`\n// `).ReplaceAllString(text, "\n"), -1)
	}
	read("developers/javascript/README.md", paragraphs)
	read("developers/python/README.md", paragraphs)
	read("client/client.go", func(text string) []string {
		doc, _, _ := strings.Cut(text, "\npackage ")
		return paragraphs(doc)
	})
	read("client/outbox/outbox.go", func(text string) []string {
		doc, _, _ := strings.Cut(text, "\npackage ")
		return paragraphs(doc)
	})
	texts := func(text string) (list []string) {
		var all any
		check(t, json.Unmarshal([]byte(text), &all))
		var add func(v any)
		add = func(v any) {
			switch v := v.(type) {
			case string:
				list = append(list, strings.Split(v, "\n- ")...)
			case []any:
				for _, one := range v {
					add(one)
				}
			case map[string]any:
				for _, one := range v {
					add(one)
				}
			}
		}
		add(all)
		return list
	}
	read("../schemas/*openapi.json", texts)
	read("edge/codes.json", texts)
	read("web/texts/*.json", texts)
	told := 0
	for where, list := range passages {
		for _, passage := range list {
			if unknownOutcome.MatchString(passage) && sendsAgain.MatchString(passage) {
				told++
				if !looksUp.MatchString(passage) {
					t.Errorf("%s sends again what may have been done, and does not look it up: %s", where, passage)
				}
			}
		}
	}
	if told < 12 {
		t.Errorf("only %d places say the rule", told)
	}
	codes, err := edge.ErrorCodes()
	check(t, err)
	s := open(t, options{})
	for _, code := range codes {
		for _, language := range []evidence.Language{evidence.English, evidence.Spanish} {
			text := code.Text[language]
			again := sendsAgain.MatchString(text.Cause + " " + text.Remedy)
			if code.Status >= 500 && (!again || !looksUp.MatchString(text.Remedy)) {
				t.Errorf("%s in %s: want looked up, then sent again: %s", code.Code, language, text.Remedy)
			}
		}
		page := string(s.page(code.Address()).body)
		if unknown := strings.Contains(page, "look up what became of it first"); unknown != (code.Status >= 500) {
			t.Errorf("%s: the page says that it is looked up first: %v", code.Address(), unknown)
		}
		for _, path := range []string{"/developers/errors", "/en/developers/errors"} {
			_, entry, _ := strings.Cut(string(s.page(path).body), `<div id="`+string(code.Code)+`">`)
			entry, _, _ = strings.Cut(entry, "</div>")
			if unknown := regexp.MustCompile(
				`looked up what became of it, then|después de consultar qué fue de ella`,
			).MatchString(entry); unknown != (code.Status >= 500) {
				t.Errorf("%s, %s: it says that it is looked up first: %v", path, code.Code, unknown)
			}
		}
	}
}
