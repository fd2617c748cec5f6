package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain/evidence"
)

// said runs a command line in a locale.
func said(locale string, args ...string) (out, errs string, code int) {
	var stdout, stderr bytes.Buffer
	a := &app{&cli.App{Out: &stdout, Errs: &stderr, Environ: []string{"LANG=" + locale}, Now: time.Now}}
	code = a.Run(context.Background(), a.rootCommand(), args)
	return stdout.String(), stderr.String(), code
}

// Every command and every flag has help in Spanish.
func TestHelpIsTranslated(t *testing.T) {
	var english, spanish bytes.Buffer
	in := func(locale string, out *bytes.Buffer) *cobra.Command {
		a := &app{&cli.App{Out: out, Errs: out, Environ: []string{"LANG=" + locale}, Now: time.Now}}
		root := a.rootCommand()
		if code := a.Run(context.Background(), root, []string{"help"}); code != 0 {
			t.Fatal(out)
		}
		return root
	}
	var compare func(e, s *cobra.Command)
	compare = func(e, s *cobra.Command) {
		if e.Hidden {
			return
		}
		if e.Short == s.Short || e.Long != "" && (e.Long == s.Long || s.Long == "") {
			t.Errorf("%s has no help in Spanish", e.CommandPath())
		}
		for i, g := range e.Groups() {
			if g.Title == s.Groups()[i].Title {
				t.Errorf("the group %q has no title in Spanish", g.Title)
			}
		}
		e.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Usage == s.Flags().Lookup(f.Name).Usage {
				t.Errorf("%s: --%s has no description in Spanish: %q", e.CommandPath(), f.Name, f.Usage)
			}
		})
		for i, below := range e.Commands() {
			compare(below, s.Commands()[i])
		}
	}
	compare(in("C", &english), in("es_ES.UTF-8", &spanish))
	for _, word := range []string{"Usage:", "Flags:", "Commands:", "[command]", "for more"} {
		if !strings.Contains(english.String(), word) {
			t.Errorf("English help lacks %q", word)
		}
		if strings.Contains(spanish.String(), word) {
			t.Errorf("Spanish help has %q", word)
		}
	}
}

// The first of LC_ALL, LC_MESSAGES and LANG that is set chooses the language of errors and of output, not of JSON.
func TestLanguageOfTheLocale(t *testing.T) {
	for _, c := range []struct {
		environ []string
		spanish bool
	}{
		{nil, false},
		{[]string{"LANG=C"}, false},
		{[]string{"LANG=es_ES.UTF-8"}, true},
		{[]string{"LANG=es"}, true},
		{[]string{"LANG=es_MX@x"}, true},
		{[]string{"LANG=es_ES.UTF-8", "LC_ALL=C.UTF-8"}, false},
		{[]string{"LANG=en_GB.UTF-8", "LC_MESSAGES=es_ES"}, true},
		{[]string{"LANG=es_ES", "LC_MESSAGES=de_DE"}, false},
		{[]string{"LANG=es_ES", "LC_ALL="}, true},
	} {
		a := &cli.App{Environ: c.environ}
		if spanish := a.Language() == evidence.Spanish; spanish != c.spanish {
			t.Errorf("%v: Spanish is %v", c.environ, spanish)
		}
	}
	for line, want := range map[string]string{
		"verify /none /none": "integrity: justificante: /none: no existe el archivo o el directorio\n",
		"verify --wrong a b": "integrity: opción desconocida: --wrong\n",
		"verify a": "integrity: la orden debe ser \"integrity verify RECEIPT TRUSTED [DOCUMENT] [opciones]\"; véase integrity " +
			"verify --help\n",
		"keys wrong":   "integrity: orden desconocida \"wrong\" de \"integrity keys\"; véase integrity keys --help\n",
		"company list": "integrity: faltan opciones obligatorias: \"organization\"\n",
		"apikey show ik_secret": "integrity: KEY_ID: debe ser un identificador con la forma key_ y 26 caracteres (no es el " +
			"texto de la clave; integrity apikey list muestra los identificadores)\n",
	} {
		if out, errs, code := said("es_ES.UTF-8", strings.Fields(line)...); errs != want || out != "" || code != 2 {
			t.Errorf("%s: code %d\n%s%swant %s", line, code, out, errs, want)
		}
	}
}

// changing are the members of JSON output that differ from run to run.
var changing = regexp.MustCompile(`"(auditedAt|eventsPerSecond|durationSeconds)": [^,\n]*`)

// TestOutputFollowsTheLocale runs operators' commands on a real ledger. Their output is Spanish in a Spanish locale,
// and their JSON is the same.
func TestOutputFollowsTheLocale(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := start(t, dir)
	spanish := []string{"LC_ALL=es_ES.UTF-8"}
	for _, c := range []struct {
		line, want string
		asJSON     bool // the JSON output is the same each time
	}{
		{"doctor", "bien  ledger          emisor ", false},
		{"audit", "veredicto: todo lo que se ha comprobado es correcto\n", true},
		{"keys list", "  firma\n", true},
		{"top", "peticiones     registros   rechazos", true},
		{"log status", "publicadas ", false},
		{"upgrade finish", "estaban ya activadas\n", true},
		{"rebuild --check", "difieren 0 filas\n", false},
		{"organization list", "", true},
		{"keys rotate --stage", "Envíe SIGHUP a todos los servidores", true},
		{"backup " + dataDir(t), "NO contiene: ", false},
	} {
		args := append(strings.Fields(c.line), "--data-dir", dir)
		if out := must(t, spanish, args...); !strings.Contains(out, c.want) {
			t.Errorf("%s lacks %q: %s", c.line, c.want, out)
		}
		if !c.asJSON {
			continue
		}
		args = append(args, "--json")
		english := changing.ReplaceAllString(must(t, nil, args...), "")
		if out := changing.ReplaceAllString(must(t, spanish, args...), ""); out != english {
			t.Errorf("%s --json: %s\nin English %s", c.line, out, english)
		}
	}
	s.stop()
	line := []string{"doctor", "--data-dir", dataDir(t), "--listen", "nowhere"}
	r := integrity(t, spanish, line...)
	if r.code != cli.ExitNegative || !strings.Contains(r.out, "fallo configuration") ||
		!strings.Contains(r.out, "-> corrija la variable\n") {
		t.Errorf("%d %s%s", r.code, r.out, r.errs)
	}
	line = append(line, "--json")
	if r, english := integrity(t, spanish, line...), integrity(t, nil, line...); r != english {
		t.Errorf("%v\nin English %v", r, english)
	}
}
