// Package clientcmd holds the commands of origin systems and people: they use the API, or nothing but files.
package clientcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/domain"
	"integrityledger/handlers/client"
)

type app struct{ *cli.App }

// Commands are all of them, in the order in which --help shows them.
func Commands(shared *cli.App) []*cobra.Command {
	a := &app{shared}
	return []*cobra.Command{
		a.reserveCommand(),
		a.registerCommand(),
		a.compareCommand(),
		a.evidenceCommand(),
		a.verifyCommand(),
		a.monitorCommand(),
		a.revokeCommand(),
		a.changesCommand(),
		a.reconcileCommand(),
		a.manifestCommand(),
	}
}

const UserAgent = "integrity-cli"

// Flags name the service. The key comes from the environment alone.
type Flags struct {
	url  string
	JSON bool
}

func (f *Flags) Add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "url", "", "address of the service ("+config.VariableBaseURL+"; default http://127.0.0.1:8080)")
	c.Flags().BoolVar(&f.JSON, "json", false, "print JSON")
}

// Connect makes an authenticated client.
func Connect(a *cli.App, f Flags) (*client.Client, error) {
	base, err := (&app{a}).serviceURL(f.url)
	if err != nil {
		return nil, err
	}
	key := a.Variable(config.VariableAPIKey)
	if _, _, ok := domain.ParseAPIKey(key); !ok {
		return nil, fmt.Errorf("%s must be the text of an API key (ik_…)", config.VariableAPIKey)
	}
	return client.New(client.Config{BaseURL: base, APIKey: key, UserAgent: UserAgent})
}

// serviceURL settles the address: the flag, the variable, or this machine.
func (a *app) serviceURL(flag string) (string, error) {
	text, name := flag, "--url"
	if text == "" {
		text, name = a.Variable(config.VariableBaseURL), config.VariableBaseURL
	}
	if text == "" {
		text = "http://127.0.0.1:8080"
	}
	base, err := client.ParseBaseURL(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return base, nil
}

// refusal makes a refused request exit as a negative answer. What could not be done stays what it is.
func refusal(err error) error {
	if client.Refused(err) {
		return cli.NegativeError(err.Error())
	}
	return err
}

// written is refusal of a write, which may have happened although no answer came.
func written(err error) error {
	if client.Unknown(err) {
		err = fmt.Errorf("%w\n  whether it was done is not known: give the same command again; what was done already is answered as a replay", err)
	}
	return refusal(err)
}
