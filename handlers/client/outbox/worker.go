package outbox

import (
	"cmp"
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
	Exported  Kind = "exported"  // complete evidence was fetched, and verified if there are trusted keys
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

// Batch is the outcome of one request for several declarations, or for the evidence of several rows.
type Batch struct {
	Evidence  bool // a request for evidence
	Rows      int
	Done      int // registered, or complete
	Conflict  int
	Refused   int
	Postponed int
	Lost      int // claimed by another worker meanwhile: it stores the outcome
	Took      time.Duration
	Pause     time.Duration // before the next request of this kind
	Err       error         // the first error of a row that was not done
}

// Worker registers the rows of an outbox in batches.
type Worker struct {
	config   Config
	added    chan struct{}
	finished atomic.Bool
	sleep    func(ctx context.Context, d time.Duration, added <-chan struct{})

	sending, exporting lane
	batchSize          int                // of the next batch
	lookedUp           map[int64]struct{} // rows looked up since their last attempt
	incomplete         map[int64]int      // how often the evidence of a row was not complete
}

// lane is one of the two kinds of work. Each lane has its own waits.
type lane struct {
	backoff client.Backoff
	until   time.Time // end of the wait after a failure
}

const (
	maxBatch = 500 // contract section 3
	parallel = 16  // look-ups at the same time
	// maxEvidence is the largest number of records in a request for evidence.
	maxEvidence = 100

	// firstEvidence is when the evidence of a new record is fetched: a record is in the transparency log a moment later.
	firstEvidence = 2 * time.Second
	// longestPause can be added to any time that a database stores. A service may say to wait for thousands of years.
	longestPause = 1 << 30 * time.Second
	// moment lets rows that were stored one after another become due together.
	moment = 50 * time.Millisecond
	// quotaPause is the longest wait in an exhausted month, because a plan may be raised at any time.
	quotaPause = time.Hour
)

// Config configures a worker. Outbox and Client are required.
type Config struct {
	Outbox *Outbox
	Client *client.Client
	// Trusted are pinned keys. The worker does not accept evidence that they do not verify for this exact declaration.
	// Without them, evidence is stored unverified.
	Trusted *evidence.TrustedKeys
	// Timestamps makes evidence complete only with the token of a timestamp authority.
	Timestamps bool
	// WithoutEvidence leaves the evidence to another worker: a row is done once it is registered.
	WithoutEvidence bool
	// Poll is how often the worker looks for new rows without a call of Wake; 0 means every second.
	Poll   time.Duration
	Now    func() time.Time // nil means time.Now
	Report func(Report)     // called in order, by Run's goroutine; may be nil
	Batch  func(Batch)      // called after each batch, by Run's goroutine; may be nil
}

// NewWorker makes a worker.
func NewWorker(c Config) *Worker {
	c.Poll = cmp.Or(c.Poll, time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Report == nil {
		c.Report = func(Report) {}
	}
	if c.Batch == nil {
		c.Batch = func(Batch) {}
	}
	sleep := func(ctx context.Context, d time.Duration, added <-chan struct{}) {
		wait.Interrupted(d, ctx.Done(), added)
	}
	return &Worker{
		config: c, added: make(chan struct{}, 1), sleep: sleep, batchSize: maxBatch, lookedUp: map[int64]struct{}{},
		incomplete: map[int64]int{},
	}
}

// Wake says that a row was added. Without it the worker looks at every interval of Poll. It does not shorten the wait
// after a failure.
func (w *Worker) Wake() {
	select {
	case w.added <- struct{}{}:
	default:
	}
}

// Finish says that no more rows will be added: Run returns once no row waits.
func (w *Worker) Finish() {
	w.finished.Store(true)
	w.Wake()
}

// claimed are rows under the token of their claim.
type claimed struct {
	token string
	items []Item
}

// Run works until ctx ends and returns its error, or until the database fails or the service refuses the key. After
// Finish it returns nil once every row is complete or needs correction. A row that the end of ctx interrupts resumes
// where it was.
func (w *Worker) Run(ctx context.Context) error {
	type steps struct {
		*lane
		rows  string
		limit func() int
		do    func(context.Context, claimed) error
	}
	lanes := []steps{
		{&w.sending, toSend, func() int { return w.batchSize }, w.send},
		{&w.exporting, toExport, func() int { return maxEvidence }, w.export},
	}
	if w.config.WithoutEvidence {
		lanes = lanes[:1]
	}
	for {
		finished := w.finished.Load() // load before looking: a row added before Finish must be found
		pause := time.Duration(-1)    // no row waits
		worked := false
		for _, work := range lanes {
			limit := work.limit()
			n, again, err := w.work(ctx, *work.lane, work.rows, limit, work.do)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return say.Errorf("outbox: %w", err)
			}
			if n > 0 {
				if worked = true; n == limit {
					break // more of them may be due
				}
				continue
			}
			if again >= 0 && (pause < 0 || again < pause) {
				pause = again
			}
		}
		switch {
		case worked:
		case pause < 0 && finished:
			return nil
		case pause < 0:
			w.sleep(ctx, w.config.Poll, w.added)
		default:
			w.sleep(ctx, min(pause+moment, w.config.Poll), w.added)
		}
	}
}

// work claims rows of a lane and works on them. Without due rows it returns the wait until there may be some; -1 means
// that the lane is empty. When ctx ends, it ends the lease of its rows.
func (w *Worker) work(
	ctx context.Context, l lane, rows string, limit int, do func(context.Context, claimed) error,
) (n int, again time.Duration, err error) {
	if pause := l.until.Sub(w.config.Now()); pause > 0 {
		again, err := w.config.Outbox.due(ctx, rows)
		if again >= 0 {
			again = max(again, pause)
		}
		return 0, again, err
	}
	items, token, err := w.config.Outbox.claim(ctx, rows, limit)
	if err != nil {
		return 0, 0, err
	}
	if len(items) == 0 {
		again, err = w.config.Outbox.due(ctx, rows)
		return 0, again, err
	}
	err = do(ctx, claimed{token, items})
	if err != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, w.config.Outbox.release(ending, claimed{token, items}))
	}
	return len(items), 0, err
}

