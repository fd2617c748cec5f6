package clientcmd

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/monitor"
)

func (a *app) monitorCommand() *cobra.Command {
	w := logWatch{app: a}
	c := manual().Command("monitor")
	trustedFile := c.Flags().String(
		"trusted-keys", "", "trusted-keys file with logKeys, obtained through a channel you trust",
	)
	c.Flags().StringVar(&w.state, "state", "", "file that keeps the last checkpoint; created if it does not exist")
	kept := c.Flags().StringArray(
		"evidence", nil,
		"saved evidence, evidence report or .tlog-proof whose inclusion proof the log must be consistent with (repeatable)",
	)
	c.Flags().BoolVar(&w.follow, "follow", false, "go on watching")
	c.Flags().DurationVar(&w.every, "every", 10*time.Second, "interval between checks with --follow, 1s or more")
	c.Flags().IntVar(
		&w.monitor.Witnesses, "require-witnesses", 0, "number of pinned witnesses that must have cosigned the checkpoint",
	)
	c.Flags().BoolVar(&w.asJSON, "json", false, "print JSON, one object per line")
	cli.Require(c, "trusted-keys", "state")
	c.RunE = func(c *cobra.Command, args []string) error {
		if w.every < time.Second {
			return say.Errorf("--every must be 1s or more")
		}
		base, err := client.ParseBaseURL(args[0])
		if err != nil {
			return say.Errorf("URL: %w", err)
		}
		trusted, err := keyfiles.ReadTrusted(*trustedFile)
		if err != nil {
			return err
		}
		if len(trusted.LogKeys()) == 0 {
			return say.Errorf("--trusted-keys: %s has no log key (logKeys)", *trustedFile)
		}
		if n := len(trusted.Witnesses()); n == 0 && w.monitor.Witnesses > 0 {
			return say.Errorf("--require-witnesses: %s has no witnessKeys, so no witness can be counted", *trustedFile)
		} else if w.monitor.Witnesses < 0 || w.monitor.Witnesses > n {
			return say.Errorf("--require-witnesses must be from 0 to %d, the number of witnessKeys in %s", n, *trustedFile)
		}
		for _, path := range *kept {
			k, err := a.keptCheckpoint(c.Context(), path, trusted)
			if err != nil {
				return say.Errorf("--evidence: %w", err)
			}
			w.kept = append(w.kept, k)
		}
		service, err := client.New(client.Config{
			BaseURL: base, Timeout: 20 * time.Second, Name: Name, Language: a.Language(),
		})
		if err != nil {
			return err
		}
		defer service.Close()
		w.monitor.Client, w.monitor.Trusted, w.monitor.Now, w.monitor.Wait = service, trusted, a.Now, wait.For
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return w.run(ctx)
	}
	return c
}

// keptCheckpoint returns the checkpoint in what integrity verify reads, after verifying its inclusion proof. Errors
// name the file.
func (a *app) keptCheckpoint(ctx context.Context, path string, trusted *evidence.TrustedKeys) (monitor.Kept, error) {
	verify, err := a.readEvidence(ctx, path)
	if err != nil {
		return monitor.Kept{}, err
	}
	f, err := verify(trusted, evidence.Options{Now: a.Now(), RequireInclusion: true})
	if err == nil && f.Inclusion != evidence.Valid {
		err = say.Errorf("%s: %s", path, say.Join(f.Reasons, "; "))
	}
	return monitor.Kept{Name: path, Note: f.Checkpoint}, err
}

// logWatch is one run of the command.
type logWatch struct {
	*app
	monitor        monitor.Monitor
	kept           []monitor.Kept // from saved evidence, in addition to the state file
	state          string
	follow, asJSON bool
	every          time.Duration
	stamps         stampWatch
}

// maxStampPages is how many pages of tokens one check reads, so that an endless list cannot block the monitor.
const maxStampPages = 100

// stampWatch is the progress of checking the tokens of pinned authorities.
type stampWatch struct {
	after           int64 // the size of the last tree whose tokens were checked
	checked, passed int
	more            bool // more tokens remain for the next check
	newest          map[string]time.Time
}

