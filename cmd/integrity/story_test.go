package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/handlers/wire"
)

// TestDemoStory is a newcomer's visit, from the first start to a rejected forgery.
func TestDemoStory(t *testing.T) {
	t.Parallel()
	s := surroundings{bare: true}.start(t, dataDir(t), "--demo", "--log-format", "json")
	access := s.demo()
	for _, name := range []string{demo.File, keyfiles.SigningKeyFile} {
		if info, err := os.Stat(filepath.Join(s.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: want mode 0600: %v, %v", name, info, err)
		}
	}
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + access.BaseURL}
	files := t.TempDir()
	first := write(t, filepath.Join(files, "contrato-perez.pdf"), "%PDF-1.4\nfirst "+strings.Repeat("page ", 1000))
	second := write(t, filepath.Join(files, "contrato-perez-2.pdf"), "%PDF-1.4\nsecond "+strings.Repeat("page ", 1000))
	common := []string{"--company", access.CompanyReference, "--source", "story-source", "--document", "story-document"}

	register := func(file, version string) (r wire.Registration) {
		t.Helper()
		mustJSON(t, env, &r, append([]string{"register", file, "--version", version}, common...)...)
		return r
	}
	compare := func(file, url, want string, code int) {
		t.Helper()
		r := integrity(t, nil, "compare", file, url)
		if r.code != code || !strings.HasPrefix(r.out, want+"\n") {
			t.Fatalf("compare: want %s and exit code %d: %d %s%s", want, code, r.code, r.out, r.errs)
		}
	}
	v1 := register(first, "1")
	compare(first, v1.VerificationURL, "MATCH_CURRENT", cli.ExitOK)
	compare(second, v1.VerificationURL, "HASH_MISMATCH", cli.ExitNegative)
	if again := register(first, "1"); !again.Replayed || again.PublicID != v1.PublicID {
		t.Errorf("the same declaration was not a replay: %+v", again)
	}
	if r := integrity(t, env,
		append([]string{"register", second, "--version", "1"}, common...)...); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "VERSION_CONFLICT") {
		t.Errorf("other data for a version: %d %s", r.code, r.errs)
	}
	v2 := register(second, "2")
	compare(second, v2.VerificationURL, "MATCH_CURRENT", cli.ExitOK)
	compare(first, v1.VerificationURL, "MATCH_HISTORICAL", cli.ExitNegative)
	compare(first, access.BaseURL+"/api/public/integrity/"+v1.PublicID, "MATCH_HISTORICAL", cli.ExitNegative)
	compare(first, access.BaseURL+"/integrity/"+strings.Repeat("a", 26), "RECORD_NOT_FOUND", cli.ExitNegative)
	if r := integrity(
		t, nil, "compare", first, "http://"+freeAddress(t)+"/integrity/"+v1.PublicID,
	); r.code != cli.ExitFailed || !strings.Contains(r.errs, "not a mismatch") {
		t.Errorf("a service that is away: %d %s", r.code, r.errs)
	}

	reserved := strings.TrimSpace(must(t, env, append([]string{"reserve", "--quiet", "--version", "3"}, common...)...))
	if r := integrity(t, nil, "compare", first, reserved); r.code == cli.ExitOK ||
		!strings.HasPrefix(r.out, "REGISTRATION_PENDING\n") {
		t.Errorf("compare with a reserved link: %d %s%s", r.code, r.out, r.errs)
	}
	if r := integrity(t, env,
		append([]string{"register", second, "--version", "2", "--reservation", "x"},
			common...)...); r.code != cli.ExitFailed || !strings.Contains(r.errs, "--reservation") {
		t.Errorf("a malformed reservation: %d %s", r.code, r.errs)
	}
	if r := integrity(t, env,
		append([]string{"register", second, "--version", "4", "--reservation", reserved},
			common...)...); r.code != cli.ExitNegative || !strings.Contains(r.errs, "RESERVATION_MISMATCH") {
		t.Errorf("the reservation of another version: %d %s", r.code, r.errs)
	}

	receipt := filepath.Join(files, "evidence.json")
	must(t, env, "evidence", v1.PublicID, "-o", receipt)
	trusted := filepath.Join(s.dir, keyfiles.TrustedKeysFile)
	verifyStory(t, files, receipt, trusted, first)
	history := filepath.Join(files, "history.json")
	saved, err := os.ReadFile(receipt)
	if err != nil {
		t.Fatal(err)
	}
	sequence := regexp.MustCompile(`sequence\\":([0-9]+)`).FindSubmatch(saved)
	must(t, env, "evidence", v1.PublicID, "--at", string(sequence[1]), "-o", history)
	if out := must(t, nil, "verify", history, trusted, first); !strings.Contains(
		out, "(sequence "+string(sequence[1])+"); not the present state",
	) || !strings.Contains(out, "observation   not-supplied\n") {
		t.Errorf("verify as of a sequence: %s", out)
	}
	if r := integrity(t, env, "evidence", v1.PublicID, "--at", "9999-01-01T00:00:00Z"); r.code != cli.ExitNegative ||
		r.out != "" || !strings.Contains(r.errs, "at least a minute ago") {
		t.Errorf("evidence as of the future: %d %s%s", r.code, r.out, r.errs)
	}

	other := []string{
		"--company", access.CompanyReference, "--source", "story-source", "--document", "story-reserved", "--version", "1",
	}
	link := strings.TrimSpace(must(t, env, append([]string{"reserve", "--quiet"}, other...)...))
	if out := must(t, env, append([]string{"reserve"}, other...)...); !strings.Contains(out, "pending, until ") ||
		!strings.Contains(out, link) {
		t.Errorf("reserved again: %s", out)
	}
	var final wire.Registration
	mustJSON(t, env, &final, append([]string{"register", first, "--reservation", link}, other...)...)
	if final.VerificationURL != link {
		t.Errorf("registered under %s, reserved was %s", final.VerificationURL, link)
	}
	compare(first, link, "MATCH_CURRENT", cli.ExitOK)

	admin := []string{config.VariableAPIKey + "=" + access.Keys.Admin, config.VariableBaseURL + "=" + access.BaseURL}
	if r := integrity(t, env, "revoke", v2.PublicID); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "MISSING_SCOPE") {
		t.Errorf("the worker key revokes: %d %s", r.code, r.errs)
	}
	must(t, admin, "revoke", v2.PublicID, "--reason", "story-reason")
	compare(second, v2.VerificationURL, "RECORD_REVOKED", cli.ExitNegative)
	var types []string
	for line := range strings.Lines(must(t, env, "changes", "--company", access.CompanyReference, "--json")) {
		var e wire.FeedEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		types = append(types, string(e.Type))
	}
	if got, want := strings.Join(types, " "),
		"integrity.registered integrity.registered integrity.registered integrity.superseded integrity.registered "+
			"integrity.revoked"; got != want {
		t.Errorf("feed: %s, want %s", got, want)
	}

	pasteScreen(t, s)
	demoPage(t, s)
	s.stop()
	again := start(t, s.dir, "--demo", "--log-format", "text")
	if next := again.demo(); next.Keys != access.Keys || next.OrganizationID != access.OrganizationID ||
		next.BaseURL != again.base {
		t.Errorf("a second start of the demo did not reuse the first: %+v", next)
	}
	again.stop()
	must(t, nil, "apikey", "revoke", "key_"+access.Keys.Worker[3:29], "--data-dir", s.dir)
	renewed := start(t, s.dir, "--demo")
	next := renewed.demo()
	if next.Keys.Worker == access.Keys.Worker || next.OrganizationID != access.OrganizationID {
		t.Errorf("a demo whose key was revoked: %+v", next)
	}
	compare(first, renewed.base+"/integrity/"+v1.PublicID, "MATCH_HISTORICAL", cli.ExitNegative)
	must(
		t, []string{config.VariableAPIKey + "=" + next.Keys.Worker, config.VariableBaseURL + "=" + next.BaseURL}, "changes",
		"--company", next.CompanyReference,
	)
	renewed.stop()
	stderr := filepath.Join(filepath.Dir(s.dir), "serve.log")
	if lines, err := os.ReadFile(stderr); err != nil || regexp.MustCompile("(?i)level\"?[=:]\"?info|msg=request").Match(lines) {
		t.Errorf("the terminal of the demo has more than warnings: %v %s", err, lines)
	}
	if lines, err := os.ReadFile(s.log); err != nil || !strings.Contains(string(lines), `"msg":"request"`) {
		t.Errorf("the demo's log has no requests: %v", err)
	}
	for _, path := range []string{s.log, stderr, filepath.Join(s.dir, "postgres.log")} {
		wantClean(t, path, v1.SHA256, v2.SHA256, v1.PublicID, v2.PublicID, access.Keys.Worker, access.Keys.Admin,
			access.Keys.Worker[30:], access.Keys.Admin[30:],
			access.CompanyReference, "story-source", "story-document", "story-reason", "contrato-perez", demo.Email)
	}
}

