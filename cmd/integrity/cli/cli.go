// Package cli holds the parts that all commands share: the environment of a command, exit codes, and the formats of
// output and arguments.
package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

func (a *App) Variable(name string) string {
	for _, entry := range a.Environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

func TimeText(t time.Time) string { return evidence.FormatTime(t) }

// TimeOrNull formats a time, or returns nil for a nil time.
func TimeOrNull(t *time.Time) *string {
	if t == nil {
		return nil
	}
	text := TimeText(*t)
	return &text
}

// Exit codes (contract section 9).
const (
	ExitOK       = 0
	ExitNegative = 1 // the answer is negative: refused, different, not verified
	ExitFailed   = 2 // the command failed, so there is no answer
)

// NegativeError is a negative answer. Its text is empty if the answer has already been printed.
type NegativeError string

func (n NegativeError) Error() string { return string(n) }

// App is a command's environment, which tests replace.
type App struct {
	Out, Errs io.Writer // data; errors, progress and logs
	Environ   []string
	Now       func() time.Time
}

func exitCode(err error) int {
	_, no := errors.AsType[NegativeError](err)
	refused, isRefused := errors.AsType[*domain.Error](err)
	switch {
	case err == nil:
		return ExitOK
	case no || isRefused && refused.Code != domain.TemporarilyUnavailable:
		return ExitNegative
	default:
		return ExitFailed
	}
}

// Group returns a command that only has subcommands. Without one, or with an unknown one, it fails, and suggests
// subcommands with similar names.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, SuggestionsMinimumDistance: 2,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return say.Errorf("%q needs a subcommand; see %s --help", c.CommandPath(), c.CommandPath())
			}
			path, near := c.CommandPath(), strings.Join(c.SuggestionsFor(args[0]), "\n  ")
			if near == "" {
				return say.Errorf("unknown command %q for %q; see %s --help", args[0], path, path)
			}
			return say.Errorf(
				"unknown command %q for %q; see %s --help\n\nDid you mean this?\n  %s", args[0], path, path, near,
			)
		},
	}
	c.AddCommand(commands...)
	return c
}

// Arguments checks the number of arguments. Its error shows the expected command line, and the required flags that are
// missing.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil // cobra itself reports missing flags
		}
		if err := c.ValidateRequiredFlags(); err != nil {
			return say.Errorf("the command must read %q; %w; see %s --help", useLine(c), err, c.CommandPath())
		}
		return say.Errorf("the command must read %q; see %s --help", useLine(c), c.CommandPath())
	}
}

// useLine is the command line of a command, whose last word has a language.
func useLine(c *cobra.Command) say.Sentence {
	if line, ok := strings.CutSuffix(c.UseLine(), flagsWord); ok {
		return say.Sentencef("%s%s", line, say.Word(flagsWord))
	}
	return say.Sentencef("%s", c.UseLine())
}

// Require marks flags as required.
func Require(c *cobra.Command, names ...string) {
	for _, name := range names {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // the command has no flag of this name
		}
	}
}

// screen is an output that sends no control sequences to a terminal, although it prints names and answers that others
// wrote. It escapes control characters and those that change the text direction as JSON does, so JSON stays equivalent
// JSON, and also bytes that are not UTF-8. Every command writes whole characters at once.
type screen struct {
	io.Writer
	failed error // the first error; cobra ignores errors when it prints help
}

func (s *screen) Write(text []byte) (int, error) {
	shown := text
	if !utf8.Valid(text) || bytes.ContainsFunc(text, commands) {
		var b bytes.Buffer
		for left := text; len(left) > 0; {
			r, size := utf8.DecodeRune(left)
			switch {
			case r == utf8.RuneError && size == 1: // some terminals interpret the bytes 0x80 to 0x9f
				fmt.Fprintf(&b, `\x%02x`, left[0])
			case commands(r):
				fmt.Fprintf(&b, `\u%04x`, r)
			default:
				b.Write(left[:size])
			}
			left = left[size:]
		}
		shown = b.Bytes()
	}
	if _, err := s.Writer.Write(shown); err != nil {
		err = say.Errorf("standard output: %w", err)
		s.failed = cmp.Or(s.failed, err)
		return 0, err
	}
	return len(text), nil
}

// commands reports whether a terminal might interpret a character instead of showing it.
func commands(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}

