package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/outbound"
	"integrityledger/eventstore/transparency"
)

// child is a process of the measured program or of this one. Its log goes to a file, like an operator's.
type child struct {
	name, base, log, metrics string
	cmd                      *exec.Cmd
	end                      context.CancelFunc
	exited                   chan struct{}
}

// start starts a program with --listen and a free local port, and returns when it answers. The program is stopped at
// the end of the run. Our INTEGRITY_ variables do not reach it, except the log level.
func (r *run) start(ctx context.Context, name, program string, environ []string, args ...string) (*child, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	return r.startAt(ctx, address, name, program, environ, append(args, "--listen", address), func() error {
		_, err := fetch(ctx, "http://"+address+"/readyz")
		return err
	})
}

// startAt is start for a program whose args name the address. It waits until ready returns no error.
func (r *run) startAt(
	ctx context.Context, address, name, program string, environ, args []string, ready func() error,
) (*child, error) {
	c := &child{name: name, base: "http://" + address, log: filepath.Join(r.Dir, name+".log"), exited: make(chan struct{})}
	logFile, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	c.end, c.cmd = end, exec.CommandContext(life, program, args...) //nolint:gosec // ours
	c.cmd.Dir, c.cmd.Env, c.cmd.Stderr = r.Dir, append(foreignEnviron(), environ...), logFile
	c.cmd.Cancel, c.cmd.WaitDelay = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }, 45*time.Second
	// A separate process group: ^C at the terminal is for us. The kernel ends the process with the thread that forked it,
	// which is Run's.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // the result is in ProcessState
		close(c.exited)
	}()
	r.children, r.closers = append(r.children, c), append(r.closers, c.stop)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		select {
		case <-c.exited:
			return false, errors.New("it ended")
		default:
			return ready() == nil, nil
		}
	}); err != nil {
		return nil, fmt.Errorf("%s is not ready: %w: %s", name, err, c.lastWords())
	}
	return c, nil
}

func foreignEnviron() []string {
	var environ []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "INTEGRITY_") || strings.HasPrefix(entry, "INTEGRITY_LOG_LEVEL=") {
			environ = append(environ, entry)
		}
	}
	return environ
}

// fetch gets a small answer with status 200.
func fetch(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := outbound.New(outbound.Config{Answer: 16 << 20})
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %d: %.300s", url, resp.StatusCode, body)
	}
	return body, err
}

// lastWords returns the end of the process's log.
func (c *child) lastWords() string {
	text, _ := os.ReadFile(c.log) // used only to explain another error
	return string(text[max(0, len(text)-1000):])
}

// stop asks the process to finish, and waits until it has ended.
func (c *child) stop() error {
	c.end()
	<-c.exited
	if state := c.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%s: %s: %s", c.name, state, c.lastWords())
	}
	return nil
}

