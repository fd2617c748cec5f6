package web

import (
	"strings"
	"testing"
)

// A search finds sections by all words of a query, whatever their capitals and accents, and shows where they stand.
func TestSearchOfTheDeveloperPages(t *testing.T) {
	var x index
	for _, page := range []struct{ address, body string }{
		{"/a", `<main><h1>Verificación</h1><p>Sin conexión, con claves.</p><svg><text>dibujo</text></svg>
			<h2 id="log">El registro</h2><p>Una raíz <code>TREE_HEAD</code> caduca <b>nunca</b>.</p>
			<dl><div id="X"><dt>INVALID_DATA</dt><dd>Corrija los datos &amp; repita.</dd></div></dl><p>Después del índice.</p></main>
			<footer>pie</footer>`},
		{"/b", `<main><h1>Límites</h1><p>` + strings.Repeat("palabra ", 200) + `verificación final</p></main>`},
	} {
		if err := x.add(page.address, []byte(page.body)); err != nil {
			t.Fatal(err)
		}
	}
	for query, want := range map[string]string{
		"VERIFICACIÓN":         "/a /a#X /a#log /b", // the title of a page counts for each of its sections
		"tree_head":            "/a#log",
		"tree registro":        "/a#log",
		"indice":               "/a#log", // after the entry the section goes on
		"invalid data":         "/a#X",
		"enlace caducado":      "",
		"raíz caducado":        "/a#log",
		"dibujo":               "",
		"pie":                  "",
		"a":                    "",
		"":                     "",
		"<b>":                  "",
		"palabra nada":         "",
		"verificación palabra": "/b",
	} {
		var got []string
		for _, one := range x.find(query) {
			got = append(got, one.Address)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
	shown := ""
	for _, part := range x.find("final verificacion")[0].Excerpt {
		if part.Marked {
			part.Text = "[" + part.Text + "]"
		}
		shown += part.Text
	}
	if !strings.HasPrefix(shown, "… palabra") || !strings.HasSuffix(shown, "palabra [verificación] [final]") {
		t.Errorf("the excerpt is %q", shown)
	}
	if long := x.find(strings.Repeat("palabra ", 100_000)); len(long) != 1 {
		t.Errorf("a long query finds %v", long)
	}
}
