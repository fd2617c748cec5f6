package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/config"
)

// sameInEveryLanguage matches lines of names, codes and values. [clock] is a time.
var sameInEveryLanguage = regexp.MustCompile(
	`^(publicId|bytes) +\S+$|^[A-Z_]+$|^ *[a-z]+( +[a-z-]+)?$|^ +\d+  \[clock\]  |^whsec_|^$`,
)

var clockTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// Client commands speak the language of the locale, whether they succeed or fail. Exit codes and --json have none.
func TestClientCommandsFollowTheLocale(t *testing.T) {
	t.Parallel()
	s := start(t, dataDir(t), "--demo")
	access, dir := s.demo(), t.TempDir()
	in := func(locale string, args ...string) result {
		t.Helper()
		key := access.Keys.Worker
		if args[0] == "webhook" || args[0] == "revoke" {
			key = access.Keys.Admin
		}
		r := ask([]string{
			"LC_ALL=" + locale, config.VariableBaseURL + "=" + access.BaseURL, config.VariableAPIKey + "=" + key,
		}, args...)
		r.out = clockTime.ReplaceAllString(r.out, "[clock]")
		return r
	}
	must := func(args ...string) string {
		t.Helper()
		r := in("C", args...)
		if r.code != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
		return r.out
	}
	file, other := write(t, filepath.Join(dir, "file"), "one"), write(t, filepath.Join(dir, "other"), "two")
	listed := t.TempDir()
	write(t, filepath.Join(listed, "a"), "a")
	version := []string{"--company", access.CompanyReference, "--source", "s", "--document", "d", "--version", "1"}
	link := strings.TrimSpace(must(append([]string{"register", file, "--quiet"}, version...)...))
	hook, _, _ := strings.Cut(must("webhook", "create", "http://127.0.0.1:1/", "--company", access.CompanyReference), " ")
	saved, manifest := filepath.Join(dir, "saved"), filepath.Join(dir, "manifest")
	trusted := filepath.Join(s.dir, "trusted-keys.json")
	s.included(link[strings.LastIndex(link, "/")+1:])
	must("evidence", link, "-o", saved)
	proof, spoilt := filepath.Join(dir, "saved.tlog-proof"), filepath.Join(dir, "spoilt.tlog-proof")
	must("evidence", link, "--tlog-proof", "-o", proof)
	if said := must("verify", proof, trusted, file, "--require-references"); !strings.Contains(said, "inclusion     valid\n") ||
		!strings.Contains(said, "matches the registered SHA-256") {
		t.Error(said)
	}
	report, letter := filepath.Join(dir, "report.pdf"), write(t, filepath.Join(dir, "letter.pdf"), "%PDF-1.7\n")
	must("evidence", link, "--report", "-o", report)
	if said := must("verify", report, trusted, file, "--require-references", "--require-inclusion"); !strings.Contains(
		said, "inclusion     valid\n",
	) || !strings.Contains(said, "The attached files were verified, not the text printed on the pages: ") {
		t.Error(said)
	}
	text, err := os.ReadFile(proof)
	if err != nil {
		t.Fatal(err)
	}
	write(t, spoilt, strings.Replace(string(text), "\nindex ", "\nindex 0", 1))
	must("manifest", "create", listed, "-o", manifest)
	write(t, filepath.Join(listed, "b"), "b")
	delivery, _, _ := strings.Cut(must("webhook", "test", hook), " ")
	must("monitor", access.BaseURL, "--trusted-keys", trusted, "--state", filepath.Join(dir, "state"))
	none := strings.Repeat("a", 26)
	for _, args := range [][]string{
		append([]string{"reserve"}, append(version[:len(version)-1:len(version)-1], "2")...),
		append([]string{"register", file}, version...),
		append([]string{"register", other}, version...),
		{"register", filepath.Join(dir, "none"), "--company", "c", "--source", "s", "--version", "1"},
		{"register", file, "--company", "none", "--source", "s", "--version", "1"},
		{"register", file, "--company", access.CompanyReference, "--source", "s", "--version", "1", "--mime-type", "x"},
		append([]string{"lookup"}, version...), {"lookup", none}, {"lookup"}, {"lookup", "a", "b"},
		{"compare", file, link}, {"compare", other, link}, {"compare", file, none},
		{"compare", file, none, "--url", "http://127.0.0.1:1"},
		{"compare", file, none, "--url", strings.Replace(access.BaseURL, "http:", "https:", 1)},
		{"evidence", none}, {"evidence", link, "--at", "x"}, {"evidence", none, "--tlog-proof"},
		{"evidence", link, "--tlog-proof", "--timestamps"}, {"verify", proof, trusted, other}, {"verify", spoilt, trusted},
		{"verify", report, trusted, file}, {"verify", report, trusted, other}, {"verify", letter, trusted},
		{"evidence", link, "--report", "--at", "1"}, {"evidence", link, "--report", "--language", "fr"},
		{"verify", saved, trusted, file}, {"verify", saved, trusted, other, "--require-timestamp"}, {"verify", file, trusted},
		{"verify", saved, file},
		{"monitor", access.BaseURL, "--trusted-keys", trusted, "--state", filepath.Join(dir, "state"), "--evidence", saved},
		{"monitor", "http://127.0.0.1:1", "--trusted-keys", trusted, "--state", filepath.Join(dir, "state")},
		{"monitor", access.BaseURL, "--trusted-keys", trusted, "--state", file},
		{"usage"}, {"changes", "--company", access.CompanyReference}, {"changes", "--company", "none"},
		{"reconcile", filepath.Join(dir, "copy.db"), "--company", "none"},
		{"reconcile", file, "--company", access.CompanyReference},
		{"manifest", "verify", listed, manifest}, {"manifest", "verify", listed, file}, {"manifest", "create", "/none"},
		{"webhook", "list"}, {"webhook", "deliveries", hook}, {"webhook", "deliveries", hook, "--status", "x"},
		{"webhook", "create", "ftp://x"}, {"webhook", "create", "http://127.0.0.1:1/", "--company", "none"},
		{"webhook", "redeliver", "x"}, {"webhook", "replay", hook, "--from", "1"}, {"webhook", "replay", hook, "--from", "0"},
		{"webhook"}, {"webhook", "tst"}, {"revoke", none}, {"revoke", link}, {"compare", file, link},
		{"webhook", "redeliver", delivery},
	} {
		english, spanish := in("C", args...), in("es_ES.UTF-8", args...)
		if english.code != spanish.code || english.out+english.errs == "" {
			t.Errorf("%v: exit code %d, in Spanish %d", args, english.code, spanish.code)
		}
		lines := strings.Split(spanish.out+spanish.errs, "\n")
		for line := range strings.SplitSeq(english.out+english.errs, "\n") {
			for _, said := range lines {
				if said == line && !sameInEveryLanguage.MatchString(line) {
					t.Errorf("%v says in both languages: %s", args, line)
				}
			}
		}
		if english.out == "" || slices.Contains(args, "deliveries") || slices.Contains(args, "redeliver") {
			continue // nothing to print as JSON, or attempts go on meanwhile
		}
		args = append(args, "--json")
		if english, spanish := in("C", args...), in("es_ES.UTF-8", args...); english.out != spanish.out {
			t.Errorf("%v depends on the language:\n%s%s", args, english.out, spanish.out)
		}
	}
}
