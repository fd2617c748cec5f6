package main

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"integrityledger/domain"
)

// TestOrganizationCertification: credits, retention and erasure by an operator, as the running service sees them.
func TestOrganizationCertification(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	s := start(t, dir)
	var org organizationView
	mustJSON(t, nil, &org, append([]string{"organization", "create", "Example GmbH", "--plan", "gratis"}, at...)...)
	in := append([]string{"--organization", org.ID}, at...)
	must(t, nil, append([]string{"member", "add", "--email", "ana@example.org", "--role", "owner"}, in...)...)
	var key keyView
	mustJSON(t, nil, &key, append([]string{"key", "create", "--member", "ana@example.org", "--scopes", "artifacts:read,artifacts:write"}, in...)...)

	var credits struct{ Added, Balance int64 }
	mustJSON(t, nil, &credits, append([]string{"organization", "credits", "add", org.ID, "--files", "40"}, at...)...)
	mustJSON(t, nil, &credits, append([]string{"organization", "credits", "add", org.ID, "--files", "2"}, at...)...)
	var usage struct{ Credits struct{ Balance int64 } }
	if _, err := call(plainHTTP(), http.MethodGet, s.base+"/api/v1/usage", key.Key, nil, &usage); err != nil || credits.Balance != 42 || usage.Credits.Balance != 42 {
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
	if out := must(t, nil, append([]string{"organization", "erase", org.ID, made.Artifact.ID}, at...)...); !strings.Contains(out, "erased 1 texts") {
		t.Error(out)
	}
	var artifact struct{ Title *string }
	if _, err := call(plainHTTP(), http.MethodGet, s.base+"/api/v1/artifacts/"+made.Artifact.ID, key.Key, nil, &artifact); err != nil || artifact.Title != nil {
		t.Errorf("after erasure: %+v %v", artifact, err)
	}
	for want, args := range map[int][]string{
		exitNegative: {"organization", "erase", org.ID, made.Artifact.ID},
		exitFailed:   {"organization", "retention", org.ID, "--keep", "days:0"},
	} {
		if r := integrity(t, nil, append(args, at...)...); r.code != want {
			t.Errorf("%v: exit code %d, want %d: %s", args, r.code, want, r.errs)
		}
	}
	if r := integrity(t, nil, append([]string{"organization", "credits", "add", org.ID, "--files", "0"}, at...)...); r.code != exitNegative {
		t.Errorf("no credits: %d %s", r.code, r.errs)
	}
}

// TestEraseSubjects: who is still a member keeps the address, an id ends a membership whose address is gone, and a
// version goes with its bytes.
func TestEraseSubjects(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	s := start(t, dir)
	var org organizationView
	mustJSON(t, nil, &org, append([]string{"organization", "create", "Example GmbH", "--plan", "gratis"}, at...)...)
	in := append([]string{"--organization", org.ID}, at...)
	var member memberView
	mustJSON(t, nil, &member, append([]string{"member", "add", "--email", "ana@example.org", "--role", "owner"}, in...)...)
	var key keyView
	mustJSON(t, nil, &key, append([]string{"key", "create", "--member", member.ID, "--scopes", "artifacts:read,artifacts:write"}, in...)...)
	must(t, nil, append([]string{"organization", "retention", org.ID, "--keep", "days:30"}, at...)...)
	var made struct{ Version struct{ ID string } }
	text := map[string]string{"title": "Personal", "kind": "text", "text": "the bytes"}
	if status, err := call(plainHTTP(), http.MethodPost, s.base+"/api/v1/artifacts", key.Key, text, &made); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %v", status, err)
	}
	erase := func(subject string) result {
		return integrity(t, nil, append([]string{"organization", "erase", org.ID, subject}, at...)...)
	}
	if r := erase(made.Version.ID); r.code != 0 || !strings.Contains(r.out, "erased 1 texts") || !strings.Contains(r.out, "kept bytes of 1 versions") {
		t.Errorf("a version: %d %s%s", r.code, r.out, r.errs)
	}
	if r := erase(made.Version.ID); r.code != exitNegative {
		t.Errorf("a version that was erased: %d %s%s", r.code, r.out, r.errs)
	}
	if r := erase(member.ID); r.code != exitNegative || !strings.Contains(r.errs, "integrity member end --organization "+org.ID+" --member "+member.ID) {
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
		if r := integrity(t, nil, append(append([]string{"member", "end"}, c.flags...), in...)...); r.code != exitFailed || !strings.Contains(r.errs, c.says) {
			t.Errorf("member end %v: %d %s", c.flags, r.code, r.errs)
		}
	}
	must(t, nil, append([]string{"member", "end", "--member", member.ID}, in...)...)
	if r := erase(member.ID); r.code != 0 || !strings.Contains(r.out, "erased 1 texts") {
		t.Errorf("an ended member: %d %s%s", r.code, r.out, r.errs)
	}
	if r := integrity(t, nil, append([]string{"key", "create", "--member", member.ID, "--scopes", "artifacts:read"}, in...)...); r.code != exitNegative {
		t.Errorf("a key of an ended member: %d %s", r.code, r.errs)
	}
}

