package clientcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/handlers/client"
)

func (a *app) evidenceCommand() *cobra.Command {
	var flags Flags
	var output, at string
	c := &cobra.Command{
		Use: "evidence PUBLIC_ID", Short: "Save the signed evidence of a record",
		Long: "Writes the evidence of a record exactly as the service gives it. It holds the references of the document. PUBLIC_ID may\n" +
			"also be the verification link. With --at it holds the state as of then in the place of the present one: history, which is\n" +
			"signed as such.",
		Args: cli.Arguments(1, 1),
	}
	flags.Add(c)
	if err := c.Flags().MarkHidden("json"); err != nil { // the evidence is JSON with or without it
		panic(err)
	}
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default: standard output)")
	c.Flags().StringVar(&at, "at", "", "state as of this time (RFC 3339, at least a minute ago) or sequence")
	c.RunE = func(c *cobra.Command, args []string) error {
		record, service, err := a.recordClient(args[0], flags)
		if err != nil {
			return err
		}
		var body []byte
		if c.Flags().Changed("at") {
			body, err = service.EvidenceAsOf(c.Context(), record.publicID, at)
		} else {
			body, err = service.Evidence(c.Context(), record.publicID)
		}
		if err != nil {
			return refusal(err)
		}
		if output != "" {
			return keyfiles.Replace(output, body, 0o600)
		}
		_, err = a.Out.Write(body)
		return err
	}
	return c
}

// recordClient makes the authenticated client for a record. A link of another service than the configured one is refused:
// the key must not travel to wherever a link leads.
func (a *app) recordClient(text string, flags Flags) (recordLocation, *client.Client, error) {
	at, err := readLocation(text)
	if err != nil {
		return at, nil, fmt.Errorf("PUBLIC_ID: %w", err)
	}
	service, err := Connect(a.App, flags)
	if err != nil {
		return at, nil, err
	}
	if at.base != "" && at.base != service.BaseURL() {
		return at, nil, fmt.Errorf("PUBLIC_ID: the link is of %s, and the key is for %s: set --url or %s if they are the same service", at.base, service.BaseURL(), config.VariableBaseURL)
	}
	return at, service, nil
}
