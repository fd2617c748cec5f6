package web

import (
	"encoding/json"
	"html"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// oneWord maps words to the word that the Spanish pages use instead.
var oneWord = []struct{ not, but string }{
	{`función|funciones`, "rol, of a member"},
	{`envíos?`, "entrega, of a webhook; subida, of a file"},
	{`recibos?|comprobantes?`, "justificante"},
	{`exportaci(ón|ones)`, "evidencia"},
	{`cupos?|asignaci(ón|ones)`, "cuota"},
	{`[Rr]eemplaz\w+`, "sustituir"},
	{`vigencia|certificado vigente`, "validez of a certificate; only a version is vigente"},
	{`(el|El|un|otro|mismo) terminal`, "la terminal"},
	{`[Ll]ínea de comandos|comandos?`, "línea de órdenes, orden"},
	{`máquinas?`, "equipo"},
	{`canal en el que`, "medio: the canal is the feed"},
	{`flujo de cambios|feed`, "canal de cambios"},
	{`Plan y uso|(ven|ver) el uso`, "consumo"},
	{`[Rr]otar|[Rr]ote|sucesora a`, "renovar"},
	{`[Aa]visos? webhook|entregar un aviso|llevan los avisos`, "evento"},
	{`ids?`, "identificador"},
	{`apuntes?`, "entrada"},
	{`[Hh]istoria (y consumo|de la organización)`, "historial"},
	{`(de|a) el`, "del, al"},
	{`esta entrega;`, "publicación of the service: an entrega is of a webhook"},
	{`inscripci(ón|ones)`, "registro"},
	{`redelivery|replay`, "reenvío, reposición"},
	{`(es|una) interrupción y`, "corte of the service"},
	{`solicitud(es)?`, "petición"},
	{`ficheros?`, "archivo"},
	{`encabezados?`, "cabecera"},
	{`Enlace de entrada`, "enlace de acceso"},
	{`logs?|registros? de actividad|quedó registrado`, "bitácora, of a program: a registro is a record"},
	{
		`[Hh]istorial de cambios|en el historial al menos|^Cambios$`,
		"Novedades, of the service: the historial is the organization's, and cambios are of the feed",
	},
}

// commandLine matches commands of the program, flags, settings and files, which stay as they are in every language.
var commandLine = regexp.MustCompile(`integrity( [a-z-]+)+|--[a-z-]+|[A-Z_%]+[A-Z]_[A-Z]+|[a-z-]+\.pem`)

// notProse matches parts of a page that are not Spanish prose: code, links, templates and text marked as English.
var notProse = regexp.MustCompile("`[^`]*`" + `|(?s)<code>.*?</code>|<em>[^<]*</em>|\{\{.*?\}\}|<[^>]*>`)

// The Spanish pages, the console and the error texts use one word for each thing, so that readers find the word they
// have read elsewhere.
func TestSpanishHasOneWordForOneThing(t *testing.T) {
	texts := map[string]string{}
	err := fs.WalkDir(templateFiles, "templates/developers/es", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var text []byte
			text, err = templateFiles.ReadFile(file)
			texts[path.Base(file)] = notProse.ReplaceAllString(string(text), " ")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var add func(where string, value any)
	add = func(where string, value any) {
		switch v := value.(type) {
		case string:
			texts[where] = notProse.ReplaceAllString(v, " ")
		case []any:
			for _, one := range v {
				add(where+"/", one)
			}
		case map[string]any:
			for name, one := range v {
				add(where+"/"+name, one)
			}
		}
	}
	for file, spanish := range map[string]func(map[string]any) any{
		"texts/es.json":               func(all map[string]any) any { return all },
		"reference/reference.es.json": func(all map[string]any) any { return all },
		"../../domain/say/es.json":    func(all map[string]any) any { return all },
		"../edge/codes.json":          func(code map[string]any) any { return code["text"].(map[string]any)["es"] },
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var one map[string]any
		if json.Unmarshal(text, &one) == nil {
			add(file, spanish(one))
			continue
		}
		var list []map[string]any
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			add(file+"/"+one["code"].(string), spanish(one))
		}
	}
	if len(texts) < 1000 {
		t.Errorf("only %d texts were read", len(texts))
	}
	for _, word := range oneWord {
		// Go's \b knows no accents.
		pattern := regexp.MustCompile(`(?:^|[^\p{L}\d_])(` + word.not + `)(?:$|[^\p{L}\d_])`)
		for where, text := range texts {
			for _, allowed := range []string{"proceso de envío", "La función", "la función", "postgres.log", "ledger.example/log"} {
				// Of an outbox; of a program; a file; the name of a log.
				text = strings.ReplaceAll(text, allowed, "")
			}
			text = commandLine.ReplaceAllString(text, "")
			if found := pattern.FindStringSubmatch(text); found != nil {
				t.Errorf("%s: %q, want %s: %.120q", where, found[1], word.but, text[max(0, strings.Index(text, found[0])-40):])
			}
		}
	}
}

// english finds words that Spanish texts do not have. A name, such as If-None-Match, may contain them.
var english = regexp.MustCompile(`(?i)[^.]*[\s(«](the|of|and|is|are|was|with|which|this|that|not|from|only|for|or|by|` +
	`if|at|it|required|optional)[\s.,;:)»][^.]*`)

// The reference in Spanish shows no English but code and the name of the other language.
func TestSpanishReferenceHasNoEnglish(t *testing.T) {
	pages, d := renderReference(t)
	read := 0
	for address, page := range pages {
		name, ok := strings.CutPrefix(address, DeveloperRoot+"/")
		if !ok || !strings.HasPrefix(name, referencePage) {
			continue
		}
		read++
		if lang := regexp.MustCompile(` lang="en"[^>]*>[^<]*`).FindAllString(string(page), -1); len(lang) != 1 ||
			!strings.HasSuffix(lang[0], ">English") {
			t.Errorf("%s is partly in another language: %q", address, lang)
		}
		text := string(page)
		for _, change := range [][2]string{
			{`(?s)<(pre|code|a class="language")\b.*?</(pre|code|a)>`, "`"},
			{`<[^>]*?\b(?:aria-label|content|title|alt)="([^"]*)"`, " $1. <"},
			{`<[^>]*>`, " "},
		} {
			text = regexp.MustCompile(change[0]).ReplaceAllString(text, change[1])
		}
		text = html.UnescapeString(text)
		for _, found := range english.FindAllString(text, -1) {
			t.Errorf("%s: %q", address, strings.Join(strings.Fields(found), " "))
		}
	}
	groups := 0
	for _, contract := range d.Contracts {
		groups += len(contract.Groups)
	}
	if read != groups+1 {
		t.Errorf("%d pages of the reference, want %d", read, groups+1)
	}
}
