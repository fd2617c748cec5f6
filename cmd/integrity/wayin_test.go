package main

import (
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
)

// TestWayIntoTheDemo: a person who has lost the demo's link gets another, with the command that the page shows or with
// the button, which prints it in the terminal of the demo. Both sign in.
func TestWayIntoTheDemo(t *testing.T) {
	t.Parallel()
	s := start(t, dataDir(t), "--demo")
	base := strings.Replace(s.base, "127.0.0.1", "localhost", 1)
	client := plainHTTP()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	visit := func(method, address string, form url.Values) (status int, header http.Header, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		read, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header, string(read)
	}
	signsIn := func(how, link string) {
		t.Helper()
		status, header, text := visit(http.MethodPost, link, nil)
		if status != http.StatusSeeOther || !strings.Contains(
			strings.Join(header.Values("Set-Cookie"), " "), "integrity-session=",
		) {
			t.Errorf("the link of %s: %d %s", how, status, text)
		}
	}
	command := func(text string) string {
		t.Helper()
		found := regexp.MustCompile(`<code id="command">(.*)</code>`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no command: %s", text)
		}
		return html.UnescapeString(found[1])
	}
	page := base + "/en/console/sign-in"
	_, _, text := visit(http.MethodGet, page, nil)
	if strings.Contains(text, "data-passkey") {
		t.Error("a demo without a passkey offers one")
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", command(text)).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v %s", command(text), err, out)
	}
	signsIn("the command", strings.TrimSpace(string(out)))
	_, _, text = visit(http.MethodPost, page, url.Values{"email": {"nobody'; exit 3; '@example.org"}})
	if !strings.Contains(text, "Enter an address") || strings.Contains(command(text), "exit 3") {
		t.Errorf("a text that is no address: %s", text)
	}
	_, _, text = visit(http.MethodPost, page, url.Values{"email": {"o'neil@example.org"}})
	out, err = exec.CommandContext(t.Context(), "sh", "-c", command(text)).CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != cli.ExitNegative ||
		!strings.Contains(string(out), "no organization has an active member") {
		t.Errorf("for an address of nobody: %v %s", err, out)
	}

	for _, address := range []string{"nobody@example.org", "demo@example.org"} {
		status, _, text := visit(http.MethodPost, page+"/terminal", url.Values{"email": {address}})
		if status != http.StatusOK || !strings.Contains(text, "The terminal that runs the demo names") {
			t.Fatalf("the button for %s: %d %s", address, status, text)
		}
	}
	said := ""
	for deadline := time.After(patient); ; {
		select {
		case line := <-s.later:
			if strings.HasPrefix(line, base) {
				signsIn("the terminal", line)
				if !strings.Contains(said, "No active member has the address nobody@example.org") ||
					!strings.Contains(said, "A new link into the console for demo@example.org, for 15 minutes:") {
					t.Errorf("the terminal says: %s", said)
				}
				return
			}
			said += line
		case <-deadline:
			t.Fatal("no link was printed")
		}
	}
}