// answerError is an answer that cannot be accepted. The same request would get it again.
type answerError struct{ error }

func (e answerError) Unwrap() error { return e.error }

func (w *Worker) say(kind Kind, items ...Item) {
	for _, i := range items {
		w.config.Report(Report{Kind: kind, Version: i.Declaration.VersionReference(), Registration: i.Record})
	}
}

// send declares rows in one request and stores the outcome of each. It fails only if the database fails, ctx ends, or
// the service refuses the key.
func (w *Worker) send(ctx context.Context, c claimed) error {
	began := w.config.Now()
	items, err := w.lookUp(ctx, c)
	if err != nil || len(items) == 0 {
		return err
	}
	if items, err = w.refuseInvalid(ctx, c.token, items); err != nil || len(items) == 0 {
		return err
	}
	if items, err = w.config.Outbox.markSent(ctx, c.token, items); err != nil || len(items) == 0 {
		return err
	}
	declarations := make([]wire.Declaration, len(items))
	for k := range items {
		declarations[k] = items[k].Declaration
	}
	w.say(Sending, items...)
	results, err := w.config.Client.RegisterBatch(ctx, declarations)
	wrong := new(client.Error)
	spoilt := errors.As(err, &wrong) && malformed[wrong.Status] && len(items) > 1
	if err != nil && ctx.Err() != nil && !spoilt {
		return ctx.Err() // the rows remain marked as sent
	}
	switch {
	case spoilt || client.Unknown(err):
		w.batchSize = (len(items) + 1) / 2 // one row may spoil the batch, or the batch may be too large for a proxy
	case err == nil || stops(err):
		w.batchSize = min(2*w.batchSize, maxBatch)
	}
	if spoilt || ofKey(err) {
		for k := range items {
			items[k].Sent, items[k].next = false, new(time.Duration(0)) // nothing was done
		}
		if _, failed := w.config.Outbox.save(context.WithoutCancel(ctx), c.token, items); failed != nil || spoilt {
			return failed
		}
		return say.Errorf("the service refuses the key: %w", err)
	}
	errs := make([]error, len(items))
	for k := range items {
		switch {
		case err != nil:
			errs[k] = err
		case results[k].Err != nil:
			errs[k] = results[k].Err
		default:
			items[k].Record, errs[k] = accept(items[k], results[k].Registration)
		}
		if errs[k] == nil || client.Unknown(errs[k]) {
			delete(w.lookedUp, items[k].ID)
		}
	}
	return w.saveOutcomes(ctx, &w.sending, claimed{c.token, items}, errs, began)
}

