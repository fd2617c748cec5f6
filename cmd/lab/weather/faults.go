package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"integrityledger/cmd/lab/weather/history"
)

// plan is a fault drawn from the seed.
type plan struct {
	at    time.Duration // from the start of the faults
	kind  kind
	on    string
	lasts time.Duration
	draw  uint64 // a random number for further parameters
}

// kind is a kind of fault.
type kind struct {
	name    string
	weight  int
	targets func(w *world) []string
	// needs returns the targets that no other fault may use at the same time; nil: only the target.
	needs func(w *world, on string) []string
	// begin makes the fault. It returns the function that heals it, and a detail for the history.
	begin func(w *world, p plan) (heal func(), detail string)
	// through names the service whose first success counts as the recovery; nil: any service.
	through func(on string) string
	// command marks actions of an operator, which are no faults. They are over when they end.
	command bool
	library bool // needs the fault library in PostgreSQL
}

const (
	minPause, maxPause = 500 * time.Millisecond, 4 * time.Second
	// maxLasting is the limit for most faults; every eighth lasts up to longestLasting.
	maxLasting, longestLasting = 6 * time.Second, 18 * time.Second
)

// drawPlans draws the faults of a seed.
func (w *world) drawPlans(rng *rand.Rand, length time.Duration) (plans []plan) {
	kinds := allKinds()
	all := 0
	for _, k := range kinds {
		all += k.weight
	}
	for at := minPause; at < length; at += minPause + time.Duration(rng.Int64N(int64(maxPause-minPause))) {
		n := rng.IntN(all)
		i := slices.IndexFunc(kinds, func(k kind) bool {
			n -= k.weight
			return n < 0
		})
		most := maxLasting
		if rng.IntN(8) == 0 {
			most = longestLasting
		}
		targets := kinds[i].targets(w)
		slices.Sort(targets)
		plans = append(
			plans,
			plan{
				at, kinds[i], targets[rng.IntN(len(targets))], 300*time.Millisecond + time.Duration(rng.Int64N(int64(most))),
				rng.Uint64(),
			},
		)
	}
	return plans
}

// busy are the targets that currently have a fault.
type busy struct {
	mu  sync.Mutex
	has map[string]bool
}

func (b *busy) take(names []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(names, func(name string) bool { return b.has[name] }) {
		return false
	}
	for _, name := range names {
		b.has[name] = true
	}
	return true
}

func (b *busy) free(names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		delete(b.has, name)
	}
}

// storm makes the planned faults at their times, and returns when all are healed.
func (w *world) storm(plans []plan) {
	var all sync.WaitGroup
	b := &busy{has: map[string]bool{}}
	began := time.Now()
	for _, p := range plans {
		time.Sleep(time.Until(began.Add(p.at))) // the fault's time has come
		names := []string{p.on}
		if p.kind.needs != nil {
			names = p.kind.needs(w, p.on)
		}
		if p.kind.library && !w.library {
			w.note("left out: %s of %s: there is no C compiler", p.kind.name, p.on)
			continue
		}
		all.Go(func() {
			// Its target may be under another fault.
			if err := within(20*time.Second, func() error {
				if !b.take(names) {
					return fmt.Errorf("%s is under another fault", p.on)
				}
				return nil
			}); err != nil {
				w.note("left out: %s of %s: %v", p.kind.name, p.on, err)
				return
			}
			defer b.free(names)
			w.make(p)
		})
	}
	all.Wait()
}

// make makes one fault and heals it.
func (w *world) make(p plan) {
	f := history.Fault{Number: w.history.Number(), Name: p.kind.name, Target: p.on, Start: w.history.Now()}
	w.note("%s of %s begins, for %s", p.kind.name, p.on, p.lasts.Round(10*time.Millisecond))
	heal, detail := p.kind.begin(w, p)
	if !p.kind.command {
		time.Sleep(p.lasts) // the fault lasts this long
	}
	if heal != nil {
		heal()
	}
	f.End, f.Detail = w.history.Now(), detail
	w.note("%s of %s is over: %s", p.kind.name, p.on, detail)
	if p.kind.command {
		w.history.Fault(f)
		return
	}
	through := ""
	if p.kind.through != nil {
		through = p.kind.through(p.on)
	}
	w.recoveries.wait(f, through)
}

// recoveries are healed faults after which no write has succeeded yet.
type recoveries struct {
	w    *world
	mu   sync.Mutex
	open []recovery
}

type recovery struct {
	fault   history.Fault
	through string // the service whose success counts; empty: any
}

func (r *recoveries) wait(f history.Fault, through string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, recovery{f, through})
}

// acknowledged records that a service has answered a write.
func (r *recoveries) acknowledged(start, end int64, service string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = slices.DeleteFunc(r.open, func(one recovery) bool {
		if start < one.fault.End || one.through != "" && one.through != service {
			return false
		}
		one.fault.RecoveredAt = end
		r.w.history.Fault(one.fault)
		return true
	})
}

// close writes the faults after which nothing has succeeded, and returns them.
func (r *recoveries) close() (never []history.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.open {
		r.w.history.Fault(one.fault)
		never = append(never, one.fault)
	}
	r.open = nil
	return never
}

// throughService returns the service of a link or process.
func throughService(on string) string {
	for i := range services {
		if strings.Contains(on, serviceName(i)) {
			return serviceName(i)
		}
	}
	return ""
}
