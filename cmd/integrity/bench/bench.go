package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"integrityledger/cmd/postgres"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

// Config says what a run does.
type Config struct {
	Server  *postgres.Server // with durable settings; the run fills its database. Nil: that of URL
	URL     string           // of an empty database, where Server is nil; what was written stays there
	Shards  int              // of the ledger
	Dir     string           // for key files and logs of the run
	Program string           // the path of this program, for its children

	Duration time.Duration // of one round of one contender
	Rounds   int
	Quick    bool  // prepares less, and leaves the checkpoint cycle out
	Growth   int64 // records at which the cost is compared with that at 50,000; 0: not. Not with Quick
	// Soak, where it is set, is measured instead of everything else.
	Soak        time.Duration
	Concurrency int // of Soak
	// Rebuild, where it is set, is a rebuild of so many records under load, instead of everything else.
	Rebuild int64
	// Flood: only a quiet tenant beside one that floods.
	Flood bool
	// Profile is a directory for CPU profiles of the first round; empty: none.
	Profile  string
	Progress func(line string)
}

// Result is what a run has found.
type Result struct {
	Environment Environment `json:"environment"`
	Figures     []*Figure   `json:"contenders,omitempty"`
	Targets     []Target    `json:"targets"`
	Soak        *Soak       `json:"soak,omitempty"`
	Mending     *Mending    `json:"rebuild,omitempty"`
	Flood       *Flood      `json:"flood,omitempty"`
	Verified    int64       `json:"verifiedRegistrations"`
}

// Figure is what a contender has reached: the median of its rounds, each column by itself.
type Figure struct {
	Name          string `json:"name"`
	Concurrency   int    `json:"concurrency"`
	Organizations int    `json:"organizations,omitempty"`
	Unit          string `json:"unit"`
	Round
	Rounds      []Round `json:"rounds,omitempty"`
	NotMeasured string  `json:"notMeasured,omitempty"` // why there is no figure
}

type run struct {
	Config
	begin  int64 // records before anything is measured
	lab    *lab
	signer *evidence.Signer
	// secretKey is what webhook secrets are sealed with, secretText the same for the service.
	secretKey  domain.SecretKey
	secretText string
	service    *child
	empty      *child
	children   []*child
	figures    map[string]*Figure
	measured   map[string]measurement // by the name of the target
	// Evidence that was answered, and how much of it with a proof of inclusion, which it never waits for.
	exports, proofs atomic.Int64
	closers         []func() error
}

// Run measures and verifies. It fails when what was written is not what was acknowledged.
func Run(ctx context.Context, c Config) (result Result, err error) {
	r := &run{Config: c, begin: 50_000, figures: map[string]*Figure{}, measured: map[string]measurement{}}
	if r.Quick {
		r.begin = 20_000 // enough for whole pages of the feed
	}
	if r.Rebuild > 0 {
		r.begin = r.Rebuild
	}
	defer func() {
		for i := len(r.closers) - 1; i >= 0; i-- {
			err = errors.Join(err, r.closers[i]())
		}
	}()
	if err := r.prepare(ctx); err != nil {
		return result, fmt.Errorf("prepare the benchmark: %w", err)
	}
	if result.Environment, err = environment(ctx, r.lab.read); err != nil {
		return result, err
	}
	result.Environment.External = r.Server == nil
	switch {
	case r.Soak > 0:
		if result.Soak, err = r.soak(ctx); err == nil {
			result.Targets = []Target{result.Soak.target()}
		}
	case r.Rebuild > 0:
		if result.Mending, err = r.mend(ctx); err == nil {
			result.Targets = []Target{result.Mending.target()}
		}
	case r.Flood:
		if result.Flood, err = r.flood(ctx); err == nil {
			result.Targets = r.floodTargets()
		}
	default:
		if result.Figures, err = r.compare(ctx); err != nil {
			break
		}
		if result.Flood, err = r.flood(ctx); err == nil {
			result.Targets = r.targets()
		}
	}
	if err != nil {
		return result, err
	}
	r.Progress("verifying what was written")
	if result.Verified, err = r.lab.verify(ctx); err != nil {
		return result, fmt.Errorf("what was written is wrong: %w", err)
	}
	return result, nil
}

