package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// Kind is what a worker has just done.
type Kind string

// The steps of an item, in their order. A report is made after the step is in the database, but Answered and Exported,
// which come before.
const (
	Sending   Kind = "sending"   // marked as sent; the request follows
	Ambiguous Kind = "ambiguous" // an earlier attempt's outcome is not known; the look-up follows
	Found     Kind = "found"     // the look-up: it had arrived; the replay follows
	NotFound  Kind = "not-found" // the look-up: it had not; the same declaration follows
	Answered  Kind = "answered"  // the service has registered it
	Stored    Kind = "stored"    // its answer is stored
	Exported  Kind = "exported"  // evidence came, and is verified where trusted keys were given
	Finished  Kind = "finished"  // evidence is stored
	Postponed Kind = "postponed" // waiting may mend it
	Halted    Kind = "halted"    // needs correction
)

// Report tells of a step.
type Report struct {
	Kind         Kind
	Version      wire.VersionReference
	Registration *wire.Registration // of Answered and later
	Err          error              // of Postponed and Halted
	Again        time.Duration      // of Postponed: how long everything waits
}

// Worker registers what is in an outbox, one after the other.
type Worker struct {
	config   Config
	added    chan struct{}
	finished atomic.Bool
	sleep    func(ctx context.Context, d time.Duration, added <-chan struct{})

	backoff     client.Backoff
	pausedUntil time.Time // after what waiting may mend
}

// Config of a worker. Outbox and Client are required.
type Config struct {
	Outbox *Outbox
	Client *client.Client
	// Trusted are pinned keys: evidence that does not verify by them, for the very declaration, stops its item. Without
	// them evidence is stored as it came.
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
	return &Worker{config: c, added: make(chan struct{}, 1), sleep: sleep}
}

// Wake tells that something was added; a worker that is not told looks every minute. It does not shorten the wait after
// a failure.
func (w *Worker) Wake() {
	select {
	case w.added <- struct{}{}:
	default:
	}
}

// Finish tells that nothing will be added any more: Run then ends once nothing waits.
func (w *Worker) Finish() {
	w.finished.Store(true)
	w.Wake()
}

const lookEvery = time.Minute

// Run works until ctx ends, whose error it then returns, or the database fails. After Finish it returns nil once every
// item is done or stopped. An item that an end of ctx interrupts is taken up where it was.
func (w *Worker) Run(ctx context.Context) error {
	for {
		finished := w.finished.Load() // before the look: what was added earlier is seen by it
		item, waiting, err := w.config.Outbox.next(ctx)
		now := w.config.Now()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("outbox: %w", err)
		case !waiting && finished:
			return nil
		case !waiting:
			w.sleep(ctx, lookEvery, w.added)
		case w.pausedUntil.After(now):
			w.sleep(ctx, w.pausedUntil.Sub(now), nil)
		case item.due.After(now):
			w.sleep(ctx, min(item.due.Sub(now), lookEvery), w.added)
		default:
			if err := w.handle(ctx, item); err != nil {
				return err
			}
		}
	}
}

// sleep ends early with ctx, and when added, which may be nil, says so.
func sleep(ctx context.Context, d time.Duration, added <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	case <-added:
	}
}

// handle takes an item as far as it goes. Its error is the database's, or that of ctx.
func (w *Worker) handle(ctx context.Context, i Item) error {
	if i.State == Sent {
		if err := w.lookUpEarlierAttempt(ctx, i); err != nil {
			return w.fail(ctx, i, err)
		}
	}
	if i.State != Registered {
		if err := w.register(ctx, &i); err != nil {
			return w.fail(ctx, i, err)
		}
	}
	if err := w.export(ctx, i); err != nil {
		i.State = Registered
		return w.fail(ctx, i, err)
	}
	w.backoff = client.Backoff{}
	return nil
}

// storeError is an error of the origin's own database: no attempt goes on without it.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// answerError is an answer that cannot be accepted; the same question would get it again.
type answerError struct{ error }

