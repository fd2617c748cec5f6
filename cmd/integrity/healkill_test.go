package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
)

// TestHealSurvivesKills ends heal apply by SIGKILL at random moments. Run again, it completes: each lost record is back
// once, with its public id. HEAL_SEED repeats a run's moments.
func TestHealSurvivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills heal apply for a while")
	}
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("HEAL_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("HEAL_SEED=%d", seed)
	moments := rand.New(rand.NewPCG(seed, 0))
	url := foreignDatabase(t.Context(), t)
	dir := dataDir(t)
	env := []string{"INTEGRITY_DATABASE_URL=" + url, "INTEGRITY_DATA_DIR=" + dir}
	must(t, nil, "keys", "generate", "--data-dir", dir)
	s := surroundings{env: env}.start(t, dir, "--issuer", "killed")
	c := healClient{s, externalAccount(t, env)}
	s.stop()
	behind := strings.Replace(url, "/integrity", "/behind", 1)
	pgtest.Exec(t, strings.Replace(url, "/integrity", "/postgres", 1), `CREATE DATABASE behind TEMPLATE integrity`)
	s = surroundings{env: env}.start(t, dir)
	c.running = s
	const batches, size = 9, 100
	ids := map[string]bool{}
	for b := range batches {
		var request wire.BatchRequest
		for v := range int32(size) {
			request.Declarations = append(request.Declarations, c.declare(fmt.Sprint("d-", b), v+1))
		}
		var answer wire.Results[wire.Registration]
		if status, err := call(
			plainHTTP(), http.MethodPost, s.base+"/api/v1/integrity/records/batch", c.key, request, &answer,
		); err != nil || status != http.StatusOK {
			t.Fatal(status, err)
		}
		for _, item := range answer.Results {
			if item.Data == nil {
				t.Fatalf("%+v", item.Error)
			}
			ids[item.Data.PublicID] = true
		}
	}
	s.stop()
	var organizations struct{ Organizations []operator.OrganizationView }
	mustJSON(t, env, &organizations, "organization", "list")
	in := []string{"--organization", organizations.Organizations[0].ID}
	bundle := filepath.Join(t.TempDir(), "bundle")
	must(t, env, append([]string{"export", "--out", bundle}, in...)...)

	env[0] = "INTEGRITY_DATABASE_URL=" + behind
	must(t, env, "restore", "--external")
	of := append(in, bundle)
	if _, sum := healed(t, env, cli.ExitOK, append([]string{"plan"}, of...)...); sum.Provable != batches*size {
		t.Fatalf("the plan: %+v", sum)
	}
	conn, err := pgx.Connect(t.Context(), behind)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	back := func() (n int) {
		if err := conn.QueryRow(
			t.Context(), "SELECT count(*) FROM events WHERE type = 'integrity.healed'",
		).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// Each run ends a random moment after it has brought back some more.
	var partial []int
	staged := t.TempDir()
	for range 5 {
		until, late := back()+moments.IntN(batches*size/4), time.Duration(moments.Int64N(int64(20*time.Millisecond)))
		heal := exec.CommandContext(t.Context(), os.Getenv(binaryVariable), append([]string{"heal", "apply"}, of...)...)
		heal.Env = append(cleanEnviron(env...), "TMPDIR="+staged)
		if err := heal.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- heal.Wait() }()
		var err error
		over := false
		for !over && back() < until {
			select {
			case err = <-ended:
				over = true
			default:
			}
		}
		if !over {
			time.Sleep(late)
			_ = heal.Process.Kill() // it may have ended
			err = <-ended
		}
		var exit *exec.ExitError
		switch n := back(); {
		case err != nil && (!errors.As(err, &exit) || exit.ExitCode() >= 0):
			t.Fatalf("heal apply: %v", err)
		case err != nil && n > 0 && n < batches*size:
			partial = append(partial, n)
		}
	}
	t.Logf("of %d records, after each kill in between: %d were back", batches*size, partial)
	if len(partial) == 0 {
		t.Error("no run ended in between")
	}
	if left, err := os.ReadDir(staged); err != nil || len(left) > 0 {
		t.Errorf("the killed runs left what clients hold: %v %v", left, err)
	}
	before := back()
	_, sum := healed(t, env, cli.ExitOK, append([]string{"apply"}, of...)...)
	if sum.Restored != batches*size-before || sum.Refused != 0 || sum.Alias != 0 {
		t.Errorf("the last run: %+v", sum)
	}
	_, sum = healed(t, env, cli.ExitOK, append([]string{"apply"}, of...)...)
	if sum.Present != batches*size || sum.Restored != 0 {
		t.Errorf("again: %+v", sum)
	}
	times := map[string]int{}
	for line := range strings.Lines(must(t, env, append([]string{"replay"}, in...)...)) {
		if strings.Contains(line, `"type":"integrity.healed"`) {
			_, rest, _ := strings.Cut(line, `"subject":"`)
			id, _, _ := strings.Cut(rest, `"`)
			times[id]++
		}
	}
	for id := range ids {
		if times[id] != 1 {
			t.Errorf("%s came back %d times", id, times[id])
		}
	}
	if len(times) != len(ids) {
		t.Errorf("%d records came back, %d were lost", len(times), len(ids))
	}
	must(t, env, "rebuild", "--check")
	if out := must(t, env, "audit"); !strings.Contains(out, "verdict: everything that was checked is correct") {
		t.Errorf("audit: %s", out)
	}
}
