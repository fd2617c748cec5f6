package analyzer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
)

// Command is the hidden subcommand of cmd/integrity that is the child; it calls Child.
const Command = "analysis-child"

// thisProgram is what runs, also when its file was replaced meanwhile.
const thisProgram = "/proc/self/exe"

// Config sets the limits of an Analyzer; a zero member means its default.
type Config struct {
	Program string        // what is started, with the one argument Command; default: this program
	Workers int           // analyses at once; default and most: one a core
	Queue   int           // analyses that wait for a worker; one organization may hold half of them; default 64
	Memory  int64         // bytes of memory of a child; default 512 MiB
	CPU     time.Duration // CPU time of a child, rounded up to seconds; default 20 s
	Wall    time.Duration // time from a child's start to its end; default 30 s
}

// Analyzer runs analyses, each in a process of its own. It is safe for concurrent use.
type Analyzer struct {
	cfg   Config
	queue *queue

	closing context.Context //nolint:containedctx // the life of all children, ended by Close
	end     context.CancelFunc
	mu      sync.Mutex // orders running.Add before Close's wait
	running sync.WaitGroup
}

// New makes an Analyzer. It starts nothing.
func New(cfg Config) (*Analyzer, error) {
	if cfg.Workers < 0 || cfg.Queue < 0 || cfg.Memory < 0 || cfg.CPU < 0 || cfg.Wall < 0 {
		return nil, errors.New("analyzer: a limit is negative")
	}
	cores := runtime.NumCPU()
	cfg.Program, cfg.Workers, cfg.Queue = cmp.Or(cfg.Program, thisProgram), min(cmp.Or(cfg.Workers, cores), cores), cmp.Or(cfg.Queue, 64)
	cfg.Memory, cfg.CPU, cfg.Wall = cmp.Or(cfg.Memory, 512<<20), cmp.Or(cfg.CPU, 20*time.Second), cmp.Or(cfg.Wall, 30*time.Second)
	a := &Analyzer{cfg: cfg, queue: newQueue(cfg.Workers, cfg.Queue)}
	a.closing, a.end = context.WithCancel(context.Background())
	return a, nil
}

// Analyze analyses the first size bytes of the open file of an organization, which it neither closes nor moves.
// declaredType and fileName are as in analysis.Input. Organizations take turns.
//
// A child that crashes, is too slow or too big gives a Report whose results are all inconclusive, not an error. The error
// is ctx.Err(), after the child was killed; a domain.Error TEMPORARILY_UNAVAILABLE where the organization has its share of the queue or the
// Analyzer is closed; or that of a machine that cannot start processes.
func (a *Analyzer) Analyze(ctx context.Context, o domain.OrganizationID, file *os.File, size int64, declaredType, fileName string) (analysis.Report, error) {
	a.mu.Lock()
	if a.closing.Err() != nil {
		a.mu.Unlock()
		return analysis.Report{}, domain.Unavailable("The service is shutting down. Send the request again.")
	}
	place, err := a.queue.enter(o)
	if err != nil {
		a.mu.Unlock()
		return analysis.Report{}, err
	}
	a.running.Add(1)
	a.mu.Unlock()
	defer a.running.Done()
	defer a.queue.leave(place)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.closing, cancel)()
	select {
	case <-place.turn:
	case <-ctx.Done():
		return analysis.Report{}, a.stopped(ctx)
	}
	report, err := a.run(ctx, file, request{Size: size, DeclaredType: declaredType, FileName: fileName, Memory: a.cfg.Memory})
	if ctx.Err() != nil {
		return analysis.Report{}, a.stopped(ctx)
	}
	if err != nil {
		return analysis.Report{}, fmt.Errorf("analyzer: %w", err)
	}
	return report, nil
}

// stopped is the error of an analysis that the caller or Close has ended.
func (a *Analyzer) stopped(ctx context.Context) error {
	if a.closing.Err() != nil {
		return domain.Unavailable("The service is shutting down. Send the request again.")
	}
	return ctx.Err()
}

// Close refuses further analyses, kills the children and waits until they are gone.
func (a *Analyzer) Close() {
	a.mu.Lock()
	a.end()
	a.mu.Unlock()
	a.running.Wait()
}

// failed is the report of a child that gave none.
func failed(reason analysis.Reason) analysis.Report {
	results := analysis.Undecided(reason)
	return analysis.Report{Results: results, Elapsed: make([]time.Duration, len(results)), Failure: reason}
}
