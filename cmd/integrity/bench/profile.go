package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"time"

	"golang.org/x/sync/errgroup"
)

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
		profile, err := fetch(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", c.service.metrics, max(1, int(duration/time.Second))))
		if err == nil {
			_, err = file.Write(profile)
		}
		return err
	})
	round, err = c.round(ctx, duration)
	return round, errors.Join(err, group.Wait())
}
