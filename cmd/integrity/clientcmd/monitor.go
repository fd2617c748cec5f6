package clientcmd

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/monitor"
)

func (a *app) monitorCommand() *cobra.Command {
	w := logWatch{app: a}
	c := manual().Command("monitor")
	trustedFile := c.Flags().String("trusted-keys", "", "trusted-keys file, with logKeys, that you got through a channel you trust")
	c.Flags().StringVar(&w.state, "state", "", "file of the last checkpoint; it is made where it is missing")
	kept := c.Flags().StringArray("evidence", nil, "saved evidence whose proof of inclusion the log must continue (may be given more than once)")
	c.Flags().BoolVar(&w.follow, "follow", false, "go on watching")
	c.Flags().DurationVar(&w.every, "every", 10*time.Second, "how often to look while following, 1s or more")
	c.Flags().BoolVar(&w.asJSON, "json", false, "print JSON, one object a line")
	cli.Require(c, "trusted-keys", "state")
	c.RunE = func(c *cobra.Command, args []string) error {
		if w.every < time.Second {
			return errors.New("--every must be 1s or more")
		}
		base, err := client.ParseBaseURL(args[0])
		if err != nil {
			return fmt.Errorf("URL: %w", err)
		}
		trusted, err := keyfiles.ReadTrusted(*trustedFile)
		if err != nil {
			return err
		}
		if len(trusted.LogKeys()) == 0 {
			return fmt.Errorf("--trusted-keys: %s names no key of the log (logKeys)", *trustedFile)
		}
		for _, path := range *kept {
			k, err := a.keptCheckpoint(path, trusted)
			if err != nil {
				return fmt.Errorf("--evidence: %s: %w", path, err)
			}
			w.kept = append(w.kept, k)
		}
		service, err := client.New(client.Config{BaseURL: base, Timeout: 20 * time.Second, UserAgent: UserAgent})
		if err != nil {
			return err
		}
		defer service.Close()
		w.monitor = monitor.Monitor{Client: service, Trusted: trusted, Wait: waitFor}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return w.run(ctx)
	}
	return c
}

// waitFor waits, or returns the error of ctx.
func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keptCheckpoint takes the checkpoint out of saved evidence whose proof holds.
func (a *app) keptCheckpoint(path string, trusted *evidence.TrustedKeys) (monitor.Kept, error) {
	receipt, err := readReceipt(path)
	if err != nil {
		return monitor.Kept{}, err
	}
	if f := evidence.Verify(receipt, trusted, evidence.Options{Now: a.Now(), RequireInclusion: true}); f.Inclusion != evidence.Valid {
		return monitor.Kept{}, errors.New(strings.Join(f.Reasons, "; "))
	}
	e, err := evidence.ParseEnvelope(receipt)
	if err != nil {
		return monitor.Kept{}, err
	}
	return monitor.Kept{Name: path, Note: e.Inclusion.Checkpoint}, nil
}

// logWatch is one run of the command.
type logWatch struct {
	*app
	monitor        monitor.Monitor
	kept           []monitor.Kept // besides the state
	state          string
	follow, asJSON bool
	every          time.Duration
}

// LogState is the file of the last good checkpoint.
type LogState struct {
	Version    int    `json:"version"`    // 1
	Checkpoint string `json:"checkpoint"` // the signed note, whole
	CheckedAt  string `json:"checkedAt"`
}

func (w *logWatch) run(ctx context.Context) error {
	var backoff client.Backoff
	last, err := w.read()
	if err != nil {
		return err
	}
	for {
		seen, err := w.look(ctx, last)
		var alarm *monitor.AlarmError
		wait := w.every
		switch {
		case err == nil:
			if !w.follow || seen.Note != last {
				if err := w.tell(seen, last == ""); err != nil {
					return err
				}
			}
			last, backoff = seen.Note, client.Backoff{}
		case errors.As(err, &alarm):
			return w.shout(alarm)
		case !w.follow:
			return fmt.Errorf("it could not be checked, which says nothing about the log: %w", err)
		case ctx.Err() == nil:
			wait = max(wait, backoff.Next(err))
			_, _ = fmt.Fprintf(w.Errs, "integrity: it could not be checked: %v; trying again in %s\n", err, wait.Round(time.Second))
		}
		if !w.follow || w.monitor.Wait(ctx, wait) != nil {
			return nil //nolint:nilerr // an outage while following was reported, and interrupting is no failure
		}
	}
}

