package handlers_test

import (
	"html"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"integrityledger/handlers"
)

// The operators' manual is shown whole, in both languages' frames: every heading, code block and table of the Markdown
// text, with anchors that resolve, no script of its own and nothing that only the text in the repository has.
func TestOperatingPage(t *testing.T) {
	s := open(t, options{})
	onCall := s.page("/en/developers/operating/on-call")
	for _, part := range []string{
		`<h3 id="integritydown">IntegrityDown</h3>`, `href="/en/developers/operating#clocks"`,
		`href="/en/developers/operating"`, `<title>On call`,
	} {
		if onCall.status != http.StatusOK || !contains(onCall.body, part) {
			t.Errorf("%d: the page on call lacks %s", onCall.status, part)
		}
	}
	if !contains(s.page("/developers/operating").body, `href="/developers/operating/on-call"`) {
		t.Error("the manual does not lead to the page on call")
	}
	text, err := os.ReadFile("../cmd/integrity/OPERATING.md")
	check(t, err)
	fence := regexp.MustCompile("(?ms)^```.*?^```$")
	var headings []string
	for _, found := range regexp.MustCompile(`(?m)^##+ (.+)$`).FindAllStringSubmatch(
		fence.ReplaceAllString(string(text), ""), -1,
	) {
		headings = append(headings, found[1])
	}
	tables := len(regexp.MustCompile(`(?m)^\|-`).FindAllString(string(text), -1))
	for _, path := range []string{"/developers/operating", "/en/developers/operating"} {
		a := s.page(path)
		if policy := a.header.Get("Content-Security-Policy"); a.status != http.StatusOK || policy == "" ||
			strings.Contains(policy, "unsafe-inline") {
			t.Fatalf("%s: %d, Content-Security-Policy %q", path, a.status, policy)
		}
		_, manual, found := strings.Cut(string(a.body), `<div class="manual" lang="en">`)
		manual, _, _ = strings.Cut(manual, "</main>")
		if !found || regexp.MustCompile(`(?i)<script|<style| style=| on[a-z]+=|<!--`).MatchString(manual) {
			t.Errorf("%s: the text is missing, or has a script, a style or a comment of its own", path)
		}
		var shown, anchors []string
		for _, m := range regexp.MustCompile(`<h[2-6] id="([^"]+)">(.*?)</h[2-6]>`).FindAllStringSubmatch(manual, -1) {
			anchors, shown = append(anchors, m[1]), append(shown, html.UnescapeString(m[2]))
		}
		equal(t, "headings of "+path, shown, any(headings))
		links := address.FindAllStringSubmatch(manual, -1)
		for _, m := range links {
			if name, ok := strings.CutPrefix(m[1], "#"); (!ok || !slices.Contains(anchors, name)) &&
				!strings.HasSuffix(m[1], path+"/on-call") {
				t.Errorf("%s leads to %s", path, m[1])
			}
		}
		if samples := strings.Count(manual, `<div class="sample">`); len(links) < 5 ||
			samples != len(fence.FindAllString(string(text), -1)) || strings.Count(manual, "<table>") != tables || tables < 8 {
			t.Errorf("%s: %d links, %d code blocks, %d tables", path, len(links), samples, strings.Count(manual, "<table>"))
		}
	}
	without := open(t, options{config: func(c *handlers.Config) { c.Manual = nil }})
	if a, list := without.page("/developers/operating"), without.page("/developers"); a.status != http.StatusNotFound ||
		contains(list.body, "/developers/operating") {
		t.Errorf("without a manual: %d", a.status)
	}
}
