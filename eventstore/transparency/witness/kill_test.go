package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/ledgertest"
)

// Environment variables of a child process.
const (
	childURL  = "WITNESS_CHILD_URL"
	childKey  = "WITNESS_CHILD_KEY"
	childLogs = "WITNESS_CHILD_LOGS"
	childBody = "WITNESS_CHILD_BODY"
	childStep = "WITNESS_CHILD_STEP"
)

// killer kills the process with SIGKILL before it sends a certain statement, or after it has the answer.
type killer struct {
	steps atomic.Int64
	at    int64 // step, from 1; even steps follow an answer
}

func (k *killer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	k.step()
	return ctx
}

func (k *killer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { k.step() }

func (k *killer) step() {
	if k.steps.Add(1) == k.at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// child handles one submission, prints its cosignature, and dies at its step. It exits with 0 if there is no such step.
func child() {
	line, err := func() (string, error) {
		at, err := strconv.ParseInt(os.Getenv(childStep), 10, 64)
		if err != nil {
			return "", err
		}
		private, err := evidence.ParseSignerPEM([]byte(os.Getenv(childKey)))
		if err != nil {
			return "", err
		}
		signer, err := NewSigner("witness.example/w", private)
		if err != nil {
			return "", err
		}
		logs, err := ParseLogs(os.Getenv(childLogs))
		if err != nil {
			return "", err
		}
		ctx := context.Background()
		plain, err := cluster.At(os.Getenv(childURL)).WitnessPool(ctx, 1)
		if err != nil {
			return "", err
		}
		config := plain.Config()
		s, err := logs.Open([]byte(os.Getenv(childBody)))
		if err != nil {
			return "", err
		}
		config.ConnConfig.Tracer = &killer{at: at}
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return "", err
		}
		return (&Witness{Pool: pool, Signer: signer, Now: time.Now, Log: slog.New(slog.DiscardHandler)}).Cosign(ctx, s)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(line)
	os.Exit(0)
}

// TestKilledAtEachStep: a process is killed before and after each of its statements. In every case, all cosigned
// checkpoints are stored, the next process continues, and another history is refused from the size that the first one
// has reached.
func TestKilledAtEachStep(t *testing.T) {
	l := ledgertest.New(t)
	private := evidence.GenerateSigner()
	key, err := evidence.MarshalSignerPEM(private)
	check(t, err)
	signer, err := NewSigner("witness.example/w", private)
	check(t, err)
	w := newWitness(t, l.URL, signer)
	h, logs := newFakeLog(t)
	h.grow(t, 3, "a")
	check(t, submit(t, w, logs, h.body(t, 0)))
	killed, before, after := 0, 0, 0
	for step := 1; ; step++ {
		size := len(h.leaves)
		h.grow(t, 2, "a")
		c := osexec.Command(os.Args[0], "-test.run=^$")
		c.Env = append(
			os.Environ(), childURL+"="+l.URL, childKey+"="+string(key), childLogs+"="+h.key, childBody+"="+h.body(t, size),
			childStep+"="+strconv.Itoa(step),
		)
		out, err := c.Output()
		var exit *osexec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) { //nolint:forcetypeassert // it is so on Linux
			t.Fatalf("step %d: %v\n%s", step, err, out)
		}
		got := remembered(t, l.Pool)
		switch {
		case strings.HasPrefix(string(out), "— ") && got.Size != int64(size+2):
			t.Fatalf("step %d: a tree of %d was cosigned, and %d is remembered", step, size+2, got.Size)
		case got.Size == int64(size):
			before++
		case got.Size == int64(size+2) && got.Note == h.checkpoint(t):
			after++
		default:
			t.Fatalf("step %d: %+v", step, got)
		}
		other := h.branch(t, size-1).grow(t, 3, "b") // of the submitted size
		if err := submit(t, w, logs, other.body(t, int(got.Size))); !errors.Is(err, ErrProof) &&
			!errors.Is(err, ErrOtherRoot) {
			t.Fatalf("step %d: another history: %v", step, err)
		}
		check(t, submit(t, w, logs, h.body(t, int(got.Size))))
		if err == nil {
			break
		}
		killed++
	}
	if killed < 10 || before < 5 || after < 2 {
		t.Errorf("killed at %d steps only, %d of them before the commit and %d after it", killed, before, after)
	}
}
