package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"

	"github.com/spf13/cobra"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/edge"
)

//go:generate go test -count=1 -run ^TestManualIsGenerated$ . -update

var update = flag.Bool("update", false, "write the generated parts of the manual again")

// documentWidth is the longest line in a document, in characters. Longer lines do not fit a terminal or a diff.
const documentWidth = 160

// generated is a part of the manual that comes from the code.
var generated = regexp.MustCompile(`(?s)(<!-- generated: ([a-z]+) -->\n).*?(<!-- end -->\n)`)

// documents returns the text of README and of every page of the manual, by file.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("manual/*.md")
	if err != nil || len(files) < 9 {
		t.Fatalf("the manual has the pages %q: %v", files, err)
	}
	texts := map[string]string{}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	return texts
}

// The long lists of the manual are what the code says.
func TestManualIsGenerated(t *testing.T) {
	parts := map[string]func(*testing.T) string{
		"settings": settingsList, "plans": plansTable, "errors": errorsList, "metrics": metricsList,
		"commands": commandsList,
	}
	for file, text := range documents(t) {
		want := generated.ReplaceAllStringFunc(text, func(found string) string {
			m := generated.FindStringSubmatch(found)
			generate := parts[m[2]]
			if generate == nil {
				t.Errorf("%s has a part %s that nothing generates, or that stands there twice", file, m[2])
				return found
			}
			delete(parts, m[2])
			return m[1] + "\n" + generate(t) + "\n" + m[3]
		})
		switch {
		case want == text || t.Failed():
		case *update:
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not what the code says; go generate ./cmd/integrity writes it", file)
		}
	}
	for name := range parts {
		t.Errorf("no page has a part %s", name)
	}
}

// README and the manual are readable in a terminal, and short: README in lines, a page of the manual in words.
func TestDocumentsAreShort(t *testing.T) {
	const readmeLines, pageWords = 200, 1800
	for file, text := range documents(t) {
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if strings.HasSuffix(file, "README.md") {
			if len(lines) > readmeLines {
				t.Errorf("%s has %d lines, at most %d are allowed", file, len(lines), readmeLines)
			}
		} else if words := len(strings.Fields(generated.ReplaceAllString(text, ""))); words > pageWords {
			t.Errorf("%s has %d words, at most %d are allowed besides generated ones", file, words, pageWords)
		}
		for i, line := range lines {
			if width := len([]rune(line)); width > documentWidth {
				t.Errorf("%s:%d is %d characters wide, at most %d are allowed", file, i+1, width, documentWidth)
			}
		}
	}
}

// TestDocumentsNameTheGoOfTheModule: all documents name the version of Go in go.mod.
func TestDocumentsNameTheGoOfTheModule(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("../../go.mod"))
	const pages = "../../handlers/web/templates/developers/"
	for _, file := range []string{
		"../../README.md", "manual/install.md", pages + "en/downloads.html", pages + "es/downloads.html",
	} {
		named := regexp.MustCompile(`\bGo (\d+\.\d+)`).FindAllStringSubmatch(read(file), -1)
		if len(named) == 0 {
			t.Errorf("%s does not say which Go builds the program", file)
		}
		for _, found := range named {
			if found[1] != version[1] {
				t.Errorf("%s says %s, go.mod Go %s", file, found[0], version[1])
			}
		}
	}
}

// TestProgramImportsDesignPackages: the program itself, not only its tests, imports the packages that the design
// names.
func TestProgramImportsDesignPackages(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, "../../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	imports := strings.Fields(string(out))
	for _, name := range []string{
		"github.com/jackc/pgx/v5", "github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v3",
		"github.com/gorilla/mux", "github.com/gowebpki/jcs",
	} {
		if !slices.ContainsFunc(imports, func(i string) bool { return i == name || strings.HasPrefix(i, name+"/") }) {
			t.Errorf("nothing but tests imports %s", name)
		}
	}
}