// malformed are statuses of a whole batch that may be the fault of a single declaration.
var malformed = map[int]bool{
	http.StatusBadRequest: true, http.StatusRequestEntityTooLarge: true, http.StatusUnprocessableEntity: true,
}

// ofKey reports whether the service refused the key, or everything of this kind that the key could ask.
func ofKey(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && client.Refused(err) && (refused.Status == http.StatusUnauthorized ||
		slices.Contains([]domain.Code{domain.MissingScope, domain.RoleRequired, domain.PlanRequired}, refused.Code))
}

// invalidError is a declaration whose form the service would refuse.
type invalidError struct{ error }

func (e invalidError) Unwrap() error { return e.error }

// refuseInvalid refuses rows that could never be registered, so that they do not spoil a batch. It returns the others.
func (w *Worker) refuseInvalid(ctx context.Context, token string, items []Item) ([]Item, error) {
	var valid, wrong []Item
	var errs []error
	for _, i := range items {
		if err := Validate(i.Declaration); err != nil {
			wrong, errs = append(wrong, i), append(errs, invalidError{err})
		} else {
			valid = append(valid, i)
		}
	}
	return valid, w.saveOutcomes(ctx, &w.sending, claimed{token, wrong}, errs, w.config.Now())
}

// accept checks that an answer is about the declaration.
func accept(i Item, r *wire.Registration) (*wire.Registration, error) {
	if r.PublicID == "" || !strings.EqualFold(r.SHA256, i.Declaration.SHA256) ||
		r.DocumentReference != i.Declaration.DocumentReference || r.Version != i.Declaration.Version {
		return nil, answerError{say.New("the service's answer does not match the declaration")}
	}
	return r, nil
}

// lookUp looks up earlier attempts whose outcome is not known, and returns the rows that can be sent now: no rows if
// the look-ups must wait. Whether a row is found or not, the very same declaration is sent again: the replay confirms
// every declared member.
func (w *Worker) lookUp(ctx context.Context, c claimed) ([]Item, error) {
	unknown := func(i Item) bool {
		_, looked := w.lookedUp[i.ID]
		return i.Sent && !looked
	}
	ready := slices.DeleteFunc(slices.Clone(c.items), unknown)
	left := slices.DeleteFunc(slices.Clone(c.items), func(i Item) bool { return !unknown(i) })
	for len(left) > 0 {
		asked := left[:min(parallel, len(left))]
		left = left[len(asked):]
		w.say(Ambiguous, asked...)
		began := w.config.Now()
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
			case ofKey(errs[k]):
				return nil, say.Errorf("the service refuses the key: %w", errs[k])
			default:
				failed, causes = append(failed, i), append(causes, errs[k])
				continue
			}
			w.say(found, i)
			w.lookedUp[i.ID] = struct{}{}
			ready = append(ready, i)
		}
		if err := w.saveOutcomes(ctx, &w.sending, claimed{c.token, failed}, causes, began); err != nil {
			return nil, err
		}
		if w.sending.until.After(w.config.Now()) {
			return nil, w.config.Outbox.release(context.WithoutCancel(ctx), c)
		}
	}
	slices.SortFunc(ready, func(a, b Item) int { return cmp.Compare(a.ID, b.ID) })
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

// stops reports whether an error needs correction.
func stops(err error) bool {
	return client.Refused(err) || errors.As(err, new(answerError)) || errors.As(err, new(invalidError)) ||
		errors.As(err, new(evidenceError))
}

