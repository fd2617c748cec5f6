package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/domain"
	"integrityledger/handlers/client"
)

const (
	variableAPIKey  = variablePrefix + "API_KEY"
	variableBaseURL = variablePrefix + "BASE_URL"
	userAgent       = "integrity-cli"
)

// clientFlags name the service. The key comes from the environment alone.
type clientFlags struct {
	url  string
	json bool
}

func (f *clientFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "url", "", "address of the service ("+variableBaseURL+"; default http://127.0.0.1:8080)")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

func (a *app) variable(name string) string {
	for _, entry := range a.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// client makes an authenticated client.
func (a *app) client(f clientFlags) (*client.Client, error) {
	base, err := a.serviceURL(f.url)
	if err != nil {
		return nil, err
	}
	key := a.variable(variableAPIKey)
	if _, _, ok := domain.ParseAPIKey(key); !ok {
		return nil, fmt.Errorf("%s: the text of an API key (ik_…) was expected in this variable", variableAPIKey)
	}
	return client.New(client.Config{BaseURL: base, APIKey: key, UserAgent: userAgent})
}

// serviceURL settles the address: the flag, the variable, or this machine.
func (a *app) serviceURL(flag string) (string, error) {
	text, name := flag, "--url"
	if text == "" {
		text, name = a.variable(variableBaseURL), variableBaseURL
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
		return negative{err.Error()}
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
