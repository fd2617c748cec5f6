package transparency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// Environment variables of a child process.
const (
	childURL  = "TRANSPARENCY_CHILD_URL"
	childKey  = "TRANSPARENCY_CHILD_KEY"
	childStep = "TRANSPARENCY_CHILD_STEP"
)

// killer kills the process with SIGKILL before it sends statement number at, after the answer to the previous
// statement.
type killer struct {
	steps atomic.Int64
	at    int64
}

func (k *killer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if k.steps.Add(1) == k.at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return ctx
}

func (k *killer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// child takes one turn of the log and dies at its step. It exits with 0 if there is no such step.
func child() {
	err := func() error {
		at, err := strconv.ParseInt(os.Getenv(childStep), 10, 64)
		if err != nil {
			return err
		}
		private, err := evidence.ParseSignerPEM([]byte(os.Getenv(childKey)))
		if err != nil {
			return err
		}
		signer, err := NewSigner(logName, private)
		if err != nil {
			return err
		}
		ctx := context.Background()
		plain, err := cluster.At(os.Getenv(childURL)).ConsumerPool(ctx, 2)
		if err != nil {
			return err
		}
		config := plain.Config()
		config.ConnConfig.Tracer = &killer{at: at}
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return err
		}
		log, err := New(Config{
			Pool: pool, Signer: func() *Signer { return signer }, Now: time.Now, Log: slog.New(slog.DiscardHandler), Batch: 4,
		})
		if err != nil {
			return err
		}
		return log.turn(ctx)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestKilledAtEachStep: a process that works on the tree is killed at each of its statements. The next process
// continues, nothing is lost, and earlier checkpoints stay valid.
func TestKilledAtEachStep(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	other := l.Organization(t, 2, domain.InternalPlan)
	key, err := evidence.MarshalSignerPEM(signer.private)
	check(t, err)
	var size int64
	var root []byte
	killed, unsigned, n := 0, 0, 0
	for step := 1; ; step++ {
		register(t, l, o, n, 3)
		register(t, l, other, n, 3) // two shards and more than a batch
		n += 3
		eventually(t, "the server has noticed the death", func() bool {
			n, err := pgtest.Ask[int](
				l.URL,
				"SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'integrity consumer' AND datname = "+
					"current_database()",
			)
			return err == nil && n == 0
		})
		c := osexec.Command(os.Args[0], "-test.run=^$")
		c.Env = append(os.Environ(), childURL+"="+l.URL, childKey+"="+string(key), childStep+"="+strconv.Itoa(step))
		out, err := c.CombinedOutput()
		var exit *osexec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) { //nolint:forcetypeassert // it is so on Linux
			t.Fatalf("step %d: %v\n%s", step, err, out)
		}
		status, statusErr := ReadStatus(context.Background(), l.Pool)
		check(t, statusErr)
		if status.Leaves > status.Published {
			unsigned++
		}
		if status.Published > 0 {
			later, laterRoot := published(t, l, signer)
			if size > 0 {
				consistent(t, l, size, root, later, laterRoot)
			}
			size, root = later, laterRoot
		}
		if _, err := Check(context.Background(), l.Pool, nil); err != nil {
			t.Fatalf("after step %d: %v", step, err)
		}
		if err == nil {
			break
		}
		killed++
	}
	if killed < 25 || unsigned == 0 {
		t.Errorf("killed at %d steps only, %d times between the two commits", killed, unsigned)
	}
	complete(t, l, signer)
}
