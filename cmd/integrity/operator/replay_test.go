package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

// full is an output that accepts nothing, like a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

// TestUnwritableOutputIsReportedOnce: output from the log is buffered, and a flush after a failed write fails with the
// same error.
func TestUnwritableOutputIsReportedOnce(t *testing.T) {
	v := newEvil(t)
	for i := range 20 { // more than the buffer can hold
		v.Must(t, v.Register(t, v.org, v.org.Declaration(fmt.Sprint(strings.Repeat("d", 100), i), 1, "x")))
	}
	for _, args := range [][]string{{"replay"}, {"apikey", "affected", v.org.Key.ID.String(), "--json"}} {
		var errs bytes.Buffer
		a := &cli.App{Out: full{}, Errs: &errs, Now: time.Now, Environ: []string{"INTEGRITY_DATABASE_URL=" + v.URL}}
		root := &cobra.Command{Use: "integrity", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(Commands(a)...)
		if code := a.Run(context.Background(), root, args); code != cli.ExitFailed ||
			strings.Count(errs.String(), "no room") != 1 {
			t.Errorf("%v: exit code %d, %q", args, code, errs.String())
		}
	}
}
