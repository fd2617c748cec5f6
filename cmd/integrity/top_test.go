package main

import (
	"fmt"
	"net/http"
	"os/user"
	"slices"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/operator"
	"integrityledger/handlers/wire"
)

// TestTopNamesTheOrganization: an operator sees within seconds which organization causes the load and who changed it.
func TestTopNamesTheOrganization(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := start(t, dir, "--log-format", "json")
	a := makeAccount(t, dir)
	client := plainHTTP()
	var batch struct {
		Declarations []wire.Declaration `json:"declarations"`
	}
	for i := range 3 {
		batch.Declarations = append(batch.Declarations, wire.Declaration{
			CompanyReference: "c-7f3a", Source: "s", DocumentReference: fmt.Sprint("d-", i), Version: 1,
			SHA256: strings.Repeat("ab", 32), SizeBytes: 1, MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
		})
	}
	ask := func(method, path, key string, body any, want int) {
		t.Helper()
		if status, err := call(client, method, s.base+path, key, body, nil); err != nil || status != want {
			t.Fatalf("%s %s: status %d, %v", method, path, status, err)
		}
	}
	ask(http.MethodPost, "/api/v1/integrity/records/batch", a.key.Key, batch, http.StatusOK)
	ask(http.MethodGet, "/api/v1/integrity/changes?companyReference=unknown", a.key.Key, nil, http.StatusForbidden)
	ask(http.MethodGet, "/api/v1/me", "ik_wrong", nil, http.StatusUnauthorized)

	var top struct{ Organizations []operator.LoadView }
	eventually(t, "integrity top shows the load", func() error {
		mustJSON(t, nil, &top, "top", "--by", "registrations", "--data-dir", dir)
		if len(top.Organizations) < 2 {
			return fmt.Errorf("%+v", top.Organizations)
		}
		return nil
	})
	got := top.Organizations[0]
	if got.Organization == nil || *got.Organization != a.organization.ID || got.Name != "Example GmbH" ||
		got.Plan != "internal" ||
		got.Registrations != 3 || got.Requests < 2 || got.Refusals != 1 || got.Received < 600 || got.Sent < 600 {
		t.Errorf("the load of the organization: %+v", got)
	}
	if !slices.ContainsFunc(top.Organizations, func(l operator.LoadView) bool {
		return l.Organization == nil && l.Refusals == 1
	}) {
		t.Errorf("the refused key has no line: %+v", top.Organizations)
	}
	if out := must(t, nil, "top", "--data-dir", dir); !strings.Contains(
		out, a.organization.ID+"  Example GmbH  (plan internal)",
	) {
		t.Errorf("integrity top: %s", out)
	}

	text := readLog(t, s)
	for _, message := range []string{"request", "group committed"} {
		if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
			return strings.Contains(line, `"msg":"`+message+`"`) &&
				strings.Contains(line, `"organization":"`+a.organization.ID+`"`)
		}) {
			t.Errorf("no line %q names the organization: %s", message, text)
		}
	}
	for line := range strings.Lines(text) {
		if _, after, found := strings.Cut(line, `"duration":`); found && !strings.HasPrefix(after, "0.") {
			t.Errorf("a duration that is not in seconds: %s", line)
		}
	}

	var acts struct{ Acts []operator.ActView }
	mustJSON(t, nil, &acts, "organization", "acts", "--organization", a.organization.ID, "--data-dir", dir)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, act := range acts.Acts {
		commands = append(commands, act.Command)
		if !strings.HasPrefix(act.Person, me.Username) || act.Host == "" || act.RequestID == "" {
			t.Errorf("an act without its person: %+v", act)
		}
	}
	want := []string{"organization create", "member add", "company create", "apikey create", "apikey grant"}
	for i := range want {
		want[i] = "integrity " + want[i]
	}
	if !slices.Equal(commands, want) {
		t.Errorf("commands %v, want %v", commands, want)
	}
}
