package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"
)

// profiled measures a round and writes a CPU profile of it: of the service where
// it does the work (from its metrics listener), else of this process.
func (r *run) profiled(ctx context.Context, c *contender, duration time.Duration) (round Round, err error) {
	if err := os.MkdirAll(r.Profile, 0o755); err != nil { //nolint:gosec // profiles are no secret
		return round, err
	}
	path := filepath.Join(r.Profile, strings.Map(func(l rune) rune {
		if l >= 'a' && l <= 'z' || l >= 'A' && l <= 'Z' || l >= '0' && l <= '9' {
			return l
		}
		return '-'
	}, c.name)+".pprof")
	switch {
	case c.served != nil && c.served.metrics != "":
		fetched := make(chan error, 1)
		go func() { fetched <- c.served.profile(ctx, path, duration) }()
		round, err = c.round(ctx, duration)
		if fetchErr := <-fetched; err == nil {
			err = fetchErr
		}
		return round, err
	case c.ledger:
		file, err := os.Create(path)
		if err != nil {
			return round, err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return round, fmt.Errorf("profile: %w", err)
		}
		round, err = c.round(ctx, duration)
		pprof.StopCPUProfile()
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		return round, err
	default:
		return c.round(ctx, duration)
	}
}

// profile fetches the CPU profile of so many seconds from now.
func (c *child) profile(ctx context.Context, path string, duration time.Duration) error {
	seconds := max(1, int(duration/time.Second))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", c.metrics, seconds), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer resp.Body.Close()
	body, err := readAll(resp.Body, nil)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("profile: the service answered %d: %.300s", resp.StatusCode, body)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o644) //nolint:gosec // profiles are no secret
}
