package cli

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/text/language"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// Language is the language of messages that the locale names: the first of LC_ALL, LC_MESSAGES and LANG that is set
// (POSIX, XBD section 8.2). English stands for the locale C and for languages that the program does not speak.
func (a *App) Language() evidence.Language {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if locale := a.Variable(name); locale != "" {
			locale, _, _ = strings.Cut(locale, ".")
			locale, _, _ = strings.Cut(locale, "@")
			if base, _ := language.Make(locale).Base(); base.String() == string(evidence.Spanish) {
				return evidence.Spanish
			}
			break
		}
	}
	return evidence.English
}

// Catalogue has the texts of the language of the locale.
func (a *App) Catalogue() say.Catalogue { return catalogueOf(a.Language()) }

func catalogueOf(l evidence.Language) say.Catalogue {
	if l != evidence.Spanish {
		return say.Catalogue{}
	}
	c := say.Spanish()
	c.Foreign = foreign
	return c
}

// Sayf is a sentence in the language of the locale.
func (a *App) Sayf(format string, args ...any) string {
	if c := a.Catalogue(); !c.IsEnglish() {
		return say.In(c, say.Sentencef(format, args...))
	}
	return fmt.Sprintf(format, args...)
}

// Say is a phrase in the language of the locale.
func (a *App) Say(p say.Phrase) string { return say.In(a.Catalogue(), p) }

// ErrorText is the message of an error in the language of the locale. Words of other programs stay as they are.
func (a *App) ErrorText(err error) string {
	text, _ := a.Catalogue().Error(err)
	return text
}

// negative is a NegativeError whose sentence other languages have.
type negative struct{ error }

// Negative makes err an answer that is no.
func Negative(err error) error { return negative{err} }

// Negativef makes an answer that is no of a sentence (say.Sentence).
func Negativef(format string, args ...any) error { return negative{say.Errorf(format, args...)} }

func (n negative) Unwrap() []error { return []error{n.error, NegativeError("")} }

// Say implements say.Phrase.
func (n negative) Say(c say.Catalogue) (string, bool) { return c.Error(n.error) }

// systemErrors are errors of the operating system that people meet.
var systemErrors = map[syscall.Errno]say.Word{
	syscall.ENOENT: "no such file or directory", syscall.EACCES: "permission denied", syscall.EEXIST: "file exists",
	syscall.EPERM: "operation not permitted", syscall.ENOTDIR: "not a directory", syscall.EISDIR: "is a directory",
	syscall.ENOSPC: "no space left on device", syscall.EROFS: "read-only file system", syscall.EINVAL: "invalid argument",
	syscall.ENOTEMPTY: "directory not empty", syscall.ECONNREFUSED: "connection refused",
	syscall.EADDRINUSE: "address already in use", syscall.ECONNRESET: "connection reset by peer",
	syscall.EPIPE:        "broken pipe",
	syscall.EHOSTUNREACH: "no route to host",
	syscall.ENETUNREACH:  "network is unreachable", syscall.ETIMEDOUT: "connection timed out",
	syscall.ENAMETOOLONG: "file name too long", syscall.ELOOP: "too many levels of symbolic links",
}

// foreign says errors of other packages.
func foreign(c say.Catalogue, err error) (string, bool) {
	switch e := any(err).(type) { // an error that wraps one of these says more
	case syscall.Errno:
		return systemErrors[e].Say(c)
	case *os.SyscallError:
		return c.Error(e.Err)
	case *os.LinkError:
		text, ok := c.Error(e.Err)
		return e.New + ": " + text, ok
	case *net.OpError:
		text, ok := c.Error(e.Err)
		if e.Addr != nil {
			text = e.Addr.String() + ": " + text
		}
		return text, ok
	case *url.Error:
		text, ok := c.Error(e.Err)
		return fmt.Sprintf("%s %q: %s", e.Op, e.URL, text), ok
	case *net.DNSError:
		if e.IsNotFound {
			return say.Sentencef("%s: this machine's name servers know no such name", e.Name).Say(c)
		}
		return say.Sentencef("%s: the name servers did not answer", e.Name).Say(c)
	case *tls.CertificateVerificationError:
		return say.Sentencef("its certificate is not valid: %s", e.Err).Say(c)
	case x509.UnknownAuthorityError:
		return say.Sentencef("no authority that this machine trusts has issued it").Say(c)
	case x509.HostnameError:
		return say.Sentencef("it is not issued for %s", e.Host).Say(c)
	case x509.CertificateInvalidError:
		if e.Reason == x509.Expired {
			return say.Sentencef("it has expired or is not valid yet").Say(c)
		}
	case *pgconn.ConnectError:
		reason, _ := c.Error(e.Unwrap())
		text, ok := say.Sentencef("no connection to PostgreSQL as user=%s database=%s", e.Config.User, e.Config.Database).Say(c)
		return text + ": " + strings.ReplaceAll(reason, "\n", "\n\t"), ok
	case *json.SyntaxError:
		return say.Sentencef("the text is not JSON at byte %d", e.Offset).Say(c)
	case *json.UnmarshalTypeError:
		return say.Sentencef("the member %s has another type than expected", e.Field).Say(c)
	case interface{ Code() int }: // SQLite's, in its own words
		return err.Error(), true
	case interface{ Timeout() bool }:
		if e.Timeout() {
			return say.Word("the time limit has passed").Say(c)
		}
	case *strconv.NumError:
		return say.Sentencef("%q is no such number", e.Num).Say(c)
	case *pflag.InvalidValueError:
		return say.Sentencef("invalid argument %q for --%s: %s", e.GetValue(), e.GetFlag().Name, e.Unwrap()).Say(c)
	case interface{ Unwrap() []error }:
		return joined(c, err, e.Unwrap())
	}
	if word, ok := plainErrors[err.Error()]; ok {
		return word.Say(c)
	}
	if before, _, found := strings.Cut(err.Error(), ": "); found {
		if word, ok := plainSteps[before]; ok {
			step, _ := word.Say(c)
			inner, _ := c.Error(errors.Unwrap(err))
			return step + ": " + inner, true
		}
	}
	for pattern, format := range flagErrors {
		if values := pattern.FindStringSubmatch(err.Error()); values != nil {
			args := make([]any, len(values)-1)
			for i, value := range values[1:] {
				args[i] = value
			}
			return say.Sentence{Format: string(format), Args: args}.Say(c)
		}
	}
	return err.Error(), false
}