// prepare makes a ledger with records in it, and starts the service on it.
func (r *run) prepare(ctx context.Context) (err error) {
	r.signer = evidence.GenerateSigner()
	r.secretKey, r.secretText = domain.NewSecretKey()
	url := r.URL
	if r.Server != nil {
		url = r.Server.URL(postgres.Database)
	} else if err := requireEmpty(ctx, url); err != nil {
		return err
	}
	if r.lab, err = newLab(ctx, url, r.Shards, r.signer); err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { r.lab.close(); return nil })
	if err := r.writeFiles(); err != nil {
		return err
	}
	r.Progress(fmt.Sprintf("registering %d records to begin with", r.begin))
	if err := r.lab.fill(ctx, r.begin); err != nil {
		return err
	}
	if err := r.lab.vacuum(ctx); err != nil {
		return err
	}
	r.service, err = r.serve(ctx, "serve")
	return err
}

const (
	signingKeyFile  = "signing-key.pem"
	logKeyFile      = "log-key.pem"
	trustedKeysFile = "trusted-keys.json"
	plansFile       = "plans.json"
)

// writeFiles makes the files that configure the service.
func (r *run) writeFiles() error {
	key, err := evidence.MarshalSignerPEM(r.signer)
	if err != nil {
		return err
	}
	private := evidence.GenerateSigner()
	logKey, err := evidence.MarshalSignerPEM(private)
	if err != nil {
		return err
	}
	log, err := transparency.NewSigner(transparency.LogName(issuer), private)
	if err != nil {
		return err
	}
	keys, err := r.lab.trusted.AddLogKey(log.LogKey)
	if err != nil {
		return err
	}
	trusted, err := keys.Marshal()
	if err != nil {
		return err
	}
	table, err := json.Marshal(r.lab.plans)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(r.Dir, signingKeyFile), key, 0o600),
		os.WriteFile(filepath.Join(r.Dir, logKeyFile), logKey, 0o600),
		os.WriteFile(filepath.Join(r.Dir, trustedKeysFile), trusted, 0o600),
		os.WriteFile(filepath.Join(r.Dir, plansFile), table, 0o600),
	)
}

// serve starts the service on the lab's database.
func (r *run) serve(ctx context.Context, name string) (*child, error) {
	environ := []string{
		"INTEGRITY_DATABASE_URL=" + r.lab.url,
		"INTEGRITY_SIGNING_KEY_FILE=" + filepath.Join(r.Dir, signingKeyFile),
		"INTEGRITY_TRANSPARENCY_KEY_FILE=" + filepath.Join(r.Dir, logKeyFile),
		"INTEGRITY_TRUSTED_KEYS=" + filepath.Join(r.Dir, trustedKeysFile),
		"INTEGRITY_PLANS=" + filepath.Join(r.Dir, plansFile),
		fmt.Sprintf("INTEGRITY_PUBLIC_PER_MINUTE=%d", unlimited),
		"INTEGRITY_SECRET_KEY=" + r.secretText,
		"INTEGRITY_WEBHOOK_ALLOW_INSECURE=true", // the receiver is on this machine
	}
	var metrics string
	if r.Profile == "" && name != floodService {
		environ = append(environ, "INTEGRITY_METRICS_LISTEN=off")
	} else {
		var err error
		if metrics, err = freeAddress(ctx); err != nil {
			return nil, err
		}
		environ = append(environ, "INTEGRITY_METRICS_LISTEN="+metrics)
	}
	c, err := r.start(ctx, name, environ, "serve")
	if err == nil {
		c.metrics = metrics
	}
	return c, err
}

// start starts a child that is stopped at the end of the run.
func (r *run) start(ctx context.Context, name string, environ []string, args ...string) (*child, error) {
	c, err := startChild(ctx, r.Program, r.Dir, name, environ, args...)
	if err == nil {
		r.children, r.closers = append(r.children, c), append(r.closers, c.stop)
	}
	return c, err
}

// contender is one way of doing work.
type contender struct {
	name          string
	workers       int
	tries         []int // numbers of workers of which the best is measured; nil: workers as it stands
	organizations int
	unit          string
	call          operation
	// measure stands in for call where another program makes the load.
	measure func(ctx context.Context, workers int, duration time.Duration) (Round, error)
	served  *child // that does the work; nil: this process, or none
	ledger  bool   // the work is done in this process
	missing string // why it cannot be measured
}

func (c *contender) round(ctx context.Context, duration time.Duration) (Round, error) {
	if c.measure != nil {
		return c.measure(ctx, c.workers, duration)
	}
	return load(ctx, c.workers, duration, c.call)
}