// Codes of failures that the service does not name.
const (
	NoAnswer         = "NO_ANSWER"
	UnexpectedAnswer = "UNEXPECTED_ANSWER"
	EvidenceInvalid  = "EVIDENCE_INVALID"
)

// codeOf is the error_code of an attempt.
func codeOf(err error) string {
	var refused *client.Error
	switch {
	case errors.As(err, &refused):
		return string(refused.Code)
	case errors.As(err, new(invalidError)):
		return string(domain.InvalidData)
	case errors.As(err, new(evidenceError)):
		return EvidenceInvalid
	case errors.As(err, new(answerError)):
		return UnexpectedAnswer
	}
	return NoAnswer
}

// saveOutcomes stores the outcomes of rows: each has an error or is registered or complete. A row that needs correction
// stops. The others wait. Their lane waits too if no row was decided or a limit of the organization was reached.
func (w *Worker) saveOutcomes(ctx context.Context, l *lane, c claimed, errs []error, began time.Time) error {
	if len(c.items) == 0 {
		return nil
	}
	items, b := c.items, Batch{Evidence: l == &w.exporting, Rows: len(c.items)}
	decided, limited, longest := false, false, error(nil)
	for _, err := range errs {
		refused := new(client.Error)
		decided = decided || err == nil || stops(err) || errors.Is(err, errIncomplete)
		limited = limited || errors.As(err, &refused) && refused.Status == http.StatusTooManyRequests && !stops(err)
		if client.RetryAfter(err) > client.RetryAfter(longest) {
			longest = err
		}
	}
	now := w.config.Now()
	if decided {
		l.backoff = client.Backoff{}
	}
	if !decided || limited {
		b.Pause = pauseOf(&l.backoff, longest)
		l.until = now.Add(b.Pause)
	}
	reports := make([]Report, len(items))
	for k := range items {
		i, err := &items[k], errs[k]
		r := Report{Version: i.Declaration.VersionReference(), Registration: i.Record, Err: err}
		i.Code, i.Problem, i.next = "", "", nil
		if err != nil && !errors.Is(err, errIncomplete) {
			i.Code, i.Problem = codeOf(err), err.Error()
		}
		switch {
		case err == nil && b.Evidence:
			w.say(Exported, *i)
			r.Kind = Finished
			delete(w.incomplete, i.ID)
			b.Done++
		case err == nil:
			i.State, i.Sent, i.next = Registered, false, new(firstEvidence)
			w.say(Answered, *i)
			r.Kind = Stored
			b.Done++
		case stops(err):
			r.Kind = Halted
			if i.Sent = false; !b.Evidence {
				i.State = Refused
			}
			if i.Code == string(domain.VersionConflict) {
				i.State = Conflict
				b.Conflict++
			} else {
				b.Refused++
			}
			b.Err = cmp.Or(b.Err, err)
		default:
			if i.Sent = i.Sent || !b.Evidence && client.Unknown(err); b.Evidence {
				w.incomplete[i.ID]++
			}
			if r.Kind, r.Again = Postponed, b.Pause; r.Again == 0 {
				failures := i.Attempts
				if b.Evidence {
					failures = w.incomplete[i.ID]
				}
				r.Again = pauseOf(&client.Backoff{Failures: failures}, err)
			}
			i.next = new(r.Again)
			b.Postponed++
			b.Err = cmp.Or(b.Err, err)
		}
		reports[k] = r
	}
	// Store the service's decisions even if ctx has ended.
	stored, err := w.config.Outbox.save(context.WithoutCancel(ctx), c.token, items)
	if err != nil {
		return err
	}
	for k, r := range reports {
		if stored[k] {
			w.config.Report(r)
		} else {
			b.Lost++
		}
	}
	b.Took = w.config.Now().Sub(began)
	w.config.Batch(b)
	return nil
}

// pauseOf is the wait after a failure.
func pauseOf(b *client.Backoff, err error) time.Duration {
	pause := min(b.Next(err), longestPause)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Code == domain.RegistrationQuotaExhausted {
		return min(pause, quotaPause)
	}
	return pause
}
