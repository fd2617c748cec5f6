package main

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/digitorus/timestamp"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency/stamptest"
)

// TestTimestamps: a service has its log stamped by two pinned authorities, one of which lies. Metrics and commands tell
// the two apart, and a token changed later is detected.
func TestTimestamps(t *testing.T) {
	t.Parallel()
	good, liar := stamptest.New(t, "good"), stamptest.New(t, "liar")
	liar.Does(func(w http.ResponseWriter, _ *http.Request, query []byte) {
		stamptest.Reply(w, liar.Forge(query, liar.Cert, func(s *timestamp.Timestamp) { s.HashedMessage = make([]byte, 32) }))
	})
	dir, address := dataDir(t), freeAddress(t)
	env := []string{
		"INTEGRITY_TIMESTAMP_AUTHORITIES=good " + good.URL + ", liar " + liar.URL, "INTEGRITY_TIMESTAMP_INTERVAL=1s",
		"INTEGRITY_DATA_DIR=" + dir,
	}
	s := surroundings{env: env}.start(t, dir, "--demo", "--metrics-listen", address)
	id := s.registerOne("d-1")
	first := s.included(id)
	if out := integrity(t, env, "doctor").out; !strings.Contains(out, "good is not used: no certificate is pinned") ||
		good.Asked() != 0 {
		t.Errorf("doctor, before they are pinned: %s", out)
	}
	path := filepath.Join(dir, keyfiles.TrustedKeysFile)
	trusted, err := keyfiles.ReadTrusted(path)
	if err == nil {
		trusted, err = trusted.PutAuthority(good.Pinned())
	}
	if err == nil {
		trusted, err = trusted.PutAuthority(liar.Pinned())
	}
	if err = errors.Join(err, keyfiles.WriteTrusted(path, trusted)); err != nil {
		t.Fatal(err)
	}
	s.reload()
	var status operator.LogStatusView
	eventually(t, "the log is stamped by the one authority, and late for the other", func() error {
		mustJSON(t, env, &status, "log", "status")
		if len(status.Timestamps) != 2 {
			return fmt.Errorf("%+v", status.Timestamps)
		}
		a, b := status.Timestamps[0], status.Timestamps[1]
		if a.Authority != "good" || !a.Configured || a.Late || a.TreeSize == nil || *a.TreeSize < first.N ||
			a.GenTime == nil || b.Authority != "liar" || b.TreeSize != nil || !b.Late {
			return fmt.Errorf("%+v", status.Timestamps)
		}
		return nil
	})
	if out := must(t, env, "log", "status"); !strings.Contains(out, "leaves by good, ") ||
		!strings.Contains(out, "never by liar\n           WARNING: ") || strings.Count(out, "WARNING") != 2 { // the keys are not published either
		t.Errorf("log status: %s", out)
	}
	if out := integrity(t, env, "doctor").out; !strings.Contains(out, "good stamps; its certificates are valid until") ||
		!strings.Contains(out, "liar: token: it stamps something else") {
		t.Errorf("doctor: %s", out)
	}
	eventually(t, "the metrics say so", func() error {
		now := scrapeOf(t, address)
		if stored, _ := now.Sum("integrity_timestamp_tokens_total", "authority", "good"); stored < 1 {
			return fmt.Errorf("%v tokens", stored)
		}
		if failed, _ := now.Sum("integrity_timestamp_failures_total", "authority", "liar"); failed < 1 {
			return fmt.Errorf("%v failures", failed)
		}
		if lag, _ := now.Sum("integrity_timestamp_lag_seconds", "authority", "liar"); lag <= 10 {
			return fmt.Errorf("a lag of %v s", lag)
		}
		if age, found := now.Sum("integrity_timestamp_token_age_seconds", "authority", "good"); !found || age < 0 {
			return fmt.Errorf("an age of %v s", age)
		}
		return errors.Join(now.Want(0, "integrity_timestamp_tokens_total", "authority", "liar"),
			now.Want(0, "integrity_timestamp_failures_total", "authority", "good"),
			now.Want(1, "integrity_timestamp_interval_seconds"))
	})

	saved, client := filepath.Join(t.TempDir(), "evidence.json"), []string{
		"INTEGRITY_BASE_URL=" + s.base, "INTEGRITY_API_KEY=" + s.demo().Keys.Worker,
	}
	must(t, client, "evidence", id, "--timestamps", "-o", saved)
	if out := must(t, nil, "verify", saved, path, "--require-timestamp"); !strings.Contains(out, "existed before ") ||
		!strings.Contains(out, ", says good") {
		t.Errorf("verify: %s", out)
	}
	must(t, client, "evidence", id, "-o", saved)
	if r := integrity(t, nil, "verify", saved, path, "--require-timestamp"); r.code != cli.ExitNegative {
		t.Errorf("verify without timestamps: %d %s", r.code, r.out)
	}

	var stored int
	for _, row := range askOf[[]string](
		t, dir,
		"SELECT coalesce(array_agg(encode(convert_to(checkpoint, 'UTF8'), 'hex') || ' ' || encode(token, 'hex') || ' ' "+
			"|| authority), '{}') FROM log_timestamps",
	) {
		var note, token []byte
		var authority string
		if _, err := fmt.Sscanf(row, "%x %x %s", &note, &token, &authority); err != nil || authority != "good" {
			t.Fatalf("a token of %q: %v", authority, err)
		}
		if c, err := evidence.OpenCheckpoint(string(note), trusted); err != nil || len(c.SignedBy) != 1 {
			t.Errorf("the stamped checkpoint %q: %v", note, err)
		}
		good.Verify(note, token)
		stored++
	}
	s.stop()
	var checked struct {
		Tokens   int
		Unpinned []string
	}
	if mustJSON(t, env, &checked, "log", "check"); checked.Tokens < stored || stored == 0 || len(checked.Unpinned) != 0 {
		t.Errorf("log check: %+v of %d tokens", checked, stored)
	}
	must(t, env, "rebuild")
	mark := filepath.Join(t.TempDir(), "ledger.mark")
	marks := []string{"audit", "--mark", mark, "--mark-key", mark + ".key.pem"}
	if out := must(t, env, marks...); strings.Contains(out, "log_timestamps") || !strings.Contains(out, "\nwhole audit") {
		t.Errorf("audit: %s", out)
	}
	marks = append(marks, "--since", mark)
	if out := must(t, append(env, "LANG=es"), marks...); !strings.Contains(out, "\nauditoría desde la marca de 2") ||
		!strings.Contains(out, "; eventos leídos: 0; ") || !strings.Contains(out, "\nmarca: ") {
		t.Errorf("audit --since: %s", out)
	}
	spoil(
		t, dir,
		"UPDATE log_timestamps SET gen_time = gen_time - interval '1 hour' WHERE tree_size = (SELECT min(tree_size) FROM "+
			"log_timestamps)",
	)
	for _, words := range [][]string{{"audit"}, marks} {
		if r := integrity(t, env, words...); r.code != cli.ExitNegative ||
			strings.Count(r.out, "FINDING log: log_timestamps ") != 1 || strings.Contains(r.out, "\nmark: ") {
			t.Errorf("%s of a changed token: %d %s %s", words, r.code, r.out, r.errs)
		}
	}
	if r := integrity(t, env, "log", "check"); r.code != cli.ExitNegative ||
		!strings.Contains(r.out+r.errs, "the token of good for ") {
		t.Errorf("log check of a changed token: %d %s %s", r.code, r.out, r.errs)
	}
}
