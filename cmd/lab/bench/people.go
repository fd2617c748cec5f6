package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
	"integrityledger/projections/session"
)

const (
	people       = 200                   // signed in to the console
	peoplePace   = 50 * time.Millisecond // between two pages of all people: each opens one every ten seconds
	peopleRounds = 3                     // minimum, because their ratios vary more than other contenders'
	peopleLeast  = time.Second

	peopleAlone  = "over HTTP, nobody signed in"
	peopleIdle   = "over HTTP, 200 idle sessions"
	peopleBeside = "over HTTP, beside 200 people"
	peoplePages  = "pages of the console"
	peopleOpened = "those 200 people's pages"

	targetPeople     = "over HTTP, c = 64, beside 200 people, less their pages : alone"
	targetPeopleWait = "p99 over HTTP, c = 64, beside 200 people : alone"
)

// console lists the pages that people open in turn.
var console = []string{"/console", "/console/records", "/console/history"}

// people measures registrations alone, beside idle sessions, and beside people who open pages; and the pages alone. The
// order changes from round to round, so that no contender benefits from its place.
func (r *run) people(ctx context.Context, result *Result) error {
	if r.Only != nil && !r.Only.MatchString(peoplePages) {
		return nil
	}
	many := r.lab.many
	figures := map[string]*Figure{}
	for _, f := range []*Figure{
		{Name: peopleAlone, Concurrency: 64, Organizations: len(many), Unit: registrations},
		{Name: peopleIdle, Concurrency: 64, Organizations: len(many), Unit: registrations},
		{Name: peopleBeside, Concurrency: 64, Organizations: len(many), Unit: registrations},
		{
			Name: peopleOpened, Concurrency: people, Organizations: len(many), Unit: "requests",
			Note: "their processor time stands in the row before",
		},
		{Name: peoplePages, Concurrency: 8, Organizations: len(many), Unit: "requests"},
	} {
		if r.Only == nil || f.Name == peoplePages {
			result.Figures = append(result.Figures, f)
		}
		figures[f.Name], r.figures[f.Name] = f, f
	}
	c := r.registering(r.service, httpLight, 64, many)
	length := max(2*r.Duration, peopleLeast)
	if _, err := c.round(ctx, r.Duration/4); err != nil {
		return err
	}
	for i := range max(peopleRounds, r.Rounds) {
		alone := func() error { return r.figure(ctx, figures[peopleAlone], c, length, false) }
		signedIn := func() (err error) {
			v, err := r.signIn(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, v.signOut(ctx)) }()
			steps := []func() error{
				func() error { return r.figure(ctx, figures[peopleIdle], c, length, false) },
				func() error {
					group, running := errgroup.WithContext(ctx)
					end, stop := context.WithCancel(running)
					defer stop()
					group.Go(func() error {
						opened, err := load{workers: people, pace: peoplePace, call: v.open}.until(running, end.Done())
						figures[peopleOpened].Rounds = append(figures[peopleOpened].Rounds, opened)
						return err
					})
					err := r.figure(running, figures[peopleBeside], c, length, false)
					stop()
					return errors.Join(group.Wait(), err)
				},
				func() error {
					return r.figure(
						ctx, figures[peoplePages], &contender{name: peoplePages, workers: 8, call: v.open, service: r.service}, length,
						i == 0,
					)
				},
			}
			if r.Only != nil {
				steps = steps[len(steps)-1:]
			}
			if i%2 == 1 {
				slices.Reverse(steps)
			}
			for _, step := range steps {
				if err := step(); err != nil {
					return err
				}
			}
			return nil
		}
		both := []func() error{alone, signedIn}
		if r.Only != nil {
			both = both[1:]
		}
		if i%2 == 1 {
			slices.Reverse(both)
		}
		for _, step := range both {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}

// figure measures one more round of a contender, profiled if it is the first.
func (r *run) figure(ctx context.Context, f *Figure, c *contender, length time.Duration, first bool) error {
	round, err := r.measureOne(ctx, c, length, first)
	if err != nil {
		return err
	}
	f.Rounds = append(f.Rounds, round)
	r.Progress(fmt.Sprintf(
		"%s, c = %d: %.0f %s/s, p50 %s, p99 %s", f.Name, f.Concurrency, round.PerSecond, f.Unit, shortDuration(round.P50),
		shortDuration(round.P99),
	))
	return nil
}

// visitors are people who have signed in, each with a cookie.
type visitors struct {
	client *client
	people []http.Header
	opened atomic.Int64
}

// signIn signs people in as the organizations' owners in turn, with links like an operator's. It spreads the last uses
// of their sessions over the last minute: a use is saved once a minute, so every sixth page saves one.
func (r *run) signIn(ctx context.Context) (*visitors, error) {
	v := &visitors{client: newClient(r.service, people), people: make([]http.Header, people)}
	// The console accepts browsers only under loopback's name.
	v.client.host = strings.Replace(v.client.host, "127.0.0.1", "localhost", 1)
	store := &session.Store{Pool: r.lab.read, Installation: r.lab.installation}
	if err := v.each(ctx, func(ctx context.Context, i int) error {
		o := r.lab.many[i%len(r.lab.many)]
		id, code, secret := domain.NewSignInLink(time.Now(), o.id.Shard())
		if _, err := store.AddSignInLink(
			ctx, session.SignInLink{ID: id, SecretSHA256: secret, Organization: o.id, Member: o.member}, time.Now(),
		); err != nil {
			return err
		}
		cookie, err := v.post(ctx, "/console/link/"+code, http.Header{})
		v.people[i] = http.Header{"Cookie": {cookie}}
		return err
	}); err != nil {
		return nil, err
	}
	return v, r.lab.exec(
		ctx, "UPDATE console_sessions SET used_at = used_at - get_byte(token_sha256, 0) * interval '1 minute' / 256",
	)
}

func (v *visitors) signOut(ctx context.Context) error {
	return v.each(ctx, func(ctx context.Context, i int) error {
		_, err := v.post(ctx, "/console/sign-out", v.people[i])
		return err
	})
}

func (v *visitors) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range v.people {
		group.Go(func() error { return do(running, i) })
	}
	return group.Wait()
}

