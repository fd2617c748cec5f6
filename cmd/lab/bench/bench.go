package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/postgres"
	"integrityledger/eventstore/transparency"
)

// Config configures a run.
type Config struct {
	Server  *postgres.Server // with durable settings; the run fills its database. Nil: use URL
	URL     string           // of an empty database, if Server is nil; the run leaves its data there
	Shards  int              // shards of the ledger
	Dir     string           // for the run's key files and logs
	Program string           // path of this program, which also serves the empty answers
	// Integrity is the path of the program to measure.
	Integrity string

	Duration time.Duration // of one contender's round
	Rounds   int
	// Only measures only the contenders whose names it matches; nil: all, and everything else.
	Only *regexp.Regexp
	// Peers is the directory of the programs that measure immudb and Tessera; empty: do not measure them.
	Peers  string
	Quick  bool  // prepare less, and skip the checkpoint cycle
	Growth int64 // number of records at which to compare the cost with 50,000 records; 0: skip. Not with Quick
	// Soak, if set, replaces all other measurements.
	Soak        time.Duration
	Concurrency int // for Soak
	// Rebuild, if set, measures only a rebuild of this number of records under load.
	Rebuild int64
	// Flood measures only a quiet tenant beside a flooding one.
	Flood bool
	// Outbox measures only an origin system's outbox in SQLite, in Server, and at the addresses Origins.
	Outbox  bool
	Origins []string
	// Import, if set, measures only an import of this number of declarations beside a quiet tenant.
	Import int64
	// Agent lets OpenSSH's agent keep the service's signing key.
	Agent bool
	// Profile is a directory for the first round's CPU profiles; empty: no profiles.
	Profile  string
	Progress func(line string)
}

// Result is the result of a run.
type Result struct {
	Environment Environment `json:"environment"`
	Figures     []*Figure   `json:"contenders,omitempty"`
	Targets     []Target    `json:"targets"`
	HOT         []HOT       `json:"updates,omitempty"`
	Growth      *Growth     `json:"growth,omitempty"`
	Soak        *Soak       `json:"soak,omitempty"`
	Rebuild     *Rebuild    `json:"rebuild,omitempty"`
	Flood       *Flood      `json:"flood,omitempty"`
	Verified    int64       `json:"verifiedRegistrations"`
}

// Figure is a contender's result: the median of its rounds, separately for each column.
type Figure struct {
	Name          string `json:"name"`
	Concurrency   int    `json:"concurrency"`
	Organizations int    `json:"organizations,omitempty"`
	Unit          string `json:"unit"`
	Round
	Rounds      []Round `json:"rounds,omitempty"`
	Note        string  `json:"note,omitempty"`
	NotMeasured string  `json:"notMeasured,omitempty"` // why there is no figure
}

type run struct {
	Config
	begin  int64 // records created before measuring
	lab    *lab
	signer *evidence.Signer
	// secretKey encrypts webhook secrets; secretText is the same key for the service.
	secretKey  domain.SecretKey
	secretText string
	service    *child
	children   []*child
	figures    map[string]*Figure
	measured   map[string]measurement // by the target's name
	grown      *Growth
	// The number of evidence answers, and of those with an inclusion proof. Evidence never waits for the proof.
	exports, proofs atomic.Int64
	closers         []func() error
}

// Run measures and verifies. It fails if the written data differs from the acknowledged registrations.
func Run(ctx context.Context, c Config) (result Result, err error) {
	// The kernel ends the children with the thread that starts them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &run{Config: c, begin: 50_000, figures: map[string]*Figure{}, measured: map[string]measurement{}}
	if r.Quick {
		r.begin = 20_000 // enough for full pages of the feed
	}
	if r.Rebuild > 0 {
		r.begin = r.Rebuild
	}
	defer func() {
		for _, closer := range slices.Backward(r.closers) {
			err = errors.Join(err, closer())
		}
	}()
	if err := r.prepare(ctx); err != nil {
		return result, fmt.Errorf("prepare the benchmark: %w", err)
	}
	if result.Environment, err = environment(ctx, r.lab.read); err != nil {
		return result, err
	}
	result.Environment.External = r.Server == nil
	measure := r.compare
	switch {
	case r.Soak > 0:
		measure = r.soak
	case r.Rebuild > 0:
		measure = r.rebuildUnderLoad
	case r.Flood:
		measure = r.flood
	case r.Outbox:
		measure = r.outbox
	case r.Import > 0:
		measure = r.imports
	}
	if err := measure(ctx, &result); err != nil {
		return result, err
	}
	if result.HOT, err = r.updates(ctx); err != nil {
		return result, err
	}
	if result.Verified, err = r.verify(ctx); err != nil {
		return result, fmt.Errorf("what was written is wrong: %w", err)
	}
	result.Targets, result.Growth = r.targets(), r.grown
	return result, nil
}

