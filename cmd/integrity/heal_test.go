package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
)

// healClient is an organization's client, which keeps its evidence.
type healClient struct {
	*running
	key string
}

func (c healClient) declare(document string, version int32) wire.Declaration {
	return wire.Declaration{
		CompanyReference: "c", Source: "s", DocumentReference: document, Version: version,
		SHA256: strings.Repeat("ab", 32), SizeBytes: 1, MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}
}

func (c healClient) register(document string, version int32) (r wire.Registration) {
	c.t.Helper()
	status, err := call(
		plainHTTP(), http.MethodPost, c.base+"/api/v1/integrity/records", c.key, c.declare(document, version), &r,
	)
	if err != nil || status != http.StatusCreated {
		c.t.Fatalf("%s %d: %d %v", document, version, status, err)
	}
	return r
}

func (c healClient) get(path string) (status int, body []byte) {
	c.t.Helper()
	request, err := http.NewRequest(http.MethodGet, c.base+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	response, err := plainHTTP().Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, body
}

func (c healClient) compare(id string) string {
	c.t.Helper()
	var answer struct{ Data wire.Comparison }
	status, body := c.get("/api/public/integrity/" + id + "?sha256=" + strings.Repeat("ab", 32))
	if status != http.StatusOK {
		return http.StatusText(status)
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		c.t.Fatal(err)
	}
	return string(answer.Data.Result)
}

// healed runs integrity heal and returns its lines by public id, and its summary.
func healed(t *testing.T, env []string, code int, args ...string) (map[string]operator.HealView, operator.HealedView) {
	t.Helper()
	r := integrity(t, env, append(append([]string{"heal"}, args...), "--json")...)
	if r.code != code {
		t.Fatalf("heal %v: %d %s%s", args, r.code, r.out, r.errs)
	}
	lines, sum := map[string]operator.HealView{}, operator.HealedView{}
	for in := bufio.NewScanner(strings.NewReader(r.out)); in.Scan(); {
		var v operator.HealView
		if err := json.Unmarshal(in.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		switch {
		case v.State == "":
			if err := json.Unmarshal(in.Bytes(), &sum); err != nil {
				t.Fatal(err)
			}
		case v.PublicID != nil:
			lines[*v.PublicID] = v
		default:
			lines[filepath.Base(v.Place)] = v
		}
	}
	return lines, sum
}

// TestHealLostRegion loses acknowledged registrations to a database that lacks them, as after the promotion of an
// asynchronous standby. From the files that the client holds, heal brings them back under their public ids, once, with
// their receipts, and everything that the client held is answered again.
func TestHealLostRegion(t *testing.T) {
	t.Parallel()
	url := foreignDatabase(t.Context(), t)
	dir := dataDir(t)
	env := []string{"INTEGRITY_DATABASE_URL=" + url, "INTEGRITY_DATA_DIR=" + dir}
	must(t, nil, "keys", "generate", "--data-dir", dir)
	s := surroundings{env: env}.start(t, dir, "--issuer", "lost-region")
	c := healClient{s, externalAccount(t, env)}
	kept := c.register("kept", 1)
	s.stop()
	for _, step := range []string{"--stage", "--activate"} {
		must(t, env, "keys", "rotate", "--transparency-log", step)
	}
	behind := strings.Replace(url, "/integrity", "/behind", 1)
	pgtest.Exec(t, strings.Replace(url, "/integrity", "/postgres", 1), `CREATE DATABASE behind TEMPLATE integrity`)

	s = surroundings{env: env}.start(t, dir)
	c.running = s
	first, second := c.register("lost", 1), c.register("lost", 2)
	anew, open := c.register("anew", 1), c.register("answered", 1)
	held, receipts := t.TempDir(), map[string][]byte{}
	for _, r := range []wire.Registration{kept, first, second, anew} {
		_, evidence := c.get("/api/v1/integrity/records/" + r.PublicID + "/evidence")
		write(t, filepath.Join(held, r.PublicID+".json"), string(evidence))
	}
	var log operator.LogStatusView
	mustJSON(t, env, &log, "log", "status")
	var seen logHead
	eventually(t, "the log has every event", func() (err error) {
		if seen, err = s.logHead(); err == nil && seen.N < log.Events {
			err = fmt.Errorf("%d of %d", seen.N, log.Events)
		}
		return err
	})
	published := write(t, filepath.Join(t.TempDir(), "checkpoint"), seen.text)
	var last wire.Feed[wire.FeedEvent]
	if _, err := call(
		plainHTTP(), http.MethodGet, s.base+"/api/v1/integrity/changes?companyReference=c", c.key, nil, &last,
	); err != nil {
		t.Fatal(err)
	}
	for _, r := range []wire.Registration{first, second, anew, open} {
		_, receipts[r.PublicID] = c.get("/api/public/integrity/" + r.PublicID + "/receipt")
	}
	response, err := json.Marshal(open)
	if err != nil {
		t.Fatal(err)
	}
	declaration, err := json.Marshal(c.declare("answered", 1))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(held, "outbox.jsonl"),
		`{"declaration":`+string(declaration)+`,"response":`+string(response)+"}\n")
	write(t, filepath.Join(held, "junk.bin"), "\x00\x01 junk")
	broken := bytes.Replace(receipts[first.PublicID], []byte(`\"sizeBytes\":1`), []byte(`\"sizeBytes\":2`), 1)
	write(t, filepath.Join(held, "forged.json"), string(broken))
	s.stop()

	env[0] = "INTEGRITY_DATABASE_URL=" + behind
	must(t, env, "restore", "--external")
	s = surroundings{env: env}.start(t, dir)
	c.running = s
	if result := c.compare(first.PublicID); result != http.StatusText(http.StatusNotFound) {
		t.Fatalf("the record was not lost: %s", result)
	}
	later := c.register("anew", 1)
	var organizations struct{ Organizations []operator.OrganizationView }
	mustJSON(t, env, &organizations, "organization", "list")
	of := []string{"--organization", organizations.Organizations[0].ID, held}

	want := map[string]string{
		first.PublicID: "provable", second.PublicID: "provable", anew.PublicID: "alias", open.PublicID: "declared",
		"junk.bin": "refused", "forged.json": "refused",
	}
	check := func(what string, lines map[string]operator.HealView) {
		t.Helper()
		for id, state := range want {
			if lines[id].State != state {
				t.Errorf("%s: %s is %+v, want %s", what, id, lines[id], state)
			}
		}
		if len(lines) != len(want) {
			t.Errorf("%s: %v", what, lines)
		}
	}
	// Five events are lost, of which one registration since then hides one. The files bring back four records.
	sequence := last.NextCursor
	lines, sum := healed(t, env, cli.ExitNegative, append(
		[]string{"plan", "--sequence", strconv.FormatInt(sequence+7, 10), "--published", published}, of...,
	)...)
	check("plan", lines)
	if m := sum.Missing; len(m) != 2 || m[0].Has != sequence-4 || m[0].Lost != 11 || *m[0].Unproven != 7 ||
		m[1].Seen != seen.N || m[1].Lost != 4 {
		t.Errorf("missing beyond the files: %+v, sequence %d, log %d", m, sequence, seen.N)
	}
	if sum.Present != 1 || sum.Restored != 0 || c.compare(first.PublicID) == string(wire.MatchHistorical) {
		t.Errorf("the plan changed something: %+v", sum)
	}
	lines, sum = healed(t, env, cli.ExitNegative, append([]string{"apply"}, of...)...)
	check("apply", lines)
	if sum.Restored != 3 || lines[open.PublicID].Applied || c.compare(open.PublicID) == string(wire.MatchCurrent) {
		t.Errorf("apply without --declared: %+v", sum)
	}
	if _, sum = healed(t, env, cli.ExitNegative, append([]string{"apply", "--declared"}, of...)...); sum.Restored != 1 {
		t.Errorf("apply --declared: %+v", sum)
	}
	_, sum = healed(t, env, cli.ExitNegative, append([]string{"apply", "--declared"}, of...)...)
	if sum.Present != 5 || sum.Refused != 2 || sum.Restored != 0 {
		t.Errorf("again: %+v", sum)
	}

	for id, result := range map[string]wire.ComparisonResult{
		kept.PublicID: wire.MatchCurrent, first.PublicID: wire.MatchHistorical, second.PublicID: wire.MatchCurrent,
		anew.PublicID: wire.MatchCurrent, later.PublicID: wire.MatchCurrent, open.PublicID: wire.MatchCurrent,
	} {
		if got := c.compare(id); got != string(result) {
			t.Errorf("%s: %s, want %s", id, got, result)
		}
	}
	for id, receipt := range receipts {
		_, now := c.get("/api/public/integrity/" + id + "/receipt")
		if same := bytes.Equal(now, receipt); same != (id != open.PublicID) {
			t.Errorf("the receipt of %s is\n%s, was\n%s", id, now, receipt)
		}
		status, exported := c.get("/api/v1/integrity/records/" + id + "/evidence")
		file := write(t, filepath.Join(t.TempDir(), "evidence.json"), string(exported))
		if r := integrity(t, nil, "verify", file, filepath.Join(dir, "trusted-keys.json")); status !=
			http.StatusOK || r.code != cli.ExitOK {
			t.Errorf("evidence of %s: %d, %d %s%s", id, status, r.code, r.out, r.errs)
		}
	}
	releasedVerifiersAccept(t, c, filepath.Join(dir, "trusted-keys.json"), first.PublicID, anew.PublicID, open.PublicID)
	// The origin's outbox sends again what it had sent: a replay.
	var again wire.Registration
	status, err := call(
		plainHTTP(), http.MethodPost, s.base+"/api/v1/integrity/records", c.key, c.declare("lost", 2), &again,
	)
	if err != nil || status != http.StatusOK || again.PublicID != second.PublicID {
		t.Errorf("the declaration again: %d %v %+v", status, err, again)
	}
	var feed wire.Feed[wire.FeedEvent]
	if _, err := call(
		plainHTTP(), http.MethodGet, s.base+"/api/v1/integrity/changes?companyReference=c", c.key, nil, &feed,
	); err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	for _, e := range feed.Events {
		told.WriteString(string(e.Type) + " " + e.PublicID + "\n")
	}
	if !strings.Contains(told.String(), "integrity.registered "+second.PublicID) ||
		strings.Contains(told.String(), "healed") || strings.Contains(told.String(), anew.PublicID) {
		t.Errorf("the feed: %s", told.String())
	}
	must(t, env, "rebuild", "--check")
	if out := must(t, env, "audit"); !strings.Contains(out, "verdict: everything that was checked is correct") {
		t.Errorf("audit: %s", out)
	}
}

// releasedVerifiersAccept verifies the evidence of restored records with verifiers that were published before. They
// know no leaf of a healed record, so the evidence has no proof of inclusion that they would take for a forged one.
func releasedVerifiersAccept(t *testing.T, c healClient, trusted string, ids ...string) {
	t.Helper()
	const released = "../../handlers/developers/testdata/released/"
	wheels, err := filepath.Glob(released + "*/*.whl")
	if err != nil || len(wheels) == 0 {
		t.Fatalf("no released wheel: %v", err)
	}
	for _, id := range ids {
		_, exported := c.get("/api/v1/integrity/records/" + id + "/evidence")
		file := write(t, filepath.Join(t.TempDir(), "evidence.json"), string(exported))
		for _, verifier := range [][]string{
			{released + "0.2.0/verify_integrity.py"}, {"-m", "verify_integrity"}, // the newest one, from its wheel
		} {
			verify := exec.Command("python3", append(verifier, file, trusted, "--json")...)
			verify.Env = append(
				os.Environ(), "PYTHONPATH="+wheels[len(wheels)-1],
			)
			out, err := verify.CombinedOutput()
			var found struct{ Signature, References, Observation, Inclusion string }
			if err == nil {
				err = json.Unmarshal(out, &found)
			}
			if err != nil || found.Signature != "valid" || found.References != "valid" || found.Observation != "valid" ||
				found.Inclusion != "not-supplied" {
				t.Errorf("%v of %s: %v %s", verifier, id, err, out)
			}
		}
	}
}
