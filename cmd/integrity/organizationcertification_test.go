package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
)

// TestOrganizationCertification: a running service applies an operator's credits, retention and erasure.
func TestOrganizationCertification(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	s := start(t, dir)
	var org operator.OrganizationView
	mustJSON(t, nil, &org, append([]string{"organization", "create", "Example GmbH", "--plan", "gratis"}, at...)...)
	in := append([]string{"--organization", org.ID}, at...)
	must(t, nil, append([]string{"member", "add", "--email", "ana@example.org", "--role", "owner"}, in...)...)
	var key operator.KeyView
	mustJSON(t, nil, &key,
		append([]string{"apikey", "create", "--member", "ana@example.org", "--scopes", "artifacts:read,artifacts:write"},
			in...)...)

	var credits struct{ Added, Balance int64 }
	mustJSON(t, nil, &credits, append([]string{"organization", "credits", "add", org.ID, "--files", "40"}, at...)...)
	mustJSON(t, nil, &credits, append([]string{"organization", "credits", "add", org.ID, "--files", "2"}, at...)...)
	var usage struct{ Credits struct{ Balance int64 } }
	if _, err := call(plainHTTP(), http.MethodGet, s.base+"/api/v1/usage", key.Key, nil, &usage); err != nil ||
		credits.Balance != 42 || usage.Credits.Balance != 42 {
		t.Errorf("credits: %+v, the service says %+v %v", credits, usage, err)
	}
	must(t, nil, append([]string{"organization", "retention", org.ID, "--keep", "days:30"}, at...)...)
	var made struct {
		Artifact struct{ ID string }
		Version  struct {
			ID      string
			Content struct{ KeptUntil *string }
		}
	}
	text := map[string]string{"title": "Personal", "kind": "text", "text": "the bytes"}
	status, err := call(plainHTTP(), http.MethodPost, s.base+"/api/v1/artifacts", key.Key, text, &made)
	if err != nil || status != http.StatusCreated || made.Version.Content.KeptUntil == nil {
		t.Fatalf("%d %+v %v", status, made, err)
	}
	kept := filepath.Join(dir, "blobs", org.ID, made.Version.ID)
	if body, err := os.ReadFile(kept); err != nil || string(body) != "the bytes" {
		t.Errorf("kept bytes: %q %v", body, err)
	}
	if out := must(t, nil,
		append([]string{"organization", "erase", org.ID, made.Artifact.ID}, at...)...); !strings.Contains(out, "erased 1 texts") {
		t.Error(out)
	}
	var artifact struct{ Title *string }
	if _, err := call(
		plainHTTP(), http.MethodGet, s.base+"/api/v1/artifacts/"+made.Artifact.ID, key.Key, nil, &artifact,
	); err != nil || artifact.Title != nil {
		t.Errorf("after erasure: %+v %v", artifact, err)
	}
	for want, args := range map[int][]string{
		cli.ExitNegative: {"organization", "erase", org.ID, made.Artifact.ID},
		cli.ExitFailed:   {"organization", "retention", org.ID, "--keep", "days:0"},
	} {
		if r := integrity(t, nil, append(args, at...)...); r.code != want {
			t.Errorf("%v: exit code %d, want %d: %s", args, r.code, want, r.errs)
		}
	}
	if r := integrity(t, nil,
		append([]string{"organization", "credits", "add", org.ID, "--files", "0"}, at...)...); r.code != cli.ExitNegative {
		t.Errorf("no credits: %d %s", r.code, r.errs)
	}
}

// TestEraseSubjects: an active member's address cannot be erased, an ID ends a membership whose address is erased, and
// erasing a version erases its bytes.
func TestEraseSubjects(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	s := start(t, dir)
	var org operator.OrganizationView
	mustJSON(t, nil, &org, append([]string{"organization", "create", "Example GmbH", "--plan", "gratis"}, at...)...)
	in := append([]string{"--organization", org.ID}, at...)
	var member operator.MemberView
	mustJSON(t, nil, &member, append([]string{"member", "add", "--email", "ana@example.org", "--role", "admin"}, in...)...)
	var key operator.KeyView
	mustJSON(t, nil, &key,
		append([]string{"apikey", "create", "--member", member.ID, "--scopes", "artifacts:read,artifacts:write"}, in...)...)
	must(t, nil, append([]string{"organization", "retention", org.ID, "--keep", "days:30"}, at...)...)
	var made struct{ Version struct{ ID string } }
	text := map[string]string{"title": "Personal", "kind": "text", "text": "the bytes"}
	if status, err := call(plainHTTP(), http.MethodPost, s.base+"/api/v1/artifacts", key.Key, text, &made); err != nil ||
		status != http.StatusCreated {
		t.Fatalf("%d %v", status, err)
	}
	erase := func(subject string) result {
		return integrity(t, nil, append([]string{"organization", "erase", org.ID, subject}, at...)...)
	}
	if r := erase(made.Version.ID); r.code != 0 || !strings.Contains(r.out, "erased 1 texts") ||
		!strings.Contains(r.out, "kept bytes of 1 versions") {
		t.Errorf("a version: %d %s%s", r.code, r.out, r.errs)
	}
	if r := erase(made.Version.ID); r.code != cli.ExitNegative {
		t.Errorf("a version that was erased: %d %s%s", r.code, r.out, r.errs)
	}
	if r := erase(member.ID); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "integrity member end --organization "+org.ID+" --member "+member.ID) {
		t.Errorf("an active member: %d %s%s", r.code, r.out, r.errs)
	}
	for _, c := range []struct {
		flags []string
		says  string
	}{
		{[]string{"--member", "usr_1"}, "--member: must be an id of the form usr_"},
		{[]string{"--member", member.ID, "--email", "ana@example.org"}, "email member"},
		{nil, "email member"},
	} {
		if r := integrity(t, nil,
			append(append([]string{"member", "end"}, c.flags...), in...)...); r.code != cli.ExitFailed ||
			!strings.Contains(r.errs, c.says) {
			t.Errorf("member end %v: %d %s", c.flags, r.code, r.errs)
		}
	}
	must(t, nil, append([]string{"member", "end", "--member", member.ID}, in...)...)
	if r := erase(member.ID); r.code != 0 || !strings.Contains(r.out, "erased 1 texts") {
		t.Errorf("an ended member: %d %s%s", r.code, r.out, r.errs)
	}
	if r := integrity(t, nil,
		append([]string{"apikey", "create", "--member", member.ID, "--scopes", "artifacts:read"},
			in...)...); r.code != cli.ExitNegative {
		t.Errorf("a key of an ended member: %d %s", r.code, r.errs)
	}
}
