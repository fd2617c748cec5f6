package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/client/outbox"
)

// originFlags are the flags of origin-demo.
type originFlags struct {
	*clientcmd.Flags
	dir, company, source, serve, trusted string
	documents                            int
	interval, reserve                    time.Duration
	stay, retry, verbose                 bool
}

// OriginCommand creates the command origin-demo.
func OriginCommand(a *cli.App) *cobra.Command {
	c, service := clientcmd.Command("origin-demo")
	f := originFlags{Flags: service}
	c.Flags().StringVar(
		&f.dir, "data-dir", "origin-demo", "directory of the origin system: its database, and the delivered documents",
	)
	c.Flags().StringVar(&f.company, "company", "", "reference of the company")
	c.Flags().StringVar(&f.source, "source", "origin-demo", "reference of the origin system")
	c.Flags().IntVar(&f.documents, "documents", 20, "total number of documents, including earlier runs")
	c.Flags().DurationVar(&f.interval, "interval", 0, "time between two documents, such as 5s")
	c.Flags().DurationVar(
		&f.reserve, "reserve-timeout", 3*time.Second,
		"how long to wait for a document's verification link before issuing it without",
	)
	c.Flags().StringVar(
		&f.serve, "serve", "127.0.0.1:8091", "loopback address of the downloads, printed in the documents",
	)
	c.Flags().StringVar(
		&f.trusted, "trusted-keys", "", "trusted-keys file that verifies evidence before it is stored",
	)
	c.Flags().BoolVar(&f.stay, "stay", false, "keep serving the downloads until interrupted")
	c.Flags().BoolVar(&f.retry, "retry", false, "retry stopped registrations, after correcting their cause")
	c.Flags().BoolVar(&f.verbose, "verbose", false, "print every step")
	cli.Require(c, "company")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if f.documents < 0 || f.interval < 0 || f.reserve < 0 {
			return say.Errorf("--documents, --interval and --reserve-timeout must not be negative")
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err := originDemo(ctx, a, f)
		if err != nil && ctx.Err() != nil && !errors.As(err, new(cli.NegativeError)) {
			return say.Errorf("interrupted; run the same command to continue")
		}
		return err
	}
	return c
}

func originDemo(ctx context.Context, a *cli.App, f originFlags) (err error) {
	service, err := clientcmd.Connect(a, f.Flags)
	if err != nil {
		return err
	}
	defer service.Close()
	var trusted *evidence.TrustedKeys
	if f.trusted != "" {
		if trusted, err = keyfiles.ReadTrusted(f.trusted); err != nil {
			return err
		}
	}
	address, err := netip.ParseAddrPort(f.serve)
	if err != nil || !address.Addr().IsLoopback() || address.Port() == 0 {
		return say.Errorf("--serve must be a loopback address with a port, such as 127.0.0.1:8091")
	}
	// Listen before opening the directory, which stores the address.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.serve)
	if err != nil {
		return say.Errorf("--serve must be a free address: %w", err)
	}
	var printing sync.Mutex
	system := &System{
		Dir: f.dir, Company: f.company, Source: f.source, Public: "http://" + f.serve, Client: service, Trusted: trusted,
		ReserveTimeout: f.reserve, Now: a.Now,
		Report: func(s Step) {
			printing.Lock()
			defer printing.Unlock()
			printStep(a, f, s)
		},
	}
	defer func() { err = errors.Join(err, system.Close()) }()
	if err := system.Open(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: system.Handler(), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		_ = server.Close()
		if stopped := <-served; !errors.Is(stopped, http.ErrServerClosed) {
			err = errors.Join(err, say.Errorf("--serve: %w", stopped))
		}
	}()
	if f.retry {
		n, err := system.outbox.Retry(ctx)
		if err != nil {
			return err
		}
		_, _ = io.WriteString(a.Errs, a.Sayf("integrity: retrying %d stopped registrations\n", n))
	}
	if err := runOrigin(ctx, system, f); err != nil {
		return err
	}
	summary, err := system.Summarize(ctx)
	if err != nil {
		return err
	}
	if err := printSummary(a, f, summary); err != nil {
		return err
	}
	if f.stay {
		_, _ = io.WriteString(a.Errs, a.Sayf("integrity: serving downloads at http://%s until interrupted\n", f.serve))
		select {
		case <-ctx.Done():
		case stopped := <-served:
			served <- stopped // with a cause, unlike a cancelled context
		}
	}
	if summary.Same != summary.Documents || len(summary.Problems) > 0 {
		return cli.NegativeError("")
	}
	return nil
}

// runOrigin emits and registers concurrently, until all documents are emitted and no registration waits.
func runOrigin(ctx context.Context, system *System, f originFlags) error {
	last, err := system.last(ctx)
	if err != nil {
		return err
	}
	last = max(last, f.documents)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	work.Go(func() {
		if err := system.worker.Run(ctx); err != nil {
			cancel(err)
		}
	})
	for number := 1; number <= last; number++ {
		began, err := system.Emit(ctx, number)
		if err != nil {
			cancel(err)
			work.Wait()
			return context.Cause(ctx)
		}
		if began && f.interval > 0 && number < last {
			_ = wait.For(ctx, f.interval)
		}
	}
	system.worker.Finish()
	work.Wait()
	return context.Cause(ctx)
}

