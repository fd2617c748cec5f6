package outbox

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// Kind is the step that a worker has taken.
type Kind string

// The steps of an item, in their order. A step is reported after it is in the database, except Answered and Exported,
// which are reported before.
const (
	Sending   Kind = "sending"   // marked as sent; the request follows
	Ambiguous Kind = "ambiguous" // the outcome of an earlier attempt is not known; the look-up follows
	Found     Kind = "found"     // looked up: it had arrived; the replay follows
	NotFound  Kind = "not-found" // looked up: it had not; the same declaration follows
	Answered  Kind = "answered"  // the service has registered the version
	Stored    Kind = "stored"    // the answer is stored
	Exported  Kind = "exported"  // evidence was fetched, and verified if there are trusted keys
	Finished  Kind = "finished"  // evidence is stored
	Postponed Kind = "postponed" // to be repeated after a wait
	Halted    Kind = "halted"    // needs correction
)

// Report describes a step.
type Report struct {
	Kind         Kind
	Version      wire.VersionReference
	Registration *wire.Registration // for Answered and later
	Err          error              // for Postponed and Halted
	Again        time.Duration      // for Postponed: the wait of the item
}

// Worker registers the items of an outbox in batches.
type Worker struct {
	config   Config
	added    chan struct{}
	finished atomic.Bool
	sleep    func(ctx context.Context, d time.Duration, added <-chan struct{})

	sending, exporting lane
	batchSize          int                // of the next batch
	lookedUp           map[int64]struct{} // items looked up since their last attempt
}

// lane is one of the two kinds of work. Each lane has its own waits.
type lane struct {
	backoff client.Backoff
	until   time.Time // end of the wait after a failure
}

const (
	maxBatch = 500 // contract section 3
	parallel = 16  // look-ups or evidence requests at the same time
)

// Config configures a worker. Outbox and Client are required.
type Config struct {
	Outbox *Outbox
	Client *client.Client
	// Trusted are pinned keys. Evidence that they do not verify for this exact declaration stops its item. Without them,
	// evidence is stored unverified.
	Trusted *evidence.TrustedKeys
	Now     func() time.Time // nil means time.Now
	Report  func(Report)     // called in order, by Run's goroutine; may be nil
}

// NewWorker makes a worker.
func NewWorker(c Config) *Worker {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Report == nil {
		c.Report = func(Report) {}
	}
	sleep := func(ctx context.Context, d time.Duration, added <-chan struct{}) {
		wait.Interrupted(d, ctx.Done(), added)
	}
	return &Worker{
		config: c, added: make(chan struct{}, 1), sleep: sleep, batchSize: maxBatch, lookedUp: map[int64]struct{}{},
	}
}

// Wake says that an item was added. Without it the worker looks every minute. It does not shorten the wait after a
// failure.
func (w *Worker) Wake() {
	select {
	case w.added <- struct{}{}:
	default:
	}
}

// Finish says that no more items will be added: Run returns once no item is waiting.
func (w *Worker) Finish() {
	w.finished.Store(true)
	w.Wake()
}

const lookEvery = time.Minute

// Run works until ctx ends and returns its error, or until the database fails. After Finish it returns nil once every
// item is done, abandoned, stopped, or queued behind a stopped one. An item that the end of ctx interrupts resumes
// where it was.
func (w *Worker) Run(ctx context.Context) error {
	for {
		finished := w.finished.Load() // load before looking: an item added before Finish must be found
		wait := time.Duration(-1)     // no item waits
		worked := false
		for _, work := range []struct {
			*lane
			items string
			limit int
			do    func(context.Context, []Item) error
		}{{&w.sending, toSend, w.batchSize, w.send}, {&w.exporting, toExport, parallel, w.export}} {
			items, again, err := w.due(ctx, *work.lane, work.items, work.limit)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return say.Errorf("outbox: %w", err)
			}
			if len(items) > 0 {
				if err := work.do(ctx, items); err != nil {
					return err
				}
				if worked = true; len(items) == work.limit {
					break // more of them may be due
				}
				continue
			}
			if again >= 0 && (wait < 0 || again < wait) {
				wait = again
			}
		}
		switch {
		case worked:
		case wait < 0 && finished:
			return nil
		case wait < 0:
			w.sleep(ctx, lookEvery, w.added)
		default:
			w.sleep(ctx, min(wait, lookEvery), w.added)
		}
	}
}