var plainErrors = map[string]say.Word{
	context.Canceled.Error(): "interrupted", context.DeadlineExceeded.Error(): "the time limit has passed",
	io.EOF.Error(): "it ends too early", io.ErrUnexpectedEOF.Error(): "it ends too early",
	os.ErrNotExist.Error():                            "no such file or directory",
	"http: server gave HTTP response to HTTPS client": "the server speaks http and not https",
	"downloaded inconsistent tile":                    "the hashes of a tile do not fit together", // package tlog
	zip.ErrFormat.Error():                             "it is not a zip file",
	pgx.ErrNoRows.Error():                             "there is no such row",
}

// plainSteps are what package pgconn was doing when an error came, which it wraps.
var plainSteps = map[string]say.Word{
	"dial error": "while connecting", "server error": "the server refuses", "tls error": "no TLS",
	"hostname resolving error": "the name does not resolve", "failed to write startup message": "the server does not listen",
	"failed to receive message": "the server does not answer",
}

// joined says what errors.Join has made of several errors, one a line.
func joined(c say.Catalogue, whole error, errs []error) (string, bool) {
	lines, complete := make([]string, len(errs)), whole.Error() == errors.Join(errs...).Error()
	for i, err := range errs {
		text, ok := c.Error(err)
		lines[i], complete = text, complete && ok
	}
	return strings.Join(lines, "\n"), complete
}

// flagErrors are what packages cobra and pflag say of a command line.
var flagErrors = map[*regexp.Regexp]say.Word{
	regexp.MustCompile(`^required flag\(s\) (.*) not set$`):                                   "required flag(s) %s not set",
	regexp.MustCompile(`^unknown flag: (.*)$`):                                                "unknown flag: %s",
	regexp.MustCompile(`^unknown shorthand flag: ('.*') in (.*)$`):                            "unknown shorthand flag: %s in %s",
	regexp.MustCompile(`^flag needs an argument: (.*)$`):                                      "flag needs an argument: %s",
	regexp.MustCompile(`^bad flag syntax: (.*)$`):                                             "bad flag syntax: %s",
	regexp.MustCompile(`^unknown command (".*") for (".*")$`):                                 "unknown command %s for %s",
	regexp.MustCompile(`(?s)^unknown command (".*") for (".*")\n\nDid you mean this\?\n(.*)`): "unknown command %s for %s\n\nDid you mean this?\n%s",
	regexp.MustCompile(`^if any flags in the group (\[.*\]) are set none of the others can be; (\[.*\]) were all set$`): "at " +
		"most one of the flags %s may be given, not %s",
	regexp.MustCompile(`^at least one of the flags in the group (\[.*\]) is required$`): "one of the flags %s is required",
}

// Annotations of a command that hold its help in Spanish.
const shortAnnotation, longAnnotation = "short.es", "long.es"

// flagAnnotation of a flag holds its description in Spanish.
const flagAnnotation = "usage.es"

// In is the manual with its help in Spanish too, which has the same form; a command that it lacks stays English.
func (m Manual) In(spanish string) Manual {
	for name, translated := range NewManual(spanish) {
		if c, ok := m[name]; ok {
			c.Annotations = map[string]string{shortAnnotation: translated.Short, longAnnotation: translated.Long}
			m[name] = c
		}
	}
	return m
}