// LogState is the state file: the last good checkpoint.
type LogState struct {
	Version    int    `json:"version"`    // 1
	Checkpoint string `json:"checkpoint"` // the complete signed note
	CheckedAt  string `json:"checkedAt"`
	// StampedSize is the size of the largest tree whose timestamp tokens were checked. Stamped is the time of the newest
	// token, by authority.
	StampedSize int64                `json:"stampedSize,omitempty"`
	Stamped     map[string]time.Time `json:"stamped,omitempty"`
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
				if n := len(seen.Witnessed); n < w.monitor.Witnesses {
					few := say.Sentencef(
						"only %d of the %d required witnesses have cosigned the checkpoint of %d entries; this is no sign "+
							"of rewritten history: a witness may be unreachable or slow",
						n, w.monitor.Witnesses, seen.Size,
					)
					if !w.follow {
						return cli.Negativef("TOO FEW WITNESSES: %s", few)
					}
					_, _ = fmt.Fprintln(w.Errs, "integrity:", w.Say(few))
				}
			}
			last, backoff = seen.Note, client.Backoff{}
		case errors.As(err, &alarm):
			return w.raise(alarm)
		case !w.follow:
			return say.Errorf("it could not be checked, which says nothing about the log: %w", err)
		case ctx.Err() == nil:
			wait = max(wait, backoff.Next(err))
			_, _ = fmt.Fprintln(w.Errs, "integrity:", w.Sayf(
				"it could not be checked: %v; trying again in %s", err, wait.Round(time.Second),
			))
		}
		if !w.follow || w.monitor.Wait(ctx, wait) != nil {
			return nil //nolint:nilerr // with --follow outages were already reported, and an interrupt is not a failure
		}
	}
}

// read returns the stored checkpoint, or an empty string before the first one.
func (w *logWatch) read() (string, error) {
	text, err := keyfiles.ReadFile(w.state)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", say.Errorf("--state: %w", err)
	}
	var s LogState
	if err := json.Unmarshal(text, &s); err != nil || s.Version != 1 || s.Checkpoint == "" {
		return "", say.Errorf("--state: %s was not written by this command", w.state)
	}
	w.stamps.after, w.stamps.newest = s.StampedSize, s.Stamped
	return s.Checkpoint, nil
}

// look checks the log once and stores a checkpoint only if it passed every check.
func (w *logWatch) look(ctx context.Context, last string) (seen monitor.Seen, err error) {
	kept := w.kept
	if last != "" {
		kept = append([]monitor.Kept{{Name: w.state, Note: last}}, kept...)
	}
	stamps := w.stamps
	for range maxStampPages {
		var page monitor.Stamped
		if len(w.monitor.Trusted.Authorities()) > 0 {
			if page, err = w.monitor.Stamped(ctx, stamps.after); err != nil {
				return seen, err
			}
			stamps.take(page)
		}
		// The tokens were fetched before the checkpoint, so the log must contain each of their checkpoints.
		if seen, err = w.monitor.Check(ctx, append(slices.Clip(kept), page.Kept...)); err != nil {
			return seen, err
		}
		if !page.More {
			break
		}
	}
	unchanged := seen.Note == last && stamps.after == w.stamps.after
	w.stamps = stamps
	if unchanged {
		return seen, nil
	}
	text, err := json.MarshalIndent(
		LogState{1, seen.Note, evidence.FormatTime(w.Now()), stamps.after, stamps.newest}, "", "  ",
	)
	if err != nil {
		return seen, err
	}
	return seen, keyfiles.Replace(w.state, append(text, '\n'), 0o644)
}

// take records a page of checked tokens.
func (s *stampWatch) take(page monitor.Stamped) {
	newest := maps.Clone(s.newest)
	if newest == nil {
		newest = map[string]time.Time{}
	}
	for authority, at := range page.Newest {
		if at.After(newest[authority]) {
			newest[authority] = at
		}
	}
	s.after, s.newest, s.checked, s.passed = page.Next, newest, s.checked+len(page.Kept), s.passed+page.Passed
	s.more = page.More
}