// due returns the items of a lane that can be worked on now, or the wait until the first one can; -1 means that no item
// waits.
func (w *Worker) due(
	ctx context.Context, l lane, where string, limit int,
) (items []Item, wait time.Duration, err error) {
	if items, err = w.config.Outbox.next(ctx, where, limit); err != nil || len(items) == 0 {
		return nil, -1, err
	}
	now := w.config.Now()
	if l.until.After(now) {
		return nil, l.until.Sub(now), nil
	}
	// An item that was never attempted does not wait: if its due time is in the future, the clock was set back.
	later := slices.IndexFunc(items, func(i Item) bool { return i.Attempts > 0 && i.due.After(now) })
	if later == 0 {
		return nil, items[0].due.Sub(now), nil
	}
	if later > 0 {
		items = items[:later]
	}
	return items, 0, nil
}

// answerError is an answer that cannot be accepted. The same request would get it again.
type answerError struct{ error }

func (e answerError) Unwrap() error { return e.error }

func (w *Worker) say(kind Kind, items ...Item) {
	for _, i := range items {
		w.config.Report(Report{Kind: kind, Version: i.Declaration.VersionReference(), Registration: i.Response})
	}
}

// send declares items in one request and stores the outcome of each. It fails only if the database fails or ctx ends.
func (w *Worker) send(ctx context.Context, items []Item) error {
	items, err := w.lookUp(ctx, items)
	if err != nil || len(items) == 0 {
		return err
	}
	sent, declarations := slices.Clone(items), make([][]byte, len(items))
	for k := range sent {
		sent[k].State, declarations[k] = Sent, items[k].saved
		sent[k].Attempts++
		items[k].Attempts++
	}
	if err := w.config.Outbox.save(ctx, sent...); err != nil {
		return err
	}
	w.say(Sending, sent...)
	results, err := w.config.Client.RegisterBatchSaved(ctx, declarations)
	wrong := new(client.Error)
	spoilt := errors.As(err, &wrong) && malformed[wrong.Status] && len(items) > 1
	if err != nil && ctx.Err() != nil && !spoilt {
		return ctx.Err()
	}
	switch {
	case spoilt || client.Unknown(err):
		w.batchSize = (len(items) + 1) / 2 // one item may spoil the batch, or the batch may be too large for a proxy
	case err == nil || stops(err):
		w.batchSize = min(2*w.batchSize, maxBatch)
	}
	if spoilt {
		return w.config.Outbox.save(context.WithoutCancel(ctx), items...)
	}
	errs := make([]error, len(items))
	for k := range items {
		switch {
		case err != nil:
			errs[k] = err
		case results[k].Err != nil:
			errs[k] = results[k].Err
		default:
			items[k].Response, errs[k] = accept(items[k], results[k].Registration)
		}
		if errs[k] == nil || client.Unknown(errs[k]) {
			delete(w.lookedUp, items[k].ID)
		}
	}
	return w.saveOutcomes(ctx, &w.sending, items, errs, Registered)
}

// malformed are statuses of a whole batch that may be the fault of a single declaration.
var malformed = map[int]bool{
	http.StatusBadRequest: true, http.StatusRequestEntityTooLarge: true, http.StatusUnprocessableEntity: true,
}

// accept checks that an answer is about the declaration.
func accept(i Item, r *wire.Registration) (*wire.Registration, error) {
	if r.PublicID == "" || !strings.EqualFold(r.SHA256, i.Declaration.SHA256) ||
		r.DocumentReference != i.Declaration.DocumentReference || r.Version != i.Declaration.Version {
		return nil, answerError{say.New("the service's answer does not match the declaration")}
	}
	return r, nil
}

