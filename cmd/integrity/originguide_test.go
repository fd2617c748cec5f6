package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// interrupted interrupts an origin system midway, as the page says, and pastes the command again: it continues.
func (w *terminal) interrupted(text string) string {
	w.t.Helper()
	set := "" // it is the reader's own terminal
	for _, name := range []string{"INTEGRITY_BASE_URL", "INTEGRITY_API_KEY", "INTEGRITY_COMPANY"} {
		set += "export " + name + "='" + w.variable(name) + "'\n"
	}
	lines, errs := w.begin(set + "exec " + text)
	for emitted := 0; emitted < 3; {
		line, err := lines.ReadString('\n')
		if err != nil {
			w.t.Fatalf("%s ended: %s%s", text, line, errs)
		}
		emitted += strings.Count(line, "  delivered ")
	}
	demo := w.others[len(w.others)-1]
	w.others = w.others[:len(w.others)-1]
	_ = syscall.Kill(-demo.Process.Pid, syscall.SIGINT)
	_, _ = io.Copy(io.Discard, lines)
	if err := demo.Wait(); err == nil ||
		!strings.Contains(errs.String(), "interrupted; run the same command to continue") {
		w.t.Errorf("interrupted, it ends with %v: %s", err, errs)
	}
	return w.paste(strings.Replace(text, "--interval 1s", "", 1))
}

// tryReadme pastes README's commands for newcomers, with the key that the demo printed.
func tryReadme(w *terminal, dataDir string) {
	t := w.t
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Three things to try\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(section, -1)
	if !found || len(blocks) != 4 || !strings.HasPrefix(blocks[0][1], "export INTEGRITY_API_KEY=") {
		t.Fatalf("README.md has other things to try: %q", blocks)
	}
	for from, to := range map[string]string{
		os.Getenv(binaryVariable): "bin/integrity", filepath.Join(dataDir, "trusted-keys.json"): "data/trusted-keys.json",
	} {
		to = filepath.Join(w.files, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	// The usual port may be in use here.
	origin := strings.NewReplacer(
		" origin-demo ", " origin-demo --serve "+freeAddress(t)+" ", "--interval 1s", "--interval 1ms",
	).Replace(blocks[3][1])
	w.paste("export INTEGRITY_API_KEY=" + w.in.access.Keys.Worker + " INTEGRITY_BASE_URL=" + w.in.access.BaseURL)
	said := w.paste(blocks[1][1] + blocks[2][1] + origin)
	for _, part := range []string{"MATCH_CURRENT", "HASH_MISMATCH", "everything that was supplied and checked is valid"} {
		if !strings.Contains(said, part) {
			t.Errorf("want %q:\n%s", part, said)
		}
	}
}
