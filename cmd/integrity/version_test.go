package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain"
	"integrityledger/handlers/edge"
	"integrityledger/schemas"
)

// linkCommit passes the commit to a build that cannot see the repository.
const (
	linkCommit   = "-X integrityledger/handlers/edge.commit="
	linkedCommit = "7e57ed"
)

// TestVersion: the version is shown however the program was built. Tests and releases build it without the repository.
func TestVersion(t *testing.T) {
	t.Parallel()
	release := domain.ThisRelease.String()
	form := regexp.MustCompile(`^integrity ` + regexp.QuoteMeta(release) + ` \(commit [0-9a-z]+( and changes)?\)\n$`)
	said := must(t, nil, "version")
	if !form.MatchString(said) || said != must(t, nil, "--version") {
		t.Errorf("version %q, --version %q", said, must(t, nil, "--version"))
	}
	var b edge.Build
	mustJSON(t, nil, &b, "version")
	if b.Module != "integrityledger" || b.Version != release || b.Commit != linkedCommit ||
		!strings.HasPrefix(b.Go, "go1.") || "integrity "+b.String()+"\n" != said {
		t.Errorf("%+v", b)
	}
}

// TestReleaseNotes: version --notes prints the notes of this release in the language of the locale, and JSON has both.
func TestReleaseNotes(t *testing.T) {
	t.Parallel()
	releases, err := schemas.Releases()
	if err != nil {
		t.Fatal(err)
	}
	for locale, language := range map[string]string{"C": "en", "es_ES.UTF-8": "es"} {
		said := must(t, []string{"LC_ALL=" + locale}, "version", "--notes")
		want := domain.ThisRelease.String() + " (" + releases[0].Date + ")\n- " + releases[0].Notes[language][0] + "\n"
		if !strings.HasPrefix(said, want) {
			t.Errorf("%s: %s", locale, said)
		}
	}
	var shown struct{ Releases []schemas.Release }
	mustJSON(t, nil, &shown, "version", "--notes")
	if !reflect.DeepEqual(shown.Releases, releases) {
		t.Errorf("%+v", shown)
	}
}

// TestRemediesNameCommands: every command in an error page's remedy exists.
func TestRemediesNameCommands(t *testing.T) {
	text, err := os.ReadFile("../../handlers/edge/codes.json")
	if err != nil {
		t.Fatal(err)
	}
	a := &app{&cli.App{}}
	named := regexp.MustCompile(
		`[(,] ?(?:o |or )?integrity ((?:[a-z]+ ?)+)(?:--([a-z-]+))?`,
	).FindAllStringSubmatch(string(text), -1)
	for _, m := range named {
		words := strings.Fields(m[1])
		if i := slices.IndexFunc(words, func(w string) bool { return w == "before" || w == "antes" }); i >= 0 {
			words = words[:i]
		}
		c, rest, err := a.rootCommand().Find(words)
		if err != nil || len(rest) > 0 || m[2] != "" && c.Flags().Lookup(m[2]) == nil {
			t.Errorf("integrity %s--%s: %v, %v", m[1], m[2], rest, err)
		}
	}
	if len(named) < 20 {
		t.Errorf("%d commands are named", len(named))
	}
}