// lookUp looks up earlier attempts whose outcome is not known, and returns the items that can be sent now: no items if
// the look-ups must wait. Whether an item is found or not, the very same declaration is sent again: the replay confirms
// every declared member.
func (w *Worker) lookUp(ctx context.Context, items []Item) ([]Item, error) {
	unknown := func(i Item) bool {
		_, looked := w.lookedUp[i.ID]
		return i.State == Sent && !looked
	}
	ready := slices.DeleteFunc(slices.Clone(items), unknown)
	for asked := range slices.Chunk(slices.DeleteFunc(items, func(i Item) bool { return !unknown(i) }), parallel) {
		w.say(Ambiguous, asked...)
		errs := inParallel(asked, func(_ int, i Item) error {
			_, err := w.config.Client.Lookup(ctx, i.Declaration.VersionReference())
			return err
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var failed []Item
		var causes []error
		for k, i := range asked {
			found := NotFound
			switch refused := new(client.Error); {
			case errs[k] == nil:
				found = Found
			case errors.As(errs[k], &refused) && refused.Code == domain.RecordNotFound:
			default:
				failed, causes = append(failed, i), append(causes, errs[k])
				continue
			}
			w.say(found, i)
			w.lookedUp[i.ID] = struct{}{}
			ready = append(ready, i)
		}
		if err := w.saveOutcomes(ctx, &w.sending, failed, causes, Sent); err != nil || w.sending.until.After(w.config.Now()) {
			return nil, err
		}
	}
	return ready, nil
}

// inParallel calls do for all items concurrently.
func inParallel(items []Item, do func(k int, i Item) error) []error {
	errs := make([]error, len(items))
	var all sync.WaitGroup
	for k, i := range items {
		all.Go(func() { errs[k] = do(k, i) })
	}
	all.Wait()
	return errs
}

// export fetches, verifies and stores the evidence of registered items.
func (w *Worker) export(ctx context.Context, items []Item) error {
	errs := inParallel(items, func(k int, i Item) error {
		receipt, err := w.config.Client.Evidence(ctx, i.Response.PublicID)
		if err == nil && w.config.Trusted != nil {
			if _, wrong := client.VerifyDeclared(receipt, w.config.Trusted, i.Declaration, w.config.Now()); wrong != nil {
				err = answerError{wrong}
			}
		}
		if err == nil {
			items[k].Evidence = receipt
		}
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return w.saveOutcomes(ctx, &w.exporting, items, errs, Done)
}

// stops reports whether an error needs correction.
func stops(err error) bool {
	return client.Refused(err) || errors.As(err, new(answerError))
}

// saveOutcomes stores the outcomes of items: each has an error or has reached the state to. An item that needs
// correction stops. The others wait. Their lane waits too if no item was decided or a limit of the organization was
// reached.
func (w *Worker) saveOutcomes(ctx context.Context, l *lane, items []Item, errs []error, to State) error {
	if len(items) == 0 {
		return nil
	}
	decided, limited, longest := false, false, error(nil)
	for _, err := range errs {
		refused := new(client.Error)
		decided = decided || err == nil || stops(err)
		limited = limited || errors.As(err, &refused) && refused.Status == http.StatusTooManyRequests && !stops(err)
		if client.RetryAfter(err) > client.RetryAfter(longest) {
			longest = err
		}
	}
	now := w.config.Now()
	if decided {
		l.backoff = client.Backoff{}
	}
	var pause time.Duration
	if !decided || limited {
		pause = l.backoff.Next(longest)
		l.until = now.Add(pause)
	}
	reports := make([]Report, len(items))
	for k := range items {
		i, err := &items[k], errs[k]
		r := Report{Kind: arrived[to][1], Version: i.Declaration.VersionReference(), Registration: i.Response, Err: err}
		switch {
		case err == nil:
			i.State, i.Problem, i.due = to, "", now
			w.say(arrived[to][0], *i)
		case stops(err):
			i.State, i.Problem, r.Kind = Stopped, err.Error(), Halted
		default:
			if i.State == Waiting && client.Unknown(err) {
				i.State = Sent
			}
			if r.Kind, r.Again = Postponed, pause; pause == 0 {
				r.Again = (&client.Backoff{Failures: i.Attempts}).Next(err)
			}
			i.due, i.Problem = now.Add(r.Again), err.Error()
		}
		reports[k] = r
	}
	// Store the service's decisions even if ctx has ended.
	if err := w.config.Outbox.save(context.WithoutCancel(ctx), items...); err != nil {
		return err
	}
	for _, r := range reports {
		w.config.Report(r)
	}
	return nil
}

// arrived are the steps reported when an item reaches a state: before the state is stored, and after.
var arrived = map[State][2]Kind{Registered: {Answered, Stored}, Done: {Exported, Finished}}
