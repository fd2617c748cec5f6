package bench

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestCeilingTables: what a registration writes, and the ceiling does not, is reported.
func TestCeilingTables(t *testing.T) {
	l := testLab(t)
	ctx := context.Background()
	settled := func(want string) {
		t.Helper()
		// Statistics arrive when the connections that made them have ended.
		for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			err := l.ceilingTables(ctx)
			if want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("told %v, not %q", err, want)
			}
		}
	}
	settled("")
	if err := l.exec(ctx, "CREATE TABLE another (n integer); INSERT INTO another SELECT generate_series(1, 1000)"); err != nil {
		t.Fatal(err)
	}
	settled("writes the table another")
}

func TestReadPgbench(t *testing.T) {
	const out = "transaction type: ceiling.sql\nnumber of transactions actually processed: 473\nlatency average = 8.4 ms\n" +
		"initial connection time = 11.9 ms\ntps = 236.861 (without initial connection time)\n"
	round, err := readPgbench(out)
	if err != nil || round.Done != 473*64 || round.PerSecond != 236.861*64 {
		t.Errorf("%+v, %v", round, err)
	}
	if _, err := readPgbench("pgbench: error: connection refused"); err == nil {
		t.Error("nothing was measured, and that is not told")
	}
}
