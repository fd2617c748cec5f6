package eventstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
)

// TestConnectionCutDuringCommit: whether the connection breaks before or after the commit, the caller gets 503, nothing
// is retried, and sending the same declaration again leaves exactly one record.
func TestConnectionCutDuringCommit(t *testing.T) {
	for name, where := range map[string]cut{"before the server saw it": cutBefore, "after the server did it": cutAfter} {
		t.Run(name, func(t *testing.T) {
			l := ledgertest.New(t)
			o := l.Organization(t, 0, domain.InternalPlan)
			p := newProxy(t, l.URL)
			process := l.Process(t, p.url)
			warm := l.Register(t, o, o.Declaration("warm", 1, "x"))
			if err := process.Do(context.Background(), warm); err != nil {
				t.Fatal(err)
			}

			p.next.Store(int32(where))
			first := l.Register(t, o, o.Declaration("a", 1, "x"))
			err := process.Do(context.Background(), first)
			var refusal *domain.Error
			if !errors.As(err, &refusal) || refusal.Code != domain.TemporarilyUnavailable || p.cuts.Load() != 1 {
				t.Fatalf("answer %v after %d cuts, want 503 after one", err, p.cuts.Load())
			}
			// This waits for the shard's lock, so the first outcome is decided by then.
			again := l.Register(t, o, o.Declaration("a", 1, "x"))
			l.Must(t, again)
			if committed := where == cutAfter; again.Replayed != committed {
				t.Errorf("replayed is %t, want %t", again.Replayed, committed)
			}
			// The same command again: finding its own public id is its success.
			if where == cutAfter {
				l.Must(t, first)
				if first.Replayed {
					t.Error("a registration that finds its own public id is no replay")
				}
			}
			l.Audit(t)
			if n := registrations(l.Events(t, 0)); n != 2 {
				t.Errorf("%d registrations in the log, want 2", n)
			}
		})
	}
}

const frozenVariable = "LEDGER_TEST_FROZEN"

// TestFrozenProcess stops (SIGSTOP) one of two processes between its two round trips, while it holds the shard's lock.
// The other continues; the frozen one resumes without its lock, and nothing is lost or duplicated.
func TestFrozenProcess(t *testing.T) {
	if arguments := os.Getenv(frozenVariable); arguments != "" {
		frozenProcess(t, arguments)
		return
	}
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	child := exec.Command(os.Args[0], "-test.run=^TestFrozenProcess$", "-test.v")
	child.Env = append(
		os.Environ(), frozenVariable+"="+strings.Join([]string{l.URL, o.ID.String(), o.Key.ID.String()}, " "),
	)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the child was to stop itself: %v, %v", status, err)
	}
	for i := range 20 {
		c := l.Register(t, o, o.Declaration("while-frozen", int32(i+1), "x"))
		for {
			err := l.Do(context.Background(), c)
			if err == nil {
				break
			}
			var refusal *domain.Error
			if !errors.As(err, &refusal) || refusal.Code != domain.TemporarilyUnavailable {
				t.Fatal(err)
			}
		}
	}
	if err := syscall.Kill(child.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	told := ""
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "outcome ") {
			told = lines.Text()
		}
	}
	if err := child.Wait(); err != nil {
		t.Fatalf("child: %v", err)
	}
	if told != "outcome accepted" {
		t.Errorf("the frozen process got %q", told)
	}
	l.Audit(t)
	if n := registrations(l.Events(t, 0)); n != 21 {
		t.Errorf("%d registrations in the log, want 21", n)
	}
}

func frozenProcess(t *testing.T, arguments string) {
	parts := strings.Fields(arguments)
	organization, err := domain.ParseID[domain.OrganizationID](parts[1])
	if err != nil {
		t.Fatal(err)
	}
	key, err := domain.ParseID[domain.KeyID](parts[2])
	if err != nil {
		t.Fatal(err)
	}
	l := ledgertest.Attach(t, parts[0])
	o := ledgertest.Organization{
		ID: organization, Company: domain.Company{Reference: "company-1"}, Key: domain.APIKey{ID: key},
	}
	calls := 0
	process := l.Process(t, l.URL, func(c *eventstore.Config) {
		c.Clock = eventstore.NewClock(eventstore.ClockConfig{Now: func() time.Time {
			// The clock is read for the baseline, and in a group at its start, for the load, and for the decision: the fourth
			// reading is between the round trips.
			if calls++; calls == 4 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			}
			return time.Now()
		}})
	})
	// Its connection is lost, and with it the answer. If the command gets 503, send the same command again.
	command := l.Register(t, o, o.Declaration("frozen", 1, "x"))
	for range 3 {
		if err = process.Do(context.Background(), command); err == nil {
			fmt.Println("outcome accepted")
			return
		}
	}
	fmt.Println("outcome", err)
}
