// Package clientcmd implements the commands for origin systems and end users. They use the API, or only local files.
package clientcmd

import (
	"cmp"
	"context"
	_ "embed"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
)

// Name identifies this program in the header Integrity-Version.
const Name = "integrity-cli"

// help holds the commands' names and help texts.
//
//go:embed help.txt
var help string

//go:embed help.es.txt
var spanishHelp string

var manual = sync.OnceValue(func() cli.Manual { return cli.NewManual(help).In(spanishHelp) })

type app struct {
	*cli.App
	attachments Attachments
}

// Attachments reads the files attached to the first size bytes of a file, a PDF.
type Attachments func(ctx context.Context, file *os.File, size int64) ([]evidence.ReportFile, error)

// Commands returns all commands, in the order in which --help shows them.
func Commands(shared *cli.App, attachments Attachments) []*cobra.Command {
	a := &app{shared, attachments}
	return []*cobra.Command{
		a.reserveCommand(),
		a.registerCommand(),
		a.outboxCommand(),
		a.lookupCommand(),
		a.compareCommand(),
		a.evidenceCommand(),
		a.verifyCommand(),
		a.verifyKeysCommand(),
		a.monitorCommand(),
		a.revokeCommand(),
		a.changesCommand(),
		a.reconcileCommand(),
		a.importCommand(),
		a.usageCommand(),
		a.webhookCommand(),
		a.manifestCommand(),
	}
}

// Flags identify the service. The API key comes only from the environment, or from the file that the environment names.
type Flags struct {
	url  string
	JSON bool
}

// Command creates the command that help.txt describes under this name, with the flags that identify the service.
func Command(name string) (*cobra.Command, *Flags) {
	c, f := manual().Command(name), &Flags{}
	c.Flags().StringVar(
		&f.url, "url", "", "address of the service ("+config.VariableBaseURL+"; default http://127.0.0.1:8080)",
	)
	c.Flags().BoolVar(&f.JSON, "json", false, "print JSON")
	return c, f
}

// Connect creates an authenticated client.
func Connect(a *cli.App, f *Flags) (*client.Client, error) { return ConnectTo(a, f.url) }

// ConnectTo is Connect for the given address; an empty address means the configured one.
func ConnectTo(a *cli.App, url string) (*client.Client, error) {
	base, err := (&app{App: a}).serviceURL(url)
	if err != nil {
		return nil, err
	}
	key, err := apiKey(a)
	if err != nil {
		return nil, err
	}
	if _, _, ok := domain.ParseAPIKey(key); !ok {
		return nil, say.Errorf("%s must be an API key's text (ik_…)", config.VariableAPIKey)
	}
	return client.New(client.Config{BaseURL: base, APIKey: key, Name: Name, Language: a.Language()})
}

// apiKey returns the text of the API key.
func apiKey(a *cli.App) (string, error) {
	const file = config.VariableAPIKey + "_FILE"
	key, path := a.Variable(config.VariableAPIKey), a.Variable(file)
	if key != "" || path == "" {
		return key, nil
	}
	text, err := keyfiles.ReadFile(path)
	if err != nil {
		return "", say.Errorf("%s: %w", file, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// serviceURL returns the service's address: from the flag, from the variable, or the default on this machine.
func (a *app) serviceURL(flag string) (string, error) {
	text, name := flag, "--url"
	if text == "" {
		text, name = a.Variable(config.VariableBaseURL), config.VariableBaseURL
	}
	base, err := client.ParseBaseURL(cmp.Or(text, "http://127.0.0.1:8080"))
	if err != nil {
		return "", say.Errorf("%s: %w", name, err)
	}
	return base, nil
}

// answer prints the result. If yes is false, the command exits with ExitNegative.
func (a *app) answer(asJSON bool, v any, text string, yes bool) error {
	if err := a.Print(asJSON, v, text); err != nil || yes {
		return err
	}
	return cli.NegativeError("")
}

// Refusal makes a refused request exit with ExitNegative. Other errors stay as they are.
func Refusal(err error) error {
	if client.Refused(err) {
		return cli.Negative(err)
	}
	return err
}

// written is Refusal for a write that can safely be repeated.
func written(err error) error {
	return Unconfirmed(err, "run the same command again; anything already done is answered as a replay")
}

// Unconfirmed is Refusal for a write. If no answer came, the write may have happened: the error says so, and what to do
// next.
func Unconfirmed(err error, then string) error {
	if client.Unknown(err) {
		err = say.Errorf("%w\n  the outcome is unknown: %s", err, then)
	}
	return Refusal(err)
}