// command runs the program on the lab's database and parses the last JSON value of its output.
func (r *run) command(ctx context.Context, to any, args ...string) error {
	c := exec.CommandContext(ctx, r.Integrity, args...) //nolint:gosec // the measured program
	c.Env, c.Stderr = append(foreignEnviron(), r.environ()...), os.Stderr
	out, err := c.Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil && d.More(); {
		err = d.Decode(to)
	}
	if err != nil {
		return fmt.Errorf("integrity %s: %w: %.1000s", strings.Join(args, " "), err, out)
	}
	return nil
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

const (
	targetIdle = "idle service, CPU of service and database, of a core"
	targetSoak = "registrations/s of the last minute : of the first"

	memoryConcurrency = 1024
	idleLeast         = 10 * time.Second // /proc counts hundredths of a second
	quietWait         = 30 * time.Second
	quietWindow       = 500 * time.Millisecond
	quietShare        = 0.06 // of a core
)

// settle waits for work left from earlier, so that it is not counted with the next measurement: the transparency tree
// has every event, no webhook delivery is queued, changed pages are on disk, and services and database are idle. note
// describes work that has not finished after half a minute.
func (r *run) settle(ctx context.Context) (note string, err error) {
	if r.Server != nil {
		if err := errors.Join(r.lab.vacuum(ctx), r.lab.exec(ctx, "CHECKPOINT")); err != nil {
			return "", err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	var share float64
	spent, at := time.Duration(0), time.Now()
	err = poll(waiting, quietWindow, func() (bool, error) {
		left, err := r.lab.left(ctx)
		if err != nil {
			return false, err
		}
		now, err := r.background()
		share = float64(now-spent) / float64(time.Since(at))
		spent, at = now, time.Now()
		note = fmt.Sprintf("not quiet after %s: %.0f %% of a core busy%s", quietWait, 100*share, left)
		return left == "" && share <= quietShare, err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return note, nil
	}
	return "", err
}

// left describes the work still to do for past registrations; empty: none.
func (l *lab) left(ctx context.Context) (what string, err error) {
	status, err := transparency.ReadStatus(ctx, l.read)
	if err != nil {
		return "", err
	}
	var deliveries int64
	if err := l.read.QueryRow(ctx, "SELECT count(*) FROM webhook_deliveries").Scan(&deliveries); err != nil {
		return "", err
	}
	if leaves := status.Events - status.Published; leaves > 0 {
		what = fmt.Sprintf(", %d leaves of the tree to do", leaves)
	}
	if deliveries > 0 {
		what += fmt.Sprintf(", %d webhook deliveries to do", deliveries)
	}
	return what, nil
}

// background returns the processor time of all services and the database.
func (r *run) background() (total time.Duration, err error) {
	if r.Server != nil {
		total, err = treeCPU(r.Server.PID())
	}
	for _, c := range r.children {
		own, _, _, spentErr := spentBy(c.cmd.Process.Pid)
		total, err = total+own, errors.Join(err, spentErr)
	}
	return total, err
}

// idle measures the processor time of the service and its database without requests.
func (r *run) idle(ctx context.Context) error {
	if r.Server == nil {
		r.measured[targetIdle] = measurement{missing: cpuUnknown}
		return nil
	}
	length := max(floodRounds*r.Duration, idleLeast)
	r.Progress(fmt.Sprintf("an idle service for %s", length))
	note, err := r.settle(ctx)
	if err != nil {
		return err
	}
	before, err := r.background()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, length); err != nil {
		return err
	}
	after, err := r.background()
	r.measured[targetIdle] = measurement{
		value: 100 * float64(after-before) / float64(time.Since(began)),
		note:  strings.TrimPrefix(note+fmt.Sprintf("; over %s", length), "; "),
	}
	return err
}

// memory measures a fresh service's peak resident memory while many callers register at once.
func (r *run) memory(ctx context.Context) error {
	r.Progress(fmt.Sprintf("memory of the service under c = %d", memoryConcurrency))
	service, err := r.serve(ctx, "memory")
	if err != nil {
		return err
	}
	round, err := r.registering(service, "memory", memoryConcurrency, r.lab.many).round(
		ctx, max(r.Duration, 2*time.Second),
	)
	if err != nil {
		return err
	}
	peak, err := residentPeak(service.cmd.Process.Pid)
	r.measured[targetMemory] = measurement{value: float64(peak) / 1e6,
		note: fmt.Sprintf("most resident memory (VmHWM) of a fresh process, at %.0f registrations/s", round.PerSecond)}
	return err
}

// Soak is a long run over HTTP, cut into slices of a minute (or of half of the run if it is shorter than two minutes).
type Soak struct {
	Concurrency int         `json:"concurrency"`
	Slices      []SoakSlice `json:"slices"`
}

// SoakSlice is one slice.
type SoakSlice struct {
	Length time.Duration `json:"lengthNanoseconds"`
	Round
	ResidentPeak uint64 `json:"residentPeakBytes"` // of the service, since its start
}

func (r *run) soak(ctx context.Context, result *Result) error {
	c := r.registering(r.service, httpBusy, r.Concurrency, r.lab.many)
	if _, err := c.round(ctx, min(2*time.Second, r.Soak)); err != nil {
		return err
	}
	s := &Soak{Concurrency: r.Concurrency}
	length := min(time.Minute, r.Soak/2)
	for i := range int(r.Soak / length) {
		round, err := r.measureOne(ctx, c, length, i == 0)
		if err != nil {
			return fmt.Errorf("soak, c = %d: %w", r.Concurrency, err)
		}
		peak, err := residentPeak(r.service.cmd.Process.Pid)
		if err != nil {
			return err
		}
		s.Slices = append(s.Slices, SoakSlice{length, round, peak})
		r.Progress(fmt.Sprintf("%s of %s: %.0f registrations/s, p50 %s, p99 %s, service at most %.0f MB",
			time.Duration(i+1)*length, r.Soak,
			round.PerSecond, shortDuration(round.P50), shortDuration(round.P99), float64(peak)/1e6))
	}
	first, last := s.Slices[0], s.Slices[len(s.Slices)-1]
	slower := last.PerSecond / first.PerSecond
	r.measured[targetSoak], result.Soak = measurement{
		value: slower, wall: slower, perSecond: last.PerSecond, note: fmt.Sprintf("c = %d", s.Concurrency),
	}, s
	return nil
}

const (
	targetWebhooks = "webhook deliveries to a local receiver"

	webhookReplay = 10_000 // deliveries that one request queues
	webhookPace   = 2 * time.Millisecond
	webhookTimed  = 5 * time.Second  // of registrations at that pace, timed until they arrive at the receiver
	webhookWait   = 10 * time.Minute // longer than the wait after a second failed attempt
)

// webhooks measures how fast the service drains a queue to one local receiver, and how long an event takes from its
// decision to its arrival at 500 events a second.
func (r *run) webhooks(ctx context.Context) error {
	r.Progress(fmt.Sprintf("webhooks: %d deliveries to a local receiver", webhookReplay))
	// One per event, from its occurredAt; larger than the number of events.
	ways := make(chan time.Duration, 2*webhookReplay)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := time.Now()
		var event struct{ OccurredAt time.Time }
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			http.Error(w, "no event", http.StatusBadRequest)
			return
		}
		ways <- at.Sub(event.OccurredAt)
	}))
	defer receiver.Close()
	arrive := func(n int) (list []time.Duration, err error) {
		ctx, cancel := context.WithTimeout(ctx, webhookWait)
		defer cancel()
		for len(list) < n {
			select {
			case way := <-ways:
				list = append(list, way)
			case <-ctx.Done():
				return nil, fmt.Errorf("webhooks: %d of %d deliveries arrived: %w", len(list), n, ctx.Err())
			}
		}
		return list, nil
	}
	o := r.lab.one[0]
	ledger, stop, err := r.lab.open(ctx, 0)
	if err != nil {
		return err
	}
	defer stop()
	// The organization already has as many events as there will be deliveries.
	for range webhookReplay / batchSize {
		if err := r.lab.register(ctx, ledger, o, batchSize); err != nil {
			return err
		}
	}
	types := domain.MaskOf([]domain.EventType{domain.RecordRegistered})
	create, _ := domain.NewCreateWebhook(
		domain.CreateWebhook{Origin: o.origin(), URL: receiver.URL, Types: types}, r.secretKey, time.Now(),
	)
	if err := ledger.Do(ctx, create); err != nil {
		return err
	}
	id := create.Outcome.ID
	if err := ledger.Do(
		ctx, &domain.SetWebhookAccess{Origin: o.origin(), Company: o.company, Webhook: id, Enabled: true},
	); err != nil {
		return err
	}

	c := newClient(r.service, 1)
	c.callers[0] = caller{
		owner: o, path: "/api/v1/integrity/webhooks/" + id.String() + "/replay",
		body: []byte(`{"fromSequence":1,"dryRun":false}`),
	}
	began := time.Now()
	if _, err := c.send(ctx, 0, http.MethodPost, http.StatusAccepted); err != nil {
		return err
	}
	if _, err := arrive(webhookReplay); err != nil {
		return err
	}
	rate := webhookReplay / time.Since(began).Seconds()
	timed, err := load{
		workers: 16, pace: webhookPace, call: r.registering(r.service, "webhooks", 16, r.lab.one).call,
	}.lasting(ctx, webhookTimed)
	if err != nil {
		return err
	}
	list, err := arrive(int(timed.Done))
	if err != nil {
		return err
	}
	slices.Sort(list)
	r.measured[targetWebhooks] = measurement{value: rate,
		note: fmt.Sprintf("a queue of %d drained, queueing included; decision to arrival at %d/s: p50 %s, p99 %s",
			webhookReplay, time.Second/webhookPace, shortDuration(percentile(list, 50)), shortDuration(percentile(list, 99)))}
	return ledger.Do(ctx, &domain.DeleteWebhook{Origin: o.origin(), Webhook: id})
}
