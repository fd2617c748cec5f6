package operator

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

// TestManualDescribesEveryCommand: a command missing from help.txt cannot be created; this test finds help texts
// without a command.
func TestManualDescribesEveryCommand(t *testing.T) {
	shared := &cli.App{Out: io.Discard, Errs: io.Discard}
	made := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		made[strings.TrimPrefix(c.CommandPath(), "integrity ")] = true
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	root := &cobra.Command{Use: "integrity"}
	witness := &cobra.Command{Use: "witness"}
	witness.AddCommand(WitnessPairCommand(shared))
	root.AddCommand(append(Commands(shared), MigrateCommand(shared), witness)...)
	walk(root)
	for name := range manual() {
		if !made[name] {
			t.Errorf("help.txt describes %q, which is no command", name)
		}
	}
}

// TestTrustedKeysAreReadFirst: if the trusted keys cannot be read, the commands that need them open no ledger, and so
// create none.
func TestTrustedKeysAreReadFirst(t *testing.T) {
	for _, words := range [][]string{
		{"export", "--organization", "org_01m7zv4mqaeps8r8k7qpkta000", "--out", "bundle"},
		{"log", "resume", "--fork"},
	} {
		missing := filepath.Join(t.TempDir(), "trusted-keys.json")
		var errs bytes.Buffer
		shared := &cli.App{
			Out: io.Discard, Errs: &errs, Now: time.Now,
			Environ: []string{"INTEGRITY_DATABASE_URL=postgres://127.0.0.1:1/ledger"},
		}
		root := &cobra.Command{Use: "integrity", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(Commands(shared)...)
		if code := shared.Run(t.Context(), root, append(words, "--trusted-keys", missing)); code != cli.ExitFailed ||
			!strings.Contains(errs.String(), missing) {
			t.Errorf("%v: %d %s", words, code, &errs)
		}
	}
}
