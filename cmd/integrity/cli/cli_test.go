package cli_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

// TestErrorsCannotControlTerminals: errors quote files of others, and must not control the terminal.
func TestErrorsCannotControlTerminals(t *testing.T) {
	var errs strings.Builder
	a := &cli.App{Errs: &errs}
	command := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		return errors.New("año\x1b[2K\r\u202e,\nnext")
	}}
	if a.Run(t.Context(), command, nil); errs.String() != "integrity: año\\x1b[2K\\r\\u202e,\nnext\n" {
		t.Errorf("%q", errs.String())
	}
}

// TestOutputCannotControlTerminals: output must not control the terminal either, not even with bytes that are not
// UTF-8.
func TestOutputCannotControlTerminals(t *testing.T) {
	var out strings.Builder
	a := &cli.App{Out: &out, Errs: &out}
	command := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		if _, err := a.Out.Write([]byte("\x9b2K")); err != nil {
			return err
		}
		_, err := a.Out.Write([]byte("año\u009b31m\x1b[m\u202e\ufffd\xe2\x82\n"))
		return err
	}}
	if a.Run(t.Context(), command, nil); out.String() != "\\x9b2Kaño\\u009b31m\\u001b[m\\u202e\ufffd\\xe2\\x82\n" {
		t.Errorf("%q", out.String())
	}
}

func TestManual(t *testing.T) {
	m := cli.NewManual(
		"= apikey rotate KEY_ID\nShort.\n\nLong\n\n  1. first\n  2. second\n\n= audit [BUNDLE]\nProve.\n\n= clock " +
			"reset\nReset.\n",
	)
	for name, want := range map[string]struct {
		use, short, long string
		least, most      int
	}{
		"apikey rotate": {"rotate KEY_ID", "Short.", "Long\n\n  1. first\n  2. second", 1, 1},
		"audit":         {"audit [BUNDLE]", "Prove.", "", 0, 1},
		"clock reset":   {"reset", "Reset.", "", 0, 0},
	} {
		c := m.Command(name)
		if c.Use != want.use || c.Short != want.short || c.Long != want.long {
			t.Errorf("%s: %q, %q, %q", name, c.Use, c.Short, c.Long)
		}
		for n := range 4 {
			if err := c.Args(c, strings.Split("abcd", "")[:n]); (err == nil) != (n >= want.least && n <= want.most) {
				t.Errorf("%s with %d arguments: %v", name, n, err)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a command that the manual lacks is made")
		}
	}()
	m.Command("nothing")
}

// TestMissingArgumentsAndFlags: a command line without arguments also names the missing flags, and suggestions have
// lines of their own.
func TestMissingArgumentsAndFlags(t *testing.T) {
	for line, want := range map[string]string{
		"make --size 1": `the command must read "root make NAME [flags]"; required flag(s) "plan" not set; see root make --help`,
		"make x":        `required flag(s) "plan", "size" not set`,
		"mak":           "Did you mean this?\n  make\n",
		"sub cahnge":    "Did you mean this?\n  change\n",
		"sub elsewhere": `see root sub --help` + "\n",
	} {
		command := &cobra.Command{Use: "make NAME", Args: cli.Arguments(1, 1), RunE: func(*cobra.Command, []string) error {
			return nil
		}}
		command.Flags().String("plan", "", "")
		command.Flags().String("size", "", "")
		cli.Require(command, "plan", "size")
		var errs strings.Builder
		root := &cobra.Command{Use: "root", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(command, cli.Group("sub", "", &cobra.Command{Use: "change", RunE: command.RunE}))
		a := &cli.App{Errs: &errs}
		if a.Run(t.Context(), root, strings.Fields(line)); !strings.Contains(errs.String(), want) {
			t.Errorf("%s: %s", line, errs.String())
		}
	}
}