// verifyStory accepts the evidence, and rejects it after one changed byte at sampled positions of receipt and document.
func verifyStory(t *testing.T, files, receipt, trusted, document string) {
	t.Helper()
	ok := integrity(t, nil, "verify", receipt, trusted, document, "--require-references")
	if ok.code != cli.ExitOK ||
		!strings.Contains(ok.out, "no independent") && !strings.Contains(ok.out, "not an independent audit") {
		t.Fatalf("verify: %d %s%s", ok.code, ok.out, ok.errs)
	}
	var findings struct {
		Signature string   `json:"signature"`
		Limits    []string `json:"limits"`
	}
	mustJSON(t, nil, &findings, "verify", receipt, trusted, document)
	if findings.Signature != "valid" || len(findings.Limits) == 0 {
		t.Errorf("verify --json: %+v", findings)
	}
	if r := integrity(t, nil, "verify", receipt, filepath.Join(files, "missing.json")); r.code != cli.ExitFailed {
		t.Errorf("missing trusted keys: exit code %d", r.code)
	}
	if r := integrity(t, nil, "verify", receipt, trusted, "--require-current"); r.code != cli.ExitNegative {
		t.Errorf("a superseded version passes --require-current: %d", r.code)
	}
	everySampledByte(t, files, []string{receipt, trusted, document}, 0)
	everySampledByte(t, files, []string{receipt, trusted, document}, 2)
}