// TestRecipes: every file in README's recipes exists.
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Contributing\n")
	steps := 0
	for _, step := range regexp.MustCompile(`(?m)^[1-5]\. .*$`).FindAllString(section, -1) {
		steps++
		for _, name := range regexp.MustCompile("`([a-z/_-]+(?:\\.(?:go|json|md))?)`").FindAllStringSubmatch(step, -1) {
			if _, err := os.Stat(filepath.Join("../..", name[1])); strings.ContainsAny(name[1], "/.") && err != nil {
				t.Errorf("README.md, %q: %v", step, err)
			}
		}
	}
	if steps < 16 || strings.Contains(section, "\n6. ") {
		t.Errorf("README.md has %d steps of at most five each", steps)
	}
}

// TestLinksOfDocuments: every relative link in README and the manual leads to a file, and every anchor to a heading.
func TestLinksOfDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)]+)\)`)
	for file, text := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			path, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := []byte(text)
			if path != "" {
				var err error
				if target, err = os.ReadFile(filepath.Join(filepath.Dir(file), path)); err != nil {
					if info, statErr := os.Stat(filepath.Join(filepath.Dir(file), path)); statErr != nil || !info.IsDir() {
						t.Errorf("%s: %v", file, err)
					}
					continue
				}
			}
			if anchor != "" && !slices.Contains(anchors(string(target)), anchor) {
				t.Errorf("%s leads to %s, which has no such heading", file, found[1])
			}
		}
	}
}

var (
	heading = regexp.MustCompile(`(?m)^(##+) (.+)$`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// anchors returns the link targets of a Markdown text's headings.
func anchors(text string) (names []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		names = append(names, anchor(m[2]))
	}
	return names
}