// prepare creates a ledger with records, and starts the service on it.
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
	r.closers = append(r.closers, func() error { r.lab.close(ctx); return nil })
	err = r.writeFiles()
	if err == nil && r.Agent {
		err = r.keepInAgent(ctx, r.file(keyfiles.SigningKeyFile))
	}
	if err != nil {
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

const plansFile = "plans.json"

// writeFiles writes the service's configuration files.
func (r *run) writeFiles() error {
	private := evidence.GenerateSigner()
	log, err := transparency.NewSigner(evidence.LogName(issuer), private)
	if err != nil {
		return err
	}
	signing := evidence.TrustedKey{
		PublicKey: r.signer.Key(), Status: evidence.KeyActive, Since: evidence.FormatTime(time.Now()),
	}
	trusted, err := evidence.NewTrustedKeys([]evidence.TrustedKey{signing}, nil, []evidence.LogKey{log.LogKey})
	if err != nil {
		return err
	}
	keys, err := trusted.Marshal()
	if err != nil {
		return err
	}
	plans, err := json.Marshal(r.lab.plans)
	if err != nil {
		return err
	}
	return errors.Join(
		keyfiles.WriteSigningKey(r.file(keyfiles.SigningKeyFile), r.signer),
		keyfiles.WriteSigningKey(r.file(keyfiles.LogKeyFile), private),
		os.WriteFile(r.file(keyfiles.TrustedKeysFile), keys, 0o600), os.WriteFile(r.file(plansFile), plans, 0o600))
}

func (r *run) file(name string) string { return filepath.Join(r.Dir, name) }

// environ returns the program's environment for the lab's database.
func (r *run) environ() []string {
	return []string{
		"INTEGRITY_DATABASE_URL=" + r.lab.url,
		"INTEGRITY_SIGNING_KEY_FILE=" + r.file(keyfiles.SigningKeyFile),
		"INTEGRITY_TRANSPARENCY_KEY_FILE=" + r.file(keyfiles.LogKeyFile),
		"INTEGRITY_TRUSTED_KEYS=" + r.file(keyfiles.TrustedKeysFile),
		"INTEGRITY_PLANS=" + r.file(plansFile),
		fmt.Sprintf("INTEGRITY_PUBLIC_PER_MINUTE=%d", unlimited),
		fmt.Sprintf("INTEGRITY_PUBLIC_PAGES_PER_MINUTE=%d", unlimited),
		"INTEGRITY_SECRET_KEY=" + r.secretText,
		"INTEGRITY_WEBHOOK_ALLOW_INSECURE=true", // the receiver is on this machine
	}
}

// serve starts the service on the lab's database.
func (r *run) serve(ctx context.Context, name string) (*child, error) {
	metrics, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	if r.Profile == "" && name != floodService {
		metrics = "off"
	}
	c, err := r.start(ctx, name, r.Integrity, append(r.environ(), "INTEGRITY_METRICS_LISTEN="+metrics), "serve")
	if err == nil {
		c.metrics = "http://" + metrics
	}
	return c, err
}

// compare runs all contenders in turn, then the single measurements and the floods.
func (r *run) compare(ctx context.Context, result *Result) error {
	if err := r.idle(ctx); err != nil {
		return err
	}
	list, err := r.contenders(ctx)
	if err != nil {
		return err
	}
	for _, c := range list {
		f := &Figure{Name: c.name, Organizations: len(c.owners), Unit: c.unit, NotMeasured: c.missing}
		result.Figures, r.figures[c.name] = append(result.Figures, f), f
		if r.Only != nil && !r.Only.MatchString(c.name) {
			c.missing, f.NotMeasured = notChosen, notChosen
		}
		if c.missing == "" {
			r.Progress("warming up: " + c.name)
			if err := r.warm(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		f.Concurrency = c.workers
	}
	for i := range r.Rounds {
		for k, c := range list {
			if c.missing != "" {
				continue
			}
			f := result.Figures[k]
			if c.before != nil {
				note, err := c.before(ctx)
				if err != nil {
					return fmt.Errorf("before %s: %w", c.name, err)
				}
				if note != "" {
					f.Note = fmt.Sprintf("round %d: %s", i+1, note)
				}
			}
			round, err := r.measureOne(ctx, c, r.Duration, i == 0)
			if err != nil {
				return fmt.Errorf("%s, c = %d: %w", c.name, c.workers, err)
			}
			f.Rounds = append(f.Rounds, round)
			r.Progress(fmt.Sprintf("round %d of %d: %s, c = %d: %.0f %s/s, p50 %s, p99 %s", i+1, r.Rounds, c.name, c.workers,
				round.PerSecond,
				c.unit, shortDuration(round.P50), shortDuration(round.P99)))
		}
	}
	if err := r.people(ctx, result); err != nil {
		return fmt.Errorf("%d people at the console: %w", people, err)
	}
	for _, f := range result.Figures {
		f.finish()
	}
	if r.Only != nil {
		result.Figures = slices.DeleteFunc(result.Figures, func(f *Figure) bool { return f.NotMeasured == notChosen })
		return nil
	}
	for _, once := range []func(context.Context) error{
		r.grow, r.disk, r.webhooks, r.checkpointCycle, r.memory, r.rebuild, r.export, r.growth,
	} {
		if err := once(ctx); err != nil {
			return err
		}
	}
	return r.flood(ctx, result)
}

const notChosen = "not chosen"

// warm runs a contender once without recording it, and finds its best concurrency.
func (r *run) warm(ctx context.Context, c *contender) error {
	if c.tries == nil {
		c.tries = []int{c.workers}
	}
	best, fastest := 0, -1.0
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

func (r *run) measureOne(
	ctx context.Context, c *contender, duration time.Duration, first bool,
) (round Round, err error) {
	for _, ch := range r.children {
		if err := os.Truncate(ch.log, 0); err != nil { // in a long run it would fill the disk
			return Round{}, err
		}
	}
	before, err := r.cpu(c)
	if err != nil {
		return Round{}, err
	}
	wrote, err := r.readWAL(ctx)
	if err != nil {
		return Round{}, err
	}
	if first && r.Profile != "" {
		round, err = r.profiled(ctx, c, duration)
	} else {
		round, err = c.round(ctx, duration)
	}
	if err != nil {
		return round, err
	}
	after, err := r.cpu(c)
	if err != nil {
		return round, err
	}
	round.CPU = after.per(round.Done, before)
	now, err := r.readWAL(ctx)
	if !c.foreign {
		round.WAL = int((now.bytes - wrote.bytes) / max(1, round.Done))
	}
	return round, err
}

// finish computes the medians.
func (f *Figure) finish() {
	if len(f.Rounds) == 0 {
		return
	}
	f.PerSecond = median(f.Rounds, func(r Round) float64 { return r.PerSecond })
	f.P50 = median(f.Rounds, func(r Round) time.Duration { return r.P50 })
	f.P99 = median(f.Rounds, func(r Round) time.Duration { return r.P99 })
	f.WAL = median(f.Rounds, func(r Round) int { return r.WAL })
	f.CPU.Service = median(f.Rounds, func(r Round) time.Duration { return r.CPU.Service })
	f.CPU.PostgreSQL = median(f.Rounds, func(r Round) time.Duration { return r.CPU.PostgreSQL })
	f.CPU.Load = median(f.Rounds, func(r Round) time.Duration { return r.CPU.Load })
	for _, r := range f.Rounds {
		f.Done += r.Done
		f.Longest = max(f.Longest, r.Longest)
	}
}