// everySampledByte changes sampled bytes of one of the files that verify accepts, and requires that it is rejected. The
// command runs in this process, because there are many runs.
func everySampledByte(t *testing.T, files string, accepted []string, which int) {
	t.Helper()
	text, err := os.ReadFile(accepted[which])
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(text); i += len(text)/40 + 1 {
		changed := append([]byte(nil), text...)
		changed[i] ^= 1
		args := append([]string{"verify"}, accepted...)
		args[1+which] = write(t, filepath.Join(files, "forged"), string(changed))
		if r := ask(nil, args...); r.code != cli.ExitNegative {
			t.Errorf("byte %d (%q) of %s changed: exit code %d\n%s", i, text[i], accepted[which], r.code, r.out)
		}
	}
}

// demoPage opens the page whose link the demo has printed.
func demoPage(t *testing.T, s *running) {
	t.Helper()
	link := regexp.MustCompile(`http://\S+/en/integrity/[a-z2-7]{26}`).FindString(s.screen)
	response, err := plainHTTP().Get(link)
	if err != nil {
		t.Fatalf("the page of the demo: %v\n%s", err, s.screen)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK ||
		!strings.Contains(string(page), "No file has been compared") ||
		!strings.Contains(string(page), "Current: no higher version") {
		t.Errorf("the page of the demo: %v, %d\n%s", err, response.StatusCode, page)
	}
}

// pasteScreen runs the commands of the demo's card and of its file, exactly as they are.
func pasteScreen(t *testing.T, s *running) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Log("no curl: the printed commands are not tried")
		return
	}
	var script strings.Builder
	commands, err := os.ReadFile(filepath.Join(s.dir, demo.CommandsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(s.screen + string(commands)) {
		if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "      ") { // deeper lines of the card explain
			script.WriteString(line)
		}
	}
	// The port may be in use here, and this machine may be slow.
	_, port, _ := net.SplitHostPort(freeAddress(t))
	pasted := strings.NewReplacer(guidePort, port, "sleep 2;",
		`for i in {1..100}; do INTEGRITY_API_KEY=`+s.demo().Keys.Admin+
			` integrity webhook deliveries "${WEBHOOK%% *}" --status delivered | grep . && break; sleep 0.2; done;`).Replace(script.String())
	c := exec.Command("bash", "-c", pasted)
	c.WaitDelay = time.Minute
	c.Env, c.Dir = cleanEnviron(), t.TempDir()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("the printed commands: %v\n%s", err, out)
	}
	got := strings.Join(regexp.MustCompile(`(?m)^[A-Z]+_[A-Z]+$`).FindAllString(string(out), -1), " ")
	want := "MATCH_CURRENT MATCH_CURRENT MATCH_CURRENT MATCH_HISTORICAL HASH_MISMATCH RECORD_REVOKED"
	if got != want || !strings.Contains(string(out), "everything that was supplied and checked is valid") ||
		!strings.Contains(string(out), `"hasMore":false`) ||
		!strings.Contains(string(out), `"POST /hook HTTP/1.1" 204`) ||
		!strings.Contains(string(out), "webhook.test  delivered  1 attempts") {
		t.Errorf("the printed commands gave %s, want %s:\n%s", got, want, out)
	}
}