// WriteRaw writes bytes unchanged. On a terminal it escapes them like all other output.
func (a *App) WriteRaw(text []byte) error {
	w := a.Out
	if s, ok := w.(*screen); ok && !IsTerminal(w) {
		w = s.Writer
	}
	_, err := w.Write(text)
	return err
}

// Print writes v as indented JSON if asJSON is true, else the text.
func (a *App) Print(asJSON bool, v any, text string) error {
	if asJSON {
		return WriteJSON(a.Out, v, "  ")
	}
	_, err := io.WriteString(a.Out, text)
	return err
}

// Row is a line of a table for people.
type Row struct{ label, value say.Phrase }

// Rowf makes a row of its label and of a value in the form of a sentence.
func Rowf(label say.Word, format string, args ...any) Row {
	return Row{label, say.Sentencef(format, args...)}
}

// Rows writes a table in the language of the locale. The values stand in one column.
func (a *App) Rows(rows ...Row) string {
	width := 0
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(a.Say(r.label)))
	}
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%-*s  %s\n", width, a.Say(r.label), a.Say(r.value))
	}
	return b.String()
}

// WriteJSON does not escape <, > and &: the output is not meant for HTML.
func WriteJSON(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// Visible quotes a text that a terminal would not show unchanged.
func Visible(s string) string {
	if s == "" {
		return "(erased)"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// harmless escapes a message of several lines for a terminal. The message may quote files and answers that others
// wrote.
func harmless(message string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(message, "\n\t", "\n  ") { // cobra indents its suggestions with tabs
		if r != '\n' && !unicode.IsPrint(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func IsTerminal(w io.Writer) bool {
	if s, ok := w.(*screen); ok {
		w = s.Writer
	}
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// RequestID returns the ID under which the history records this run of a command.
func (a *App) RequestID() string { return "cli-" + rand.Text() }

// Person returns the system user who runs the command, and the original user if sudo was used.
func (a *App) Person() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if sudo := a.Variable("SUDO_USER"); sudo != "" && sudo != name {
		name += " (sudo: " + sudo + ")"
	}
	return name
}

// Run executes a command line and returns the exit code. It writes the error to Errs.
func (a *App) Run(ctx context.Context, root *cobra.Command, args []string) int {
	out, ok := a.Out.(*screen)
	if !ok {
		out = &screen{Writer: a.Out}
		a.Out = out
	}
	root.SetArgs(args)
	root.SetOut(a.Out)
	root.SetErr(a.Errs)
	a.translate(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.failed
	}
	if err != nil && err.Error() != "" {
		_, _ = fmt.Fprintln(a.Errs, "integrity:", harmless(a.ErrorText(err)))
		if refused, ok := errors.AsType[*domain.Error](err); ok {
			for _, f := range refused.Fields {
				_, _ = fmt.Fprintf(a.Errs, "  %s %s\n", f.Pointer, a.Say(f.Said()))
			}
		}
	}
	return exitCode(err)
}

// WarnLog returns a log for commands that only report warnings and errors.
func (a *App) WarnLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.Errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Manual holds the help of commands by full name, such as "apikey create".
type Manual map[string]cobra.Command

// NewManual parses the help texts. Each command has a line "= NAME ARGUMENT…", a line with the short help and, if there
// is more to say, an empty line and the long help. Arguments are in capitals, optional ones in brackets.
func NewManual(text string) Manual {
	m := Manual{}
	for _, part := range strings.Split("\n"+text, "\n= ")[1:] {
		use, help, _ := strings.Cut(part, "\n")
		short, long, _ := strings.Cut(help, "\n")
		words := strings.Fields(use)
		first := len(words) // index of the first argument
		for first > 0 && strings.ToLower(words[first-1]) != words[first-1] {
			first--
		}
		m[strings.Join(words[:first], " ")] = cobra.Command{
			Use: strings.Join(words[first-1:], " "), Short: short, Long: strings.TrimSpace(long),
			Args: Arguments(len(words)-first-strings.Count(use, "["), len(words)-first),
		}
	}
	return m
}

// Command creates the named command, without an action.
func (m Manual) Command(name string) *cobra.Command {
	c, found := m[name]
	if !found {
		panic("no help text for the command " + name)
	}
	return annotated(c)
}
