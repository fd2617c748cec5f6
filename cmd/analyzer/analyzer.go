// Package analyzer runs the detectors (package detect) on a file in a child process: the same program, started again
// with a hidden subcommand. The parsers process hostile bytes with much third-party code. Whatever they do, the service
// loses only that child.
//
// Several mechanisms confine the child:
//
//   - The file is passed as an open descriptor, reopened read-only: the child gets no path and cannot write.
//   - The parent sets the child's resource limits with prlimit(2) before it passes the request, so they apply before
//     the first byte of the file is read: RLIMIT_DATA (writable memory), RLIMIT_STACK, RLIMIT_CPU, RLIMIT_FSIZE 0 (no
//     file grows), RLIMIT_CORE 0 (no dump contains the file), RLIMIT_NOFILE, RLIMIT_MEMLOCK 0. The Go runtime has a
//     soft memory limit below RLIMIT_DATA. RLIMIT_AS bounds only the page tables, because Go reserves address space
//     that it never touches.
//   - The child installs a seccomp filter before it touches the file, and checks that the filter works. The filter
//     allows only the system calls, with the arguments, that a computing Go program needs (confine.go). It allows no
//     socket, open or exec, no new process or thread (the runtime starts its threads earlier), and no signal to other
//     processes, by a call or through a shared descriptor. It allows only private memory, which RLIMIT_DATA counts.
//     The filter needs no privileges and works for root and other users, and in containers. If the kernel refuses the
//     filter, nothing is analysed, and every detector is inconclusive for that reason.
//   - The parent kills the child's process group at the wall-clock limit, when the caller goes away, and on Close. The
//     kernel kills the child when the parent dies.
//   - The environment is empty except for settings of the Go runtime. Standard error is read only to find out why the
//     child ended.
//   - The answer is bounded, parsed strictly, and checked against the list of detectors before it is used.
//
// Organizations take turns at the children, and each has a limited share of the queue.
//
// In programs built with the race detector RLIMIT_DATA and RLIMIT_AS are not set, because its shadow memory exceeds any
// limit.
//
// It works on Linux only. On architectures other than amd64 and arm64 there is no filter, and nothing is analysed.
package analyzer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
)

// Command is the hidden subcommand of cmd/integrity that runs as the child; it calls Child.
const Command = "analysis-child"

// thisProgram is the running program, even if its file has been replaced since.
const thisProgram = "/proc/self/exe"

// Config sets the limits of an Analyzer. A zero field means the default.
type Config struct {
	Program string        // program to start with Command as its only argument; default: this program
	Workers int           // concurrent analyses; default and maximum: GOMAXPROCS
	Queue   int           // analyses waiting for a worker; one organization may have half of them; default 64
	Memory  int64         // bytes of memory per child; default 512 MiB
	CPU     time.Duration // CPU time per child, rounded up to seconds; default 20 s
	Wall    time.Duration // time from the start of a child to its end; default 30 s
}

// Analyzer runs each analysis in a separate process. It is safe for concurrent use.
type Analyzer struct {
	cfg   Config
	queue *queue

	closing context.Context //nolint:containedctx // the lifetime of all children, ended by Close
	end     context.CancelFunc
	mu      sync.Mutex // orders running.Add before the wait in Close
	running sync.WaitGroup
}

// New creates an Analyzer. It does not start any process.
func New(cfg Config) (*Analyzer, error) {
	if cfg.Workers < 0 || cfg.Queue < 0 || cfg.Memory < 0 || cfg.CPU < 0 || cfg.Wall < 0 {
		return nil, errors.New("analyzer: a limit is negative")
	}
	cores := runtime.GOMAXPROCS(0) // a container may have fewer processors than its machine
	cfg.Program, cfg.Workers, cfg.Queue = cmp.Or(cfg.Program, thisProgram), min(
		cmp.Or(cfg.Workers, cores), cores,
	), cmp.Or(cfg.Queue, 64)
	cfg.Memory, cfg.CPU, cfg.Wall = cmp.Or(cfg.Memory, 512<<20), cmp.Or(cfg.CPU, 20*time.Second), cmp.Or(
		cfg.Wall, 30*time.Second,
	)
	a := &Analyzer{cfg: cfg, queue: newQueue(cfg.Workers, cfg.Queue)}
	a.closing, a.end = context.WithCancel(context.Background())
	return a, nil
}

