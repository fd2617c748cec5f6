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

// CPU is user and system processor time, by consumer. Load is the load generator; in process it includes the service's
// work.
type CPU struct {
	Service    time.Duration `json:"serviceNanoseconds"`
	PostgreSQL time.Duration `json:"postgresqlNanoseconds"`
	Load       time.Duration `json:"loadNanoseconds"`
}

// per returns the cost per unit since before.
func (c CPU) per(units int64, before CPU) CPU {
	n := time.Duration(max(1, units))
	return CPU{(c.Service - before.Service) / n, (c.PostgreSQL - before.PostgreSQL) / n, (c.Load - before.Load) / n}
}

func (c CPU) total() time.Duration { return c.Service + c.PostgreSQL + c.Load }

// spentBy returns the processor time of a process, and of its children that it has waited for.
func spentBy(pid int) (own, waited time.Duration, parent int, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, 0, err
	}
	// The unit of /proc/<pid>/stat is a hundredth of a second on every platform that Go supports.
	const tick = 10 * time.Millisecond
	s, err := p.Stat()
	return time.Duration(s.UTime+s.STime) * tick, time.Duration(s.CUTime+s.CSTime) * tick, s.PPID, err
}

// treeCPU returns the processor time of a process and its children, including ended ones. PostgreSQL's backends are all
// children of the postmaster. If a child ends while it is read, its time moves to its parent's entry, which is then
// read again.
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

// residentPeak returns the peak resident memory of a process, in bytes (VmHWM).
func residentPeak(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.NewStatus()
	return s.VmHWM, err
}

// cpu returns the processor time spent so far by the processes that do a contender's work.
func (r *run) cpu(c *contender) (spent CPU, err error) {
	if r.Server != nil && !c.foreign {
		if spent.PostgreSQL, err = treeCPU(r.Server.PID()); err != nil {
			return spent, err
		}
	}
	own, waited, _, err := spentBy(os.Getpid())
	var spentErr error
	switch {
	case c.generator != nil:
		spent.Load, _, _, spentErr = spentBy(c.generator.cmd.Process.Pid)
	case c.measure != nil:
		spent.Load = waited
	case c.ledger:
		spent.Service = own
	default:
		spent.Load = own
	}
	if err = errors.Join(err, spentErr); err == nil && c.service != nil {
		spent.Service, _, _, err = spentBy(c.service.cmd.Process.Pid)
	}
	return spent, err
}

// Environment describes the machine of a run.
type Environment struct {
	StartedAt  time.Time         `json:"startedAt"`
	CPU        string            `json:"cpu"`
	CPUs       int               `json:"cpus"`
	Load       string            `json:"loadAverage"` // of the last minute, caused by the preparation and other processes
	Kernel     string            `json:"kernel"`
	Go         string            `json:"go"`
	Commit     string            `json:"commit"`
	PostgreSQL map[string]string `json:"postgresql"` // version and settings
	Nodes      int               `json:"citusNodes,omitempty"`
	External   bool              `json:"external,omitempty"` // the database was given, and may be on other machines
}

// shownSettings are the settings that determine a commit's cost.
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

// profiled measures a round and writes its CPU profile: the service's (from its metrics listener) if the service does
// the work, else this process's.
func (r *run) profiled(ctx context.Context, c *contender, duration time.Duration) (round Round, err error) {
	served := c.service != nil && c.service.metrics != ""
	if !served && !c.ledger {
		return c.round(ctx, duration)
	}
	if err := os.MkdirAll(r.Profile, 0o755); err != nil { //nolint:gosec // profiles are not secret
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