// Fill writes values into the verbs that the help of a command has.
func Fill(c *cobra.Command, values ...any) {
	fill := func(text string) string {
		if strings.Contains(text, "%") {
			return fmt.Sprintf(text, values...)
		}
		return text
	}
	c.Short, c.Long = fill(c.Short), fill(c.Long)
	for name, text := range c.Annotations {
		c.Annotations[name] = fill(text)
	}
}

// AppendLong adds to the long help of a command in each language.
func AppendLong(c *cobra.Command, text func(say.Catalogue) string) {
	c.Long += text(say.Catalogue{})
	if _, ok := c.Annotations[longAnnotation]; ok {
		c.Annotations[longAnnotation] += text(catalogueOf(evidence.Spanish))
	}
}

// DescribeFlag sets the description of a flag that names values, in each language.
func DescribeFlag(f *pflag.Flag, description say.Sentence) {
	f.Usage = description.String()
	f.Annotations = map[string][]string{flagAnnotation: {say.In(catalogueOf(evidence.Spanish), description)}}
}

// translate puts the help of a command and of all below it into the language of the locale.
func (a *App) translate(root *cobra.Command) {
	c := a.Catalogue()
	if c.IsEnglish() {
		return
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultVersionFlag()
	translateCommand(c, root)
	english := root.UsageFunc()
	root.SetUsageFunc(func(command *cobra.Command) error {
		var b bytes.Buffer
		out := command.OutOrStderr()
		command.SetOut(&b)
		err := english(command)
		command.SetOut(out)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, translateUsage(c, b.String()))
		return err
	})
}

func translateCommand(c say.Catalogue, command *cobra.Command) {
	if short, ok := command.Annotations[shortAnnotation]; ok {
		command.Short, command.Long = short, command.Annotations[longAnnotation]
	} else {
		command.Short, command.Long = c.Text(command.Short), c.Text(command.Long)
	}
	if command.Name() == "help" && command.HasParent() {
		command.Long = say.In(c, say.Sentencef("Shows the help of a command: %s help [command]", command.Root().Name()))
	}
	for _, g := range command.Groups() {
		g.Title = c.Text(strings.TrimSuffix(g.Title, ":")) + ":"
	}
	command.InitDefaultHelpFlag()
	command.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "help":
			f.Usage = say.In(c, say.Sentencef("help for %s", command.Name()))
		case "version":
			f.Usage = say.In(c, say.Sentencef("version of %s", command.Name()))
		default:
			f.Usage = translateFlag(c, f)
		}
	})
	for _, below := range command.Commands() {
		translateCommand(c, below)
	}
}

var variableOf = regexp.MustCompile(`^(.*)( \([A-Z_]+\))$`)

// translateFlag also knows the flags of settings, whose usage ends with their variable.
func translateFlag(c say.Catalogue, f *pflag.Flag) string {
	usage := f.Usage
	if described := f.Annotations[flagAnnotation]; described != nil {
		return described[0]
	}
	if text := c.Text(usage); text != usage {
		return text
	}
	if parts := variableOf.FindStringSubmatch(usage); parts != nil {
		return c.Text(parts[1]) + parts[2]
	}
	if name, ok := strings.CutPrefix(usage, "former name of "); ok {
		return say.In(c, say.Sentencef("former name of %s", name))
	}
	return usage
}

// What package cobra says above the lists of commands and flags, and within lines.
const (
	flagsWord, commandWord, defaultWord = "[flags]", "[command]", "(default "
	helpCommand                         = "Help about any command"
)

var (
	usageLines = []say.Word{"Usage:", "Available Commands:", "Additional Commands:", "Flags:", "Global Flags:"}
	usageWords = []say.Word{flagsWord, commandWord, defaultWord, helpCommand}
)

var moreHelp = regexp.MustCompile(`^Use "(.*) \[command\] --help" for more information about a command\.$`)

func translateUsage(c say.Catalogue, usage string) string {
	words := map[string]string{}
	for _, word := range slices.Concat(usageLines, usageWords) {
		words[string(word)] = c.Text(string(word))
	}
	lines := strings.Split(usage, "\n")
	synopsis := false
	for i, line := range lines {
		switch word, known := words[line]; {
		case known:
			lines[i], synopsis = word, line == "Usage:"
		case line == "":
			synopsis = false
		case synopsis:
			line = strings.ReplaceAll(line, flagsWord, words[flagsWord])
			lines[i] = strings.ReplaceAll(line, commandWord, words[commandWord])
		case moreHelp.MatchString(line):
			lines[i] = say.In(c, say.Sentencef(
				"Use %q for more information about a command.",
				moreHelp.FindStringSubmatch(line)[1]+" "+words[commandWord]+" --help",
			))
		default:
			lines[i] = strings.ReplaceAll(line, defaultWord, words[defaultWord])
		}
	}
	return strings.Join(lines, "\n")
}

// annotated is a copy of a command that shares no annotations with it.
func annotated(c cobra.Command) *cobra.Command {
	c.Annotations = maps.Clone(c.Annotations)
	return &c
}
