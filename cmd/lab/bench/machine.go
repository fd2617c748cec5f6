package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"

	"integrityledger/eventstore/cluster"
	"integrityledger/handlers/edge"
)

// CPU is processor time, user and system, by who spent it. Load is the load
// generator; in process it is the service too, and stands there.
type CPU struct {
	Service    time.Duration `json:"serviceNanoseconds"`
	PostgreSQL time.Duration `json:"postgresqlNanoseconds"`
	Load       time.Duration `json:"loadNanoseconds"`
}

// per is what each of so many units has cost since before.
func (c CPU) per(units int64, before CPU) CPU {
	n := time.Duration(max(1, units))
	return CPU{(c.Service - before.Service) / n, (c.PostgreSQL - before.PostgreSQL) / n, (c.Load - before.Load) / n}
}

func (c CPU) total() time.Duration { return c.Service + c.PostgreSQL + c.Load }

// spentBy is what a process has spent, and what its children that it waited for have.
func spentBy(pid int) (own, waited time.Duration, parent int, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, 0, err
	}
	// The unit of /proc/<pid>/stat is a hundredth of a second on every platform that Go runs on.
	const tick = 10 * time.Millisecond
	s, err := p.Stat()
	return time.Duration(s.UTime+s.STime) * tick, time.Duration(s.CUTime+s.CSTime) * tick, s.PPID, err
}

// treeCPU is what a process and its children have spent, those that have ended included. PostgreSQL's backends are all
// children of the postmaster. One that ends meanwhile moves from its own entry to its parent's: that is read again
// then.
func treeCPU(root int) (total time.Duration, err error) {
	own, waited, _, err := spentBy(root)
	for err == nil {
		all, err := procfs.AllProcs()
		if err != nil {
			return 0, err
		}
		total = own + waited
		for _, p := range all {
			own, waited, parent, err := spentBy(p.PID)
			switch {
			case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH): // it has ended meanwhile
			case err != nil:
				return 0, err
			case parent == root:
				total += own + waited
			}
		}
		before := waited
		if own, waited, _, err = spentBy(root); err != nil || waited == before {
			return total, err
		}
	}
	return 0, err
}

// residentPeak is the most memory that a process has had resident, in bytes (VmHWM).
func residentPeak(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.NewStatus()
	return s.VmHWM, err
}

// cpu is what was spent so far by those who take part in a contender's work.
func (r *run) cpu(c *contender) (spent CPU, err error) {
	if r.Server != nil {
		if spent.PostgreSQL, err = treeCPU(r.Server.PID()); err != nil {
			return spent, err
		}
	}
	own, waited, _, err := spentBy(os.Getpid())
	switch {
	case c.measure != nil:
		spent.Load = waited
	case c.ledger:
		spent.Service = own
	default:
		spent.Load = own
	}
	if err == nil && c.service != nil {
		spent.Service, _, _, err = spentBy(c.service.cmd.Process.Pid)
	}
	return spent, err
}

// Environment is where a run took place.
type Environment struct {
	StartedAt  time.Time         `json:"startedAt"`
	CPU        string            `json:"cpu"`
	CPUs       int               `json:"cpus"`
	Load       string            `json:"loadAverage"` // of the last minute: what the neighbours and preparing did
	Kernel     string            `json:"kernel"`
	Go         string            `json:"go"`
	Commit     string            `json:"commit"`
	PostgreSQL map[string]string `json:"postgresql"` // version and settings
	Nodes      int               `json:"citusNodes,omitempty"`
	External   bool              `json:"external,omitempty"` // the database was given, and may be on other machines
}

// shownSettings are those that decide what a commit costs.
var shownSettings = []string{
	"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_compression", "data_checksums",
	"shared_buffers", "max_wal_size", "checkpoint_timeout",
}

func environment(ctx context.Context, pool *pgxpool.Pool) (Environment, error) {
	build := edge.ReadBuild()
	e := Environment{
		StartedAt: time.Now().UTC(), CPU: "unknown", CPUs: runtime.NumCPU(), Go: runtime.Version(), Commit: build.Commit,
		PostgreSQL: map[string]string{},
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return e, err
	}
	if processors, err := proc.CPUInfo(); err == nil && len(processors) > 0 {
		e.CPU = processors[0].ModelName
	}
	if load, err := proc.LoadAvg(); err == nil {
		e.Load = fmt.Sprintf("%.2f", load.Load1)
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		e.Kernel = strings.TrimSpace(string(text))
	}
	if build.Modified {
		e.Commit += " and changes"
	}
	rows, err := pool.Query(ctx, "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", shownSettings)
	if err != nil {
		return e, err
	}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		e.PostgreSQL[name] = value
		return nil
	}); err != nil {
		return e, err
	}
	return e, pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if !cluster.OnCitus(conn.Conn()) {
			return nil
		}
		return conn.QueryRow(ctx, "SELECT count(*) FROM pg_dist_node WHERE shouldhaveshards").Scan(&e.Nodes)
	})
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]`)

// profiled measures a round and writes a CPU profile of it: of the service where
// it does the work (from its metrics listener), else of this process.
func (r *run) profiled(ctx context.Context, c *contender, duration time.Duration) (round Round, err error) {
	served := c.service != nil && c.service.metrics != ""
	if !served && !c.ledger {
		return c.round(ctx, duration)
	}
	if err := os.MkdirAll(r.Profile, 0o755); err != nil { //nolint:gosec // profiles are no secret
		return round, err
	}
	file, err := os.Create(filepath.Join(r.Profile, notInNames.ReplaceAllString(c.name, "-")+".pprof"))
	if err != nil {
		return round, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !served {
		if err := pprof.StartCPUProfile(file); err != nil {
			return round, fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
		return c.round(ctx, duration)
	}
	var group errgroup.Group
	group.Go(func() error {
		profile, err := fetch(
			ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", c.service.metrics, max(1, int(duration/time.Second))),
		)
		if err == nil {
			_, err = file.Write(profile)
		}
		return err
	})
	round, err = c.round(ctx, duration)
	return round, errors.Join(err, group.Wait())
}