func (w *logWatch) tell(seen monitor.Seen, first bool) error {
	now, outcome := evidence.FormatTime(w.Now()), "consistent"
	if first {
		outcome = "first"
	}
	if w.asJSON {
		newest := map[string]string{}
		for authority, at := range w.stamps.newest {
			newest[authority] = evidence.FormatTime(at)
		}
		return cli.WriteJSON(w.Out, struct {
			Result      string      `json:"result"` // "first" or "consistent"
			Origin      string      `json:"origin"`
			Size        int64       `json:"size"`
			Root        string      `json:"root"`
			Witnesses   []string    `json:"witnesses"`   // names on cosignatures, not all of which are checked
			Witnessed   []string    `json:"witnessed"`   // pinned witnesses with a valid cosignature
			WitnessKeys int         `json:"witnessKeys"` // number of pinned witnesses
			Evidence    int         `json:"evidence"`    // number of saved proofs that the log is consistent with
			Timestamps  stampReport `json:"timestamps"`
			CheckedAt   string      `json:"checkedAt"`
		}{
			outcome, seen.Origin, seen.Size, seen.Root.String(), append([]string{}, seen.Witnesses...),
			append([]string{}, seen.Witnessed...),
			len(w.monitor.Trusted.Witnesses()), len(w.kept),
			stampReport{w.stamps.checked, w.stamps.passed, w.stamps.after, w.stamps.more, newest}, now,
		}, "")
	}
	words := []say.Sentence{say.Sentencef("consistent with the last checkpoint")}
	if first {
		words[0] = say.Sentencef("stored as the first checkpoint")
	}
	if len(w.kept) > 0 {
		words = append(words, say.Sentencef("consistent with the saved evidence (%d)", len(w.kept)))
	}
	if m := len(w.monitor.Trusted.Witnesses()); m > 0 {
		words = append(words, say.Sentencef("witnessed: %d of %d", len(seen.Witnessed), m))
	}
	if len(w.monitor.Trusted.Authorities()) > 0 {
		words = append(words, w.stamps.words(w.Now())...)
	}
	_, err := fmt.Fprintf(w.Out, "%s  %s\n", now, w.Sayf(
		"%s has %d entries, root %s: %s", seen.Origin, seen.Size, seen.Root.String(), say.Join(words, "; "),
	))
	return err
}

// stampReport is the part of the JSON output about timestamp tokens.
type stampReport struct {
	Checked     int               `json:"checked"`     // stamped checkpoints found in the log by this run
	Passed      int               `json:"passed"`      // tokens of authorities that are not pinned
	StampedSize int64             `json:"stampedSize"` // size of the largest tree with a token
	More        bool              `json:"more"`        // more tokens remain for the next check
	Newest      map[string]string `json:"newest"`      // genTime of the newest token, by authority
}

// words describes the checked tokens and the age of the newest.
func (s stampWatch) words(now time.Time) []say.Sentence {
	stamped := []say.Sentence{say.Sentencef("contains %d more stamped checkpoints", s.checked)}
	for _, authority := range slices.Sorted(maps.Keys(s.newest)) {
		age := now.Sub(s.newest[authority]).Round(time.Second)
		stamped = append(stamped, say.Sentencef("the newest %s old according to %s", age, authority))
	}
	words := []say.Sentence{say.Sentencef("%s", say.Join(stamped, ", "))}
	if s.more {
		words = append(words, say.Sentencef("more tokens remain for the next check"))
	}
	if s.passed > 0 {
		words = append(words, say.Sentencef("skipped %d tokens that no pinned authority vouches for", s.passed))
	}
	return words
}

// raise reports an alarm and stores its proof in a file named after its content's hash.
func (w *logWatch) raise(alarm *monitor.AlarmError) error {
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
	kept := say.Sentencef("the checkpoints are kept in %s", path)
	if err := keyfiles.WriteNew(path, append(text, '\n'), 0o644); err != nil && !errors.Is(err, fs.ErrExist) {
		kept = say.Sentencef("the checkpoints could NOT be kept: %v", err)
	}
	if w.asJSON {
		if err := cli.WriteJSON(w.Out, report, ""); err != nil {
			return err
		}
	}
	return cli.Negativef("ALARM: %w\n  %s", alarm, kept)
}
