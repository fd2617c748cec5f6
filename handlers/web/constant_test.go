package web

import (
	"html/template"
	"strings"
	"testing"
)

// TestInlinedTexts: a template with its texts written into it renders the same page, and looks up only what can change.
func TestInlinedTexts(t *testing.T) {
	texts := map[string]any{
		"Menu": `Ben & Jerry's <"menu">`, "Pages": map[string]any{"Lead": "A lead", "Word": "one"},
		"Words": map[string]any{"a": "first", "b": "second"},
	}
	const source = `<p title="{{.C.Menu}}">{{.C.Menu}}</p>{{$w := .C.Pages}}{{$moving := .C.Menu}}{{range .Rows}}` +
		`<i title="{{$.C.Pages.Word}}">{{$w.Word}} {{index $.C.Words .}} {{$moving}}</i>{{$moving = .}}` +
		`{{else}}{{$w.Lead}}{{end}}{{with .None}}{{$w.Lead}}{{else}}{{$w.Lead}}{{end}}`
	render := func(inlined bool) (page string, actions int) {
		parsed := template.Must(template.New("page").Option("missingkey=error").Parse(source))
		if inlined {
			inline(parsed, map[string]map[string]any{"C": texts})
		}
		actions = strings.Count(parsed.Tree.Root.String(), "C.") + strings.Count(parsed.Tree.Root.String(), "{{$w.")
		var b strings.Builder
		if err := parsed.Execute(&b, map[string]any{"C": texts, "Rows": []string{"a", "b"}, "None": ""}); err != nil {
			t.Fatal(err)
		}
		return b.String(), actions
	}
	want, before := render(false)
	got, after := render(true)
	if got != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
	// What is left: two declarations, and the index with a name that changes.
	if before != 10 || after != 3 {
		t.Errorf("%d look-ups became %d, want 10 and 3", before, after)
	}
}