func (e answerError) Unwrap() error { return e.error }

func (w *Worker) say(kind Kind, i Item) {
	w.config.Report(Report{Kind: kind, Version: i.Declaration.VersionReference(), Registration: i.Response})
}

// lookUpEarlierAttempt asks what became of an earlier attempt. Whatever it finds, the very same declaration follows: the replay
// confirms every declared member.
func (w *Worker) lookUpEarlierAttempt(ctx context.Context, i Item) error {
	w.say(Ambiguous, i)
	_, err := w.config.Client.Lookup(ctx, i.Declaration.VersionReference())
	var refused *client.Error
	switch {
	case err == nil:
		w.say(Found, i)
	case errors.As(err, &refused) && refused.Code == domain.RecordNotFound:
		w.say(NotFound, i)
	default:
		return err
	}
	return nil
}

// register sends the saved declaration once and stores the answer.
func (w *Worker) register(ctx context.Context, i *Item) error {
	if err := w.config.Outbox.update(ctx, *i, `UPDATE integrity_outbox SET state = 'sent', attempts = attempts + 1 WHERE id = ?`); err != nil {
		return err
	}
	w.say(Sending, *i)
	answer, err := w.config.Client.RegisterSaved(ctx, i.saved)
	if err != nil {
		return err
	}
	if !strings.EqualFold(answer.SHA256, i.Declaration.SHA256) || answer.DocumentReference != i.Declaration.DocumentReference || answer.Version != i.Declaration.Version {
		return answerError{errors.New("the service's answer is about something else than the declaration")}
	}
	i.Response = &answer
	w.say(Answered, *i)
	text, err := json.Marshal(answer)
	if err != nil {
		return storeError{err}
	}
	// The service has registered it: that is kept although ctx may have ended.
	if err := w.config.Outbox.update(context.WithoutCancel(ctx), *i, `UPDATE integrity_outbox SET state = 'registered', response = ?, problem = NULL WHERE id = ?`, string(text)); err != nil {
		return err
	}
	w.say(Stored, *i)
	return nil
}

// export fetches the evidence of a registered item, verifies and stores it.
func (w *Worker) export(ctx context.Context, i Item) error {
	receipt, err := w.config.Client.Evidence(ctx, i.Response.PublicID)
	if err == nil && w.config.Trusted != nil {
		if _, wrong := client.VerifyDeclared(receipt, w.config.Trusted, i.Declaration, w.config.Now()); wrong != nil {
			err = answerError{wrong}
		}
	}
	if err != nil {
		return err
	}
	w.say(Exported, i)
	if err := w.config.Outbox.update(context.WithoutCancel(ctx), i, `UPDATE integrity_outbox SET state = 'done', evidence = ?, problem = NULL WHERE id = ?`, string(receipt)); err != nil {
		return err
	}
	w.say(Finished, i)
	return nil
}

// fail records why an attempt did not succeed: the item stops, or everything waits.
func (w *Worker) fail(ctx context.Context, i Item, err error) error {
	var own storeError
	var answered answerError
	if errors.As(err, &own) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r := Report{Kind: Halted, Version: i.Declaration.VersionReference(), Registration: i.Response, Err: err}
	if client.Refused(err) || errors.As(err, &answered) {
		if err := w.config.Outbox.update(ctx, i, `UPDATE integrity_outbox SET state = 'stopped', problem = ? WHERE id = ?`, err.Error()); err != nil {
			return err
		}
		w.config.Report(r)
		return nil
	}
	state := i.State
	if state == Waiting && client.Unknown(err) {
		state = Sent
	}
	r.Kind, r.Again = Postponed, w.backoff.Next(err)
	w.pausedUntil = w.config.Now().Add(r.Again)
	if err := w.config.Outbox.update(ctx, i, `UPDATE integrity_outbox SET state = ?, due_at = ?, problem = ? WHERE id = ?`, state, w.pausedUntil.UnixMilli(), err.Error()); err != nil {
		return err
	}
	w.config.Report(r)
	return nil
}