// TestContents: the default store keeps bytes in a directory of its owner alone, and forgets them.
func TestContents(t *testing.T) {
	cfg := Config{DataDir: filepath.Join(t.TempDir(), "data")}
	url, err := cfg.blobURL()
	if err != nil {
		t.Fatal(err)
	}
	var synced []string
	c := &contents{url: url, sync: func(path string) error {
		synced = append(synced, strings.TrimPrefix(path, cfg.DataDir))
		return syncPath(path)
	}}
	defer func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}()
	o, v := domain.OrganizationID{1}, domain.ArtifactVersionID{2}
	if err := c.remove(t.Context(), o, v); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
	if err := c.keep(t.Context(), o, v, strings.NewReader("bytes"), 5); err != nil {
		t.Fatal(err)
	}
	of := "/blobs/" + o.String()
	if want := []string{of + "/" + v.String(), of, "/blobs", ""}; !slices.Equal(synced, want) {
		t.Errorf("on the disk are %q, want %q", synced, want)
	}
	info, err := os.Stat(filepath.Join(cfg.DataDir, "blobs", o.String(), v.String()))
	if err != nil || info.Size() != 5 {
		t.Errorf("%v %v", info, err)
	}
	if dir, err := os.Stat(filepath.Join(cfg.DataDir, "blobs")); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", dir, err)
	}
	// A process that dies in the middle leaves what it has written: the same here, with a reader that looks when half is there.
	half := ""
	dying := domain.ArtifactVersionID{3}
	watch := watcher{strings.NewReader(strings.Repeat("x", 1<<20)), func() {
		left, err := filepath.Glob(filepath.Join(cfg.DataDir, "blobs", o.String(), dying.String()+"*"))
		if err == nil && len(left) == 1 {
			half = left[0]
		}
	}}
	if err := c.keep(t.Context(), o, dying, watch, 1<<20); err != nil || half == "" {
		t.Fatalf("while bytes are written: %q %v", half, err)
	}
	write(t, half, "half")
	if err := c.remove(t.Context(), o, dying); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(cfg.DataDir, "blobs", o.String()))
	if err != nil || len(left) != 1 || left[0].Name() != v.String() {
		t.Errorf("after one was removed: %v %v", left, err)
	}
	synced = nil
	if err := c.remove(t.Context(), o, v); err != nil {
		t.Error(err)
	}
	if want := []string{of}; !slices.Equal(synced, want) {
		t.Errorf("after removal %q were brought to the disk, want %q", synced, want)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "blobs", o.String(), v.String())); !os.IsNotExist(err) {
		t.Errorf("after removal: %v", err)
	}
	c.sync = func(path string) error { return &fs.PathError{Op: "sync", Path: path, Err: syscall.EIO} }
	var refusal *domain.Error
	if err := c.keep(t.Context(), o, v, strings.NewReader("bytes"), 5); !errors.As(err, &refusal) || refusal.Code != domain.TemporarilyUnavailable {
		t.Errorf("bytes that the disk did not take: %v", err)
	}
	for text, good := range map[string]bool{"file:///x": true, "s3://bucket?region=eu": true, "file://": false, "s3://": false, "gs://x": false, "x": false} {
		if (checkBlobURL(text) == nil) != good {
			t.Errorf("%s: %v", text, checkBlobURL(text))
		}
	}
}

// watcher calls look whenever it is read.
type watcher struct {
	io.ReaderAt
	look func()
}

func (w watcher) ReadAt(p []byte, at int64) (int, error) {
	w.look()
	return w.ReaderAt.ReadAt(p, at)
}
