// Command integrity is the complete Integrity Ledger in one binary: the server, the operator's commands and the API
// client. This package wires the other packages together and contains no ledger rules.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/process"
	"integrityledger/domain/say"
	"integrityledger/handlers/edge"
	"integrityledger/schemas"
)

type app struct{ *cli.App }

func main() {
	process.CollectLess()
	log.SetOutput(io.Discard) // net/http logs clients' malformed requests there; this program logs elsewhere
	a := &app{&cli.App{
		Out: os.Stdout, Errs: os.Stderr, Environ: os.Environ(),
		Now: time.Now,
	}}
	os.Exit(a.Run(context.Background(), a.rootCommand(), os.Args[1:]))
}

//go:embed help.txt
var help string

//go:embed help.es.txt
var spanishHelp string

// manual holds the help texts of this package's commands. Other packages have their own.
var manual = sync.OnceValue(func() cli.Manual { return cli.NewManual(help).In(spanishHelp) })

func (a *app) rootCommand() *cobra.Command {
	root := manual().Command("integrity")
	root.Args, root.SilenceErrors, root.SilenceUsage = nil, true, true
	root.Version = edge.ReadBuild().String()
	root.SetVersionTemplate("integrity {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	server, operators, origins := a.serviceCommands(root)
	groups := []struct {
		id       string
		title    say.Word
		commands []*cobra.Command
	}{
		{
			"client", say.Word("People and origin systems (use the API)"),
			append(clientcmd.Commands(a.App, attachments), origins...),
		},
		{"server", say.Word("The service"), append(server, a.versionCommand())},
		{"operator", say.Word("Operators (need the database)"), operators},
	}
	for _, g := range groups {
		if g.commands == nil {
			continue
		}
		root.AddGroup(&cobra.Group{ID: g.id, Title: string(g.title) + ":"})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	return root
}

// versionCommand prints the same line as integrity --version, or all build information as JSON. It also prints the
// notes of all releases, in both languages as JSON.
func (a *app) versionCommand() *cobra.Command {
	var asJSON, notes bool
	c := manual().Command("version")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&notes, "notes", false, "print the notes of this release and of all before it")
	c.RunE = func(*cobra.Command, []string) error {
		b := edge.ReadBuild()
		if !notes {
			return a.Print(asJSON, b, fmt.Sprintln("integrity", b))
		}
		releases, err := schemas.Releases()
		if err != nil {
			return err
		}
		var text strings.Builder
		for i, r := range releases {
			if i > 0 {
				text.WriteByte('\n')
			}
			fmt.Fprintf(&text, "%s (%s)\n", r.Version, r.Date)
			for _, note := range r.Notes[string(a.Language())] {
				fmt.Fprintf(&text, "- %s\n", note)
			}
		}
		return a.Print(asJSON, struct {
			Releases []schemas.Release `json:"releases"`
		}{releases}, text.String())
	}
	return c
}