// read answers the last checkpoint, which is empty before the first.
func (w *logWatch) read() (string, error) {
	text, err := os.ReadFile(w.state)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("--state: %w", err)
	}
	var s LogState
	if err := json.Unmarshal(text, &s); err != nil || s.Version != 1 || s.Checkpoint == "" {
		return "", fmt.Errorf("--state: %s is no state of this command", w.state)
	}
	return s.Checkpoint, nil
}

// look checks once and keeps what passed. Nothing is kept of what did not.
func (w *logWatch) look(ctx context.Context, last string) (monitor.Seen, error) {
	kept := w.kept
	if last != "" {
		kept = append([]monitor.Kept{{Name: w.state, Note: last}}, kept...)
	}
	seen, err := w.monitor.Check(ctx, kept)
	if err != nil || seen.Note == last {
		return seen, err
	}
	text, err := json.MarshalIndent(LogState{1, seen.Note, evidence.FormatTime(w.Now())}, "", "  ")
	if err != nil {
		return seen, err
	}
	return seen, keyfiles.Replace(w.state, append(text, '\n'), 0o644)
}

func (w *logWatch) tell(seen monitor.Seen, first bool) error {
	now, outcome := evidence.FormatTime(w.Now()), "consistent"
	if first {
		outcome = "first"
	}
	if w.asJSON {
		return cli.WriteJSON(w.Out, struct {
			Result    string   `json:"result"` // "first" or "consistent"
			Origin    string   `json:"origin"`
			Size      int64    `json:"size"`
			Root      string   `json:"root"`
			Witnesses []string `json:"witnesses"` // whose cosignatures were not checked
			Evidence  int      `json:"evidence"`  // how many proofs the log continues
			CheckedAt string   `json:"checkedAt"`
		}{outcome, seen.Origin, seen.Size, seen.Root.String(), append([]string{}, seen.Witnesses...), len(w.kept), now}, "")
	}
	words := "it continues the last checkpoint"
	if first {
		words = "this is the first checkpoint that is kept"
	}
	if len(w.kept) > 0 {
		words += fmt.Sprintf("; it continues the log of %d saved evidence", len(w.kept))
	}
	_, err := fmt.Fprintf(w.Out, "%s  %s has %d entries, root %s: %s\n", now, seen.Origin, seen.Size, seen.Root, words)
	return err
}

// shout tells of an alarm and keeps its proof in a file whose name is that of its content.
func (w *logWatch) shout(alarm *monitor.AlarmError) error {
	report := struct {
		Result string `json:"result"` // "alarm"
		*monitor.AlarmError
		Service    string `json:"service"`
		DetectedAt string `json:"detectedAt"`
	}{"alarm", alarm, w.monitor.Client.BaseURL(), evidence.FormatTime(w.Now())}
	name := sha256.Sum256([]byte(string(alarm.Kind) + "\n" + alarm.Known + "\n" + alarm.Seen))
	path := fmt.Sprintf("%s.alarm-%x.json", w.state, name[:6])
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	kept := "kept in " + path
	if err := keyfiles.WriteNew(path, append(text, '\n'), 0o644); err != nil && !errors.Is(err, fs.ErrExist) {
		kept = "which could NOT be kept: " + err.Error()
	}
	if w.asJSON {
		if err := cli.WriteJSON(w.Out, report, ""); err != nil {
			return err
		}
	}
	return cli.NegativeError(fmt.Sprintf("ALARM: %s\n  the checkpoints are %s", alarm, kept))
}
