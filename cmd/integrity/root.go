package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"integrityledger/cmd/analyzer"
	"integrityledger/domain"
	"integrityledger/handlers"
)

// Exit codes (contract section 9).
const (
	exitOK       = 0
	exitNegative = 1 // the answer is no: refused, different, not verified
	exitFailed   = 2 // it could not be done, so there is no answer
)

// negative is an answer that was given and is no. An empty text means that the answer stands on standard output already.
type negative struct{ text string }

func (n negative) Error() string { return n.text }

// app is what every command may use of the world outside.
type app struct {
	out, errs io.Writer // data; errors, progress and logs
	environ   []string
	now       func() time.Time
	random    io.Reader
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.errs)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		_, _ = fmt.Fprintln(a.errs, "integrity:", err)
		var refused *domain.Error
		if errors.As(err, &refused) {
			for _, f := range refused.Fields {
				_, _ = fmt.Fprintf(a.errs, "  %s %s\n", f.Pointer, f.Message)
			}
		}
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var no negative
	var refused *domain.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &no):
		return exitNegative
	case errors.As(err, &refused) && refused.Code != domain.TemporarilyUnavailable:
		return exitNegative
	default:
		return exitFailed
	}
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "integrity",
		Short: "Integrity Ledger: register the SHA-256 of final files, and let anyone check a copy",
		Long: "Integrity Ledger registers the SHA-256 of the final bytes of a file, declared by an authenticated organization,\n" +
			"and lets anyone compare a copy later. Registering and comparing send the hash, never the file;\n" +
			"only certification (artifacts, reviews and certificates) receives it.\n\n" +
			"Exit codes: 0 success, 1 a negative answer, 2 it could not be done.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = handlers.ReadBuild().String()
	root.SetVersionTemplate("integrity {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	groups := []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"server", "The service", []*cobra.Command{a.serveCommand(), a.migrateCommand(), a.versionCommand()}},
		{"operator", "Operators (need the database)", []*cobra.Command{
			a.organizationCommand(), a.memberCommand(), a.keyCommand(), a.companyCommand(), a.keysCommand(), a.replayCommand(), a.auditCommand(), a.exportCommand(), a.rebuildCommand(), a.logCommand(), a.distributeCommand(),
			a.backupCommand(), a.restoreCommand(), a.doctorCommand(), a.clockCommand(), a.benchCommand(),
		}},
		{"client", "Origin systems and people (use the API)", []*cobra.Command{
			a.reserveCommand(), a.registerCommand(), a.compareCommand(), a.evidenceCommand(), a.verifyCommand(), a.monitorCommand(), a.revokeCommand(), a.changesCommand(), a.reconcileCommand(),
			a.manifestCommand(), a.originDemoCommand(),
		}},
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(analysisChildCommand())
	return root
}

// analysisChildCommand is what cmd/analyzer starts this program as; nobody else has a use for it.
func analysisChildCommand() *cobra.Command {
	return &cobra.Command{
		Use: analyzer.Command, Hidden: true, Args: arguments(0, 0),
		Run: func(*cobra.Command, []string) { os.Exit(analyzer.Child()) },
	}
}

// group is a command that only holds others: alone, or with a word that is none of them, it is an error.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("one of the commands of %q was expected; see %s --help", c.CommandPath(), c.CommandPath())
			}
			return fmt.Errorf("%q is no command of %q; see %s --help", args[0], c.CommandPath(), c.CommandPath())
		},
	}
	c.AddCommand(commands...)
	return c
}

// arguments says what a command line must look like.
func arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%q was expected; see %s --help", c.UseLine(), c.CommandPath())
		}
		return nil
	}
}

// require makes flags without which the command means nothing.
func require(c *cobra.Command, names ...string) {
	for _, name := range names {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // a name that the command has not defined
		}
	}
}

// print writes v as indented JSON where asked for, else the text.
func (a *app) print(asJSON bool, v any, text string) error {
	if asJSON {
		return writeJSON(a.out, v, "  ")
	}
	_, err := io.WriteString(a.out, text)
	return err
}

// writeJSON keeps <, > and & as they are: the output is for machines and people, not for HTML.
func writeJSON(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// requestID names one run of a command in the history.
func (a *app) requestID() string { return "cli-" + rand.Text() }
