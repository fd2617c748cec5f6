package handlers_test

import (
	"html"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/manual"
	"integrityledger/handlers"
)

// The operators' manual is shown whole, in both languages' frames: every heading, code block and table of the Markdown
// text, with links that resolve, no script of its own and nothing that only the text in the repository has.
func TestManualPages(t *testing.T) {
	s := open(t, options{})
	files, err := fs.Glob(manual.Pages, "*.md")
	check(t, err)
	anchors, links := map[string]bool{}, map[string]string{} // of all pages; the page that has a link
	fence := regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	for _, file := range files {
		markdown, err := manual.Pages.ReadFile(file)
		check(t, err)
		text := fence.ReplaceAllString(string(markdown), "")
		var headings []string
		for _, found := range regexp.MustCompile(`(?m)^##+ (.+)$`).FindAllStringSubmatch(text, -1) {
			headings = append(headings, found[1])
		}
		for _, root := range []string{"/developers/operating", "/en/developers/operating"} {
			path := strings.TrimSuffix(root+"/"+strings.TrimSuffix(file, ".md"), "/index")
			a := s.page(path)
			if policy := a.header.Get("Content-Security-Policy"); a.status != http.StatusOK || policy == "" ||
				strings.Contains(policy, "unsafe-inline") {
				t.Fatalf("%s: %d, Content-Security-Policy %q", path, a.status, policy)
			}
			_, shown, found := strings.Cut(string(a.body), `<div class="manual" lang="en">`)
			shown, _, _ = strings.Cut(shown, "</main>")
			if !found || regexp.MustCompile(`(?i)<script|<style| style=| on[a-z]+=|<!--`).MatchString(shown) {
				t.Errorf("%s: the text is missing, or has a script, a style or a comment of its own", path)
			}
			anchors[path] = true
			var titles []string
			for _, m := range regexp.MustCompile(`<h[2-6] id="([^"]+)">(.*?)</h[2-6]>`).FindAllStringSubmatch(shown, -1) {
				anchors[path+"#"+m[1]] = true
				titles = append(titles, html.UnescapeString(m[2]))
			}
			equal(t, "headings of "+path, titles, any(headings))
			for _, m := range address.FindAllStringSubmatch(shown, -1) {
				if strings.HasPrefix(m[1], "#") {
					m[1] = path + m[1]
				}
				links[m[1]] = path
			}
			if samples, tables := strings.Count(shown, `<div class="sample">`), strings.Count(shown, "<table>"); samples !=
				len(fence.FindAll(markdown, -1)) || tables != len(regexp.MustCompile(`(?m)^\|-`).FindAllString(text, -1)) {
				t.Errorf("%s: %d code blocks, %d tables", path, samples, tables)
			}
		}
	}
	for link, path := range links {
		if !anchors[link] {
			t.Errorf("%s leads to %s", path, link)
		}
	}
	if len(links) < 40 {
		t.Errorf("only %d links", len(links))
	}
	without := open(t, options{config: func(c *handlers.Config) { c.Manual = nil }})
	if a, list := without.page("/developers/operating"), without.page("/developers"); a.status != http.StatusNotFound ||
		contains(list.body, "/developers/operating") {
		t.Errorf("without a manual: %d", a.status)
	}
}