// post submits an empty form that redirects, and returns the session cookie in the answer.
func (v *visitors) post(ctx context.Context, path string, header http.Header) (cookie string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+v.client.host+path, http.NoBody)
	if err != nil {
		return "", err
	}
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := v.client.transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusSeeOther {
		return "", errors.Join(
			err, fmt.Errorf("%s answered %d: %.300s", strings.SplitAfter(path, "/link/")[0], answer.StatusCode, text),
		)
	}
	for _, c := range answer.Cookies() {
		if strings.HasSuffix(c.Name, "-session") && c.Value != "" {
			cookie = c.Name + "=" + c.Value
		}
	}
	if cookie == "" && len(header) == 0 {
		err = errors.New("a link to sign in was answered without a session")
	}
	return cookie, err
}

// open opens the next page, for the next person.
func (v *visitors) open(ctx context.Context, worker int) (int, error) {
	n := int(v.opened.Add(1))
	w := &v.client.callers[worker]
	// every person opens every page, because 3 does not divide 200
	w.header, w.path = v.people[n%people], console[n%len(console)]
	_, err := v.client.send(ctx, worker, http.MethodGet, http.StatusOK)
	return 1, err
}

// peopleMeasured returns the rounds of registrations alone and beside people, if measured.
func peopleMeasured(r *run) (alone, beside *Figure, m measurement) {
	alone, beside = r.figures[peopleAlone], r.figures[peopleBeside]
	if alone == nil || beside == nil || len(beside.Rounds) == 0 {
		m.missing = "nobody has signed in"
	}
	return alone, beside, m
}

// besidePeople compares how many registrations fit into the same processor time beside people, without the cost of
// their pages, and alone. A page's cost is measured with pages alone at full load, where it is lowest: any extra cost
// beside registrations counts against the registrations. The wall-clock ratio has no subtraction.
func besidePeople(r *run) (m measurement) {
	alone, beside, m := peopleMeasured(r)
	if m.missing != "" {
		return m
	}
	pages, opened := r.figures[peoplePages], r.figures[peopleOpened]
	var less, nothing, wall, idle []float64
	for i, with := range beside.Rounds {
		without, page, n := alone.Rounds[i], pages.Rounds[i], opened.Rounds[i].Done
		if r.Server == nil || without.CPU.total() == 0 || with.CPU.total() == 0 {
			m.missing = cpuUnknown
			return m
		}
		cost := float64(with.CPU.total())
		less = append(less, float64(without.CPU.total())/(cost-float64(page.CPU.total())*float64(n)/float64(with.Done)))
		nothing, wall = append(nothing, float64(without.CPU.total())/cost), append(wall, with.PerSecond/without.PerSecond)
		idle = append(idle, float64(without.CPU.total())/float64(r.figures[peopleIdle].Rounds[i].CPU.total()))
	}
	m = measurement{value: medianOf(less), perSecond: beside.PerSecond, wall: medianOf(wall), cpu: medianOf(less)}
	m.note = fmt.Sprintf("rounds from %.2f to %.2f; with nothing taken off %.2f; %.0f pages/s, each %.0f µs in all; "+
		"beside 200 idle sessions %.2f",
		slices.Min(less), slices.Max(less), medianOf(nothing), opened.PerSecond, microseconds(pages.CPU.total()),
		medianOf(idle))
	return m
}

// waitsBesidePeople compares the p99 of a registration.
func waitsBesidePeople(r *run) measurement {
	alone, beside, m := peopleMeasured(r)
	if m.missing != "" {
		return m
	}
	var slower []float64
	for i, with := range beside.Rounds {
		slower = append(slower, float64(with.P99)/float64(alone.Rounds[i].P99))
	}
	m.value, m.wall = medianOf(slower), medianOf(slower)
	m.note = fmt.Sprintf("p99 %s, alone %s; rounds from %.2f to %.2f; a page p50 %s, p99 %s", shortDuration(beside.P99),
		shortDuration(alone.P99),
		slices.Min(slower), slices.Max(slower), shortDuration(r.figures[peopleOpened].P50),
		shortDuration(r.figures[peopleOpened].P99))
	return m
}