// anchor returns a heading's link target: lower case, hyphens for spaces, no punctuation.
func anchor(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// item formats a list entry, broken into lines.
func item(text string) string {
	var b strings.Builder
	width := 0
	for i, word := range strings.Fields("- " + text) {
		switch size := len([]rune(word)); {
		case i == 0:
			width = size
		case width+1+size > documentWidth-2:
			b.WriteString("\n  ")
			width = 2 + size
		default:
			b.WriteByte(' ')
			width += 1 + size
		}
		b.WriteString(word)
	}
	return b.String() + "\n"
}

// sentence adds a capital and a full stop to a text.
func sentence(text string) string {
	if first, rest, _ := strings.Cut(text, " "); strings.ToLower(first) == first && !strings.ContainsAny(first, ":/_") {
		text = strings.TrimSpace(strings.ToUpper(first[:1]) + first[1:] + " " + rest)
	}
	return strings.TrimSuffix(text, ".") + "."
}

// settingTopics are the settings by topic.
var settingTopics = []struct{ title, names string }{
	{"Service", "LISTEN BASE_URL ISSUER DATA_DIR DRAIN_DELAY CLOCK_TOLERANCE LOG_FORMAT LOG_LEVEL METRICS_LISTEN"},
	{"Database", "DATABASE_URL REPLICA_URL NODE_URL SHARDS"},
	{"Keys", "SIGNING_KEY TRUSTED_KEYS SECRET_KEY"},
	{"TLS and proxies", "TLS_CERT TLS_KEY TRUSTED_PROXIES INSECURE_HTTP"},
	{"Accounts and limits", "PLANS SIGNUP PUBLIC_PER_MINUTE PUBLIC_PAGES_PER_MINUTE OAUTH_ISSUER OAUTH_CLIENT_ID " +
		"OAUTH_CLIENT_SECRET"},
	{"Mail, webhooks, kept files, NATS", "SMTP_URL MAIL_FROM WEBHOOK_DENY WEBHOOK_ALLOW_INSECURE RESOLVER BLOB_URL " +
		"NATS_URL NATS_CREDENTIALS"},
	{"Transparency log", "TRANSPARENCY TRANSPARENCY_KEY WITNESSES TIMESTAMP_AUTHORITIES TIMESTAMP_INTERVAL WORM"},
	{"Witness of other logs", "WITNESS_LISTEN WITNESS_NAME WITNESS_URL WITNESS_KEY WITNESS_LOGS WITNESS_PER_MINUTE"},
	{"Public pages", "OPERATOR_NAME RELATIONSHIP_ES RELATIONSHIP_EN SECURITY_CONTACT"},
}

func settingsList(t *testing.T) string {
	settings := map[string]config.Setting{}
	for _, s := range config.Settings() {
		settings[s.Name] = s
	}
	defaults := settingDefaults(t)
	var b strings.Builder
	for _, topic := range settingTopics {
		fmt.Fprintf(&b, "### %s\n\n", topic.title)
		for _, name := range strings.Fields(topic.names) {
			s, ok := settings[name]
			if !ok {
				t.Errorf("the topic %s names %s, which is no setting", topic.title, name)
			}
			delete(settings, name)
			var notes []string
			if value := defaults[name]; value != "" {
				notes = append(notes, "default `"+value+"`")
			}
			if s.Secret {
				notes = append(notes, "secret")
			}
			note := ""
			if notes != nil {
				note = " (" + strings.Join(notes, ", ") + ")"
			}
			b.WriteString(item(fmt.Sprintf(
				"`%s`%s: %s Must be %s", s.Variable(), note, sentence(s.Help), strings.TrimSuffix(s.Expects, ".")+".",
			)))
		}
		b.WriteByte('\n')
	}
	for name := range settings {
		t.Errorf("settingTopics lacks %s", name)
	}
	return b.String() + "### Client commands\n\n" + item(
		"`"+config.VariableAPIKey+"` (secret): API key of the commands that use the API, not of the server.",
	)
}

// settingDefaults returns the defaults of serve's flags, and of the variables without a flag, by name.
func settingDefaults(t *testing.T) map[string]string {
	t.Helper()
	a := &app{&cli.App{}}
	commands := map[bool]*cobra.Command{false: a.serveCommand(), true: a.witnessCommand()}
	defaults := map[string]string{}
	for _, s := range config.Settings() {
		if f := commands[s.Witness].Flags().Lookup(s.Flag()); f != nil {
			defaults[s.Name] = f.DefValue
		} else if !s.Secret {
			t.Errorf("%s is no secret and has no flag", s.Variable())
		}
	}
	return defaults
}

func plansTable(t *testing.T) string {
	plans, err := domain.DefaultPlans()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| plan | € a month | requests a minute | new versions a month | requests a month | artifacts a " +
		"month | webhook attempts a month | administrative events a day |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	names := plans.Names()
	slices.SortFunc(names, func(a, b string) int { return plans[a].PerMinute - plans[b].PerMinute })
	count := func(n *int64) string {
		if n == nil {
			return "none"
		}
		return thousands(*n)
	}
	for _, name := range names {
		p := plans[name]
		price := "–"
		if p.PriceEUR != nil {
			price = strconv.FormatFloat(*p.PriceEUR, 'f', -1, 64)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", name, price, thousands(int64(p.PerMinute)),
			count(p.VersionsPerMonth), count(p.RequestsPerMonth), count(p.RegistrationsPerMonth),
			count(p.WebhookAttemptsPerMonth), count(p.AdministrativeEventsPerDay))
	}
	return b.String()
}

// TestAlertsHaveRunbooks: each alert has an on-call entry, to which its runbook_url leads, and which states its
// urgency. Each entry has an alert.
func TestAlertsHaveRunbooks(t *testing.T) {
	rules, err := os.ReadFile("ops/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile("manual/on-call.md")
	if err != nil {
		t.Fatal(err)
	}
	// The rules have a fixed form. Prometheus itself reads them in cmd/lab/judges.
	rule := regexp.MustCompile(`(?m)^ +- alert: (\w+)\n(?:.*\n)*?(?: +for: (\d+)([mh])\n)?` +
		` +labels: \{severity: (\w+)\}\n +annotations:\n +summary: .*\n +description: .*\n +runbook_url: '(.*)'$`)
	alerts := rule.FindAllStringSubmatch(string(rules), -1)
	if want := strings.Count(string(rules), "alert: "); len(alerts) != want || want == 0 {
		t.Fatalf("%d of %d rules have the form that is read here", len(alerts), want)
	}
	var names []string
	for _, a := range alerts {
		name, after, unit, severity, url := a[1], a[2], a[3], a[4], a[5]
		names = append(names, name)
		if want := "{{ $externalLabels.integrity_url }}/developers/operating/on-call#" + strings.ToLower(name); url != want {
			t.Errorf("the runbook of %s is %s, not %s", name, url, want)
		}
		urgency := strings.ToUpper(severity[:1]) + severity[1:]
		if after != "" {
			urgency += ", after " + after + map[string]string{"m": " minute", "h": " hour"}[unit]
			if after != "1" {
				urgency += "s"
			}
		}
		if entry := "### " + name + "\n\n*" + urgency + ".* "; !strings.Contains(string(manual), entry) {
			t.Errorf("manual/on-call.md lacks %q", entry)
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(string(manual), -1) {
		if !slices.Contains(names, found[1]) {
			t.Errorf("manual/on-call.md has an entry %s, which is no alert", found[1])
		}
	}
}

// metricsList reads the metrics' names and descriptions from their declarations.
func metricsList(t *testing.T) string {
	files, err := filepath.Glob("ops/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			var texts []string
			for _, argument := range call.Args {
				if text, ok := literalText(argument); ok {
					texts = append(texts, text)
				}
			}
			if kind, ok := call.Fun.(*ast.Ident); ok && len(texts) > 1 && strings.HasPrefix(texts[0], "integrity_") {
				note := kind.Name
				if labels := texts[2:]; len(labels) > 0 {
					note += "; by " + strings.Join(labels, ", ")
				}
				rows = append(rows, item(fmt.Sprintf("`%s` (%s): %s", texts[0], note, texts[1])))
			}
			return true
		})
	}
	if len(rows) < 40 {
		t.Errorf("only %d metrics were found", len(rows))
	}
	slices.Sort(rows)
	return strings.Join(rows, "")
}

// literalText returns the value of a string literal, or of several joined by +.
func literalText(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, first := literalText(e.X)
		right, second := literalText(e.Y)
		return left + right, first && second && e.Op == token.ADD
	}
	return "", false
}

// errorsList returns the meaning of every error code, in English.
func errorsList(t *testing.T) string {
	codes, err := edge.ErrorCodes()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range codes {
		repeat := ""
		if c.Retryable {
			repeat = ", repeat"
		}
		b.WriteString(item(fmt.Sprintf("`%s` (%d%s): %s", c.Code, c.Status, repeat, c.Text[evidence.English].Cause)))
	}
	return b.String()
}

func commandsList(*testing.T) string {
	var b strings.Builder
	var list func(*cobra.Command)
	list = func(c *cobra.Command) {
		if c.HasAvailableSubCommands() {
			for _, sub := range c.Commands() {
				list(sub)
			}
		} else if c.IsAvailableCommand() {
			b.WriteString(item(fmt.Sprintf("`%s`: %s", strings.TrimSuffix(c.UseLine(), " [flags]"), sentence(c.Short))))
		}
	}
	root := (&app{&cli.App{}}).rootCommand()
	for _, group := range root.Groups() {
		b.WriteString("\n" + group.Title + "\n\n")
		for _, c := range root.Commands() {
			if c.GroupID == group.ID {
				list(c)
			}
		}
	}
	return strings.TrimPrefix(b.String(), "\n")
}