// Analyze analyses the first size bytes of an organization's open file, without closing the file or moving its offset.
// declaredType and fileName are as in detect.Input. Organizations take turns.
//
// If a child crashes or exceeds its time or memory, all results in the Report are inconclusive; that is not an error.
// Analyze returns ctx.Err() after killing the child, a domain.Error TEMPORARILY_UNAVAILABLE if the organization's share
// of the queue is full or the Analyzer is closed, or the error of a machine that cannot start processes.
func (a *Analyzer) Analyze(
	ctx context.Context, o domain.OrganizationID, file *os.File, size int64, declaredType, fileName string,
) (analysis.Report, error) {
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
	report, err := a.run(
		ctx, file, request{Size: size, DeclaredType: declaredType, FileName: fileName, Memory: a.cfg.Memory},
	)
	if ctx.Err() != nil {
		return analysis.Report{}, a.stopped(ctx)
	}
	if err != nil {
		return analysis.Report{}, fmt.Errorf("analyzer: %w", err)
	}
	return report, nil
}

// stopped returns the error of an analysis that the caller or Close has ended.
func (a *Analyzer) stopped(ctx context.Context) error {
	if a.closing.Err() != nil {
		return domain.Unavailable("The service is shutting down. Send the request again.")
	}
	return ctx.Err()
}

// Close rejects further analyses, kills the children and waits for them.
func (a *Analyzer) Close() {
	a.mu.Lock()
	a.end()
	a.mu.Unlock()
	a.running.Wait()
}

// queue assigns the workers to organizations in turn. Next is the organization with the fewest analyses in progress
// and, among equals, the one served longest ago. An organization's own analyses run in order of arrival.
type queue struct {
	mu       sync.Mutex
	free     int // idle workers
	capacity int // maximum number of waiting analyses
	waiting  int
	served   uint64
	lines    map[domain.OrganizationID]*line // waiting or running
}

// line is an organization's part of the queue.
type line struct {
	waiting []*place
	running int
	served  uint64 // when the organization was last served
}

// place is one analysis in the queue.
type place struct {
	organization domain.OrganizationID
	turn         chan struct{} // closed when the analysis may run
}

func newQueue(workers, capacity int) *queue {
	return &queue{free: workers, capacity: capacity, lines: map[domain.OrganizationID]*line{}}
}

// enter adds an analysis. An organization may have as many waiting as it leaves places free, so there is always room
// for another organization, however many analyses the others have.
func (q *queue) enter(o domain.OrganizationID) (*place, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[o]
	if l == nil {
		l = &line{}
	}
	if q.free == 0 && len(l.waiting)+1 > q.capacity-q.waiting {
		refused := domain.Unavailable(
			"As many files of your organization as possible are waiting for their analysis; send the request again later.",
		)
		refused.RetryAfter = 5 * time.Second
		return nil, refused
	}
	p := &place{o, make(chan struct{})}
	l.waiting = append(l.waiting, p)
	q.lines[o] = l
	q.waiting++
	q.next()
	return p, nil
}

// leave removes a waiting or running analysis.
func (q *queue) leave(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[p.organization]
	select {
	case <-p.turn:
		l.running--
		q.free++
	default:
		l.waiting = slices.DeleteFunc(l.waiting, func(w *place) bool { return w == p })
		q.waiting--
	}
	if l.running == 0 && len(l.waiting) == 0 {
		delete(q.lines, p.organization)
	}
	q.next()
}

// next starts analyses while workers are idle.
func (q *queue) next() {
	for q.free > 0 && q.waiting > 0 {
		var best *line
		for _, l := range q.lines {
			if len(l.waiting) > 0 && (best == nil || l.running < best.running ||
				l.running == best.running && l.served < best.served) {
				best = l
			}
		}
		q.served++
		best.served = q.served
		best.running++
		close(best.waiting[0].turn)
		best.waiting = best.waiting[1:]
		q.waiting--
		q.free--
	}
}