// contenders are all that take turns.
func (r *run) contenders(ctx context.Context) ([]*contender, error) {
	var list []*contender
	for _, prepare := range []func(context.Context) (*contender, error){
		r.emptyPOST, r.emptyGET,
		r.singleOne, r.singleMany, r.ceiling, r.groupsOne, r.groupsMany,
		r.httpAlone, r.httpLight, r.httpBusy, r.batch,
		r.comparison, r.evidence, r.feedHTTP, r.feedSQL,
	} {
		c, err := prepare(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// compare runs all contenders in turn, and what is measured once.
func (r *run) compare(ctx context.Context) ([]*Figure, error) {
	list, err := r.contenders(ctx)
	if err != nil {
		return nil, err
	}
	var figures []*Figure
	for _, c := range list {
		f := &Figure{Name: c.name, Organizations: c.organizations, Unit: c.unit, NotMeasured: c.missing}
		figures, r.figures[c.name] = append(figures, f), f
		if c.missing != "" {
			continue
		}
		r.Progress("warming up: " + c.name)
		if err := r.warm(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		f.Concurrency = c.workers
	}
	for i := range r.Rounds {
		for k, c := range list {
			if c.missing != "" {
				continue
			}
			round, err := r.measureOne(ctx, c, r.Duration, i == 0)
			if err != nil {
				return nil, fmt.Errorf("%s, c = %d: %w", c.name, c.workers, err)
			}
			figures[k].Rounds = append(figures[k].Rounds, round)
			r.Progress(fmt.Sprintf("round %d of %d: %s, c = %d: %.0f %s/s, p50 %s, p99 %s", i+1, r.Rounds, c.name, c.workers, round.PerSecond,
				c.unit, shortDuration(round.P50), shortDuration(round.P99)))
		}
	}
	for _, f := range figures {
		f.finish()
	}
	for _, once := range []func(context.Context) error{r.webhooks, r.grow, r.disk, r.checkpointCycle, r.memory, r.rebuild, r.growth} {
		if err := once(ctx); err != nil {
			return nil, err
		}
	}
	return figures, nil
}

// warm runs a contender once without counting, and finds its best concurrency.
func (r *run) warm(ctx context.Context, c *contender) error {
	if c.tries == nil {
		_, err := r.measureOne(ctx, c, r.Duration/4, false)
		return err
	}
	best, fastest := 0, 0.0
	for _, c.workers = range c.tries {
		round, err := r.measureOne(ctx, c, r.Duration/4, false)
		if err != nil {
			return fmt.Errorf("c = %d: %w", c.workers, err)
		}
		if round.PerSecond > fastest {
			best, fastest = c.workers, round.PerSecond
		}
	}
	c.workers = best
	return nil
}

func (r *run) measureOne(ctx context.Context, c *contender, duration time.Duration, first bool) (Round, error) {
	for _, ch := range r.children {
		if err := ch.forget(); err != nil {
			return Round{}, err
		}
	}
	before, err := r.cpu(c)
	if err != nil {
		return Round{}, err
	}
	var round Round
	if first && r.Profile != "" {
		round, err = r.profiled(ctx, c, duration)
	} else {
		round, err = c.round(ctx, duration)
	}
	if err != nil {
		return round, err
	}
	after, err := r.cpu(c)
	round.CPU = after.less(before).per(round.Done)
	return round, err
}

// cpu is what was spent so far by those who take part in a contender's work.
func (r *run) cpu(c *contender) (spent CPU, err error) {
	if r.Server != nil {
		if spent.PostgreSQL, err = treeCPU(r.Server.PID()); err != nil {
			return spent, err
		}
	}
	own := &spent.Load
	if c.ledger {
		own = &spent.Service
	}
	who := syscall.RUSAGE_SELF
	if c.measure != nil {
		who = syscall.RUSAGE_CHILDREN
	}
	if *own, err = ownCPU(who); err != nil || c.served == nil {
		return spent, err
	}
	s, err := readStat(c.served.pid())
	spent.Service = s.own
	return spent, err
}

// settle takes the medians.
func (f *Figure) finish() {
	if len(f.Rounds) == 0 {
		return
	}
	f.PerSecond = median(column(f.Rounds, func(r Round) float64 { return r.PerSecond }))
	f.P50 = median(column(f.Rounds, func(r Round) time.Duration { return r.P50 }))
	f.P99 = median(column(f.Rounds, func(r Round) time.Duration { return r.P99 }))
	f.CPU = CPU{
		Service:    median(column(f.Rounds, func(r Round) time.Duration { return r.CPU.Service })),
		PostgreSQL: median(column(f.Rounds, func(r Round) time.Duration { return r.CPU.PostgreSQL })),
		Load:       median(column(f.Rounds, func(r Round) time.Duration { return r.CPU.Load })),
	}
	for _, r := range f.Rounds {
		f.Done += r.Done
	}
}

func column[T any](rounds []Round, of func(Round) T) []T {
	list := make([]T, len(rounds))
	for i, r := range rounds {
		list[i] = of(r)
	}
	return list
}

func shortDuration(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
}