// printStep prints the steps that a person follows, or every step with --verbose or --json.
func printStep(a *cli.App, f originFlags, s Step) {
	shown := []string{
		Reserved, NoLink, Delivered, string(outbox.Ambiguous), string(outbox.Found), string(outbox.NotFound),
		string(outbox.Finished), string(outbox.Postponed), string(outbox.Halted),
	}
	switch { // failing to print does not stop the emission
	case f.JSON:
		_ = cli.WriteJSON(a.Out, s, "")
	case f.verbose || slices.Contains(shown, s.Name):
		_, _ = fmt.Fprintf(
			a.Out, "%s  %s v%d  %-10s  %s\n", s.At.Format("15:04:05.000"), s.Document.DocumentReference, s.Document.Version,
			s.Name, a.Say(s.Detail),
		)
	}
}

func printSummary(a *cli.App, f originFlags, s Summary) error {
	if f.JSON {
		return cli.WriteJSON(a.Out, s, "")
	}
	for _, problem := range s.Problems {
		_, _ = fmt.Fprintln(a.Errs, "integrity:", a.Say(problem))
	}
	_, err := io.WriteString(a.Out, a.Sayf(
		"\n%d documents: %d delivered (the slowest %d ms after its allocation), %d with the verification link, %d "+
			"registered with evidence, %d stopped\n"+
			"%d have one SHA-256 at finalization, in the delivered file, in the service's answer and in the evidence\n",
		s.Documents, s.Delivered, s.SlowestMs, s.WithLink, s.Registered, s.Stopped, s.Same,
	))
	return err
}

// Summary counts the documents of the data directory by outcome.
type Summary struct {
	Documents  int `json:"documents"`
	WithLink   int `json:"withLink"`
	Delivered  int `json:"delivered"`
	Registered int `json:"registered"` // answer and evidence are stored
	Stopped    int `json:"stopped"`    // need correction
	// Same counts documents with the same hash everywhere: at finalization, in the stored bytes, in the delivered file, in
	// the service's answer and in the evidence.
	Same int `json:"sameHashEverywhere"`
	// SlowestMs is the longest time from allocation to delivery.
	SlowestMs int64 `json:"slowestMs"`
	// Problems describes one problem per document.
	Problems []say.Sentence `json:"problems"`
}

// Summarize reads everything again and compares the hashes.
func (s *System) Summarize(ctx context.Context) (Summary, error) {
	out := Summary{Problems: []say.Sentence{}}
	last, err := s.last(ctx)
	if err != nil {
		return out, err
	}
	var slowest time.Duration
	for number := 1; number <= last; number++ {
		out.Documents++
		d, err := s.file(ctx, "d.number", number)
		if errors.Is(err, sql.ErrNoRows) {
			continue // allocated but interrupted; the next run emits it
		}
		if err != nil {
			out.Problems = append(out.Problems, say.Sentencef("document %d: %v", number, err))
			continue
		}
		if d.link != "" {
			out.WithLink++
		}
		if !d.deliveredAt.IsZero() {
			out.Delivered++
			slowest = max(slowest, d.deliveredAt.Sub(d.allocatedAt))
		}
		item, err := s.outbox.Find(ctx, s.version(d))
		if err != nil {
			return out, err
		}
		switch {
		case item.Complete:
			out.Registered++
		case item.State == outbox.Conflict, item.State == outbox.Refused, item.Halted:
			out.Stopped++
			out.Problems = append(out.Problems, say.Sentencef("%s: %s", d.reference, item.Problem))
			continue
		default:
			continue
		}
		if problem := s.differs(d, item); problem != nil {
			out.Problems = append(out.Problems, say.Sentencef("%s: %v", d.reference, problem))
			continue
		}
		out.Same++
	}
	out.SlowestMs = slowest.Milliseconds()
	return out, nil
}

// differs names the first place with another hash. The stored bytes need no check here: they were compared when they
// were read.
func (s *System) differs(d issued, item outbox.Item) error {
	delivered, err := os.ReadFile(s.deliveredPath(d))
	if err != nil {
		return err
	}
	envelope, err := evidence.ParseEnvelope(item.Evidence)
	if err != nil {
		return say.Errorf("evidence: %w", err)
	}
	payload, err := evidence.ParseRecordPayload([]byte(envelope.Payload))
	if err != nil {
		return say.Errorf("evidence: %w", err)
	}
	for place, sum := range map[say.Word]string{
		"the delivered file": hexSHA256(delivered), "the declaration": item.Declaration.SHA256,
		"the service's answer": item.Record.SHA256, "the evidence": payload.SHA256.String(),
	} {
		if sum != d.sha256 {
			return say.Errorf("%s has another SHA-256 than the finalized document", place)
		}
	}
	return nil
}
