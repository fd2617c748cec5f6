package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/cluster"
)

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
	e := Environment{
		StartedAt: time.Now().UTC(), CPU: firstField("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Commit: "unknown", PostgreSQL: map[string]string{},
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		e.Kernel = strings.TrimSpace(string(text))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		e.Load, _, _ = strings.Cut(string(text), " ")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				e.Commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				e.Commit += " and changes"
			}
		}
	}
	for _, name := range shownSettings {
		var value string
		if err := pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return e, fmt.Errorf("setting %s: %w", name, err)
		}
		e.PostgreSQL[name] = value
	}
	if err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if !cluster.OnCitus(conn.Conn()) {
			return nil
		}
		return conn.QueryRow(ctx, "SELECT count(*) FROM pg_dist_node WHERE shouldhaveshards").Scan(&e.Nodes)
	}); err != nil {
		return e, fmt.Errorf("nodes of Citus: %w", err)
	}
	return e, nil
}

// firstField reads a line "name : value"; what cannot be read is unknown.
func firstField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
