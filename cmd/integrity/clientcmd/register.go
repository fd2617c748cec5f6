package clientcmd

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/wire"
)

var (
	versionFlagNames = []string{"company", "source", "document", "version"}
	errVersion       = say.Errorf("--version must be a whole number from 1")
)

// versionFlags adds the flags that identify a version.
func versionFlags(c *cobra.Command) *wire.VersionReference {
	var d wire.VersionReference
	c.Flags().StringVar(&d.CompanyReference, "company", "", "reference of the company")
	c.Flags().StringVar(&d.Source, "source", "", "reference of the origin system")
	c.Flags().StringVar(&d.DocumentReference, "document", "", "reference of the document")
	c.Flags().Int32Var(&d.Version, "version", 0, "version of the document, from 1")
	return &d
}

func (a *app) reserveCommand() *cobra.Command {
	c, flags := Command("reserve")
	d := versionFlags(c)
	quiet := c.Flags().Bool("quiet", false, "print only the verification link, or nothing without one")
	timeout := c.Flags().Duration("timeout", time.Minute, "how long to wait for the link, such as 2s")
	c.MarkFlagsMutuallyExclusive("json", "quiet")
	cli.Require(c, versionFlagNames...)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if d.Version < 1 {
			return errVersion
		}
		for name, reference := range map[string]string{
			"--company": d.CompanyReference, "--source": d.Source, "--document": d.DocumentReference,
		} {
			if !domain.ValidReference(reference) {
				return say.Errorf("%s: %s", name, domain.ReferenceRule)
			}
		}
		if *timeout <= 0 {
			return say.Errorf("--timeout must be positive, such as 2s")
		}
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), *timeout)
		defer cancel()
		r, err := service.Reserve(ctx, *d)
		if err != nil && *quiet {
			_, _ = fmt.Fprintln(a.Errs, "integrity:", a.ErrorText(err))
			return nil // a document is issued without a link, whatever the reason
		}
		if err != nil {
			return written(err)
		}
		text := a.Rows(
			cli.Rowf("reservation", "%s, until %s", stateOf(r.Status), r.ExpiresAt),
			cli.Rowf("publicId", "%s", r.PublicID),
			cli.Rowf("verification", "%s", r.VerificationURL),
		)
		if *quiet {
			text = r.VerificationURL + "\n"
		}
		return a.Print(flags.JSON, r, text)
	}
	return c
}

// states lists the states of records, reservations and webhook destinations.
var states = []say.Word{
	"current", "superseded", "revoked", "pending", "expired", "released", "finalized", "active", "disabled",
}

// stateOf is a state in words. One that this program does not know is shown as the service names it.
func stateOf[S ~string](state S) say.Phrase {
	if word := say.Word(state); slices.Contains(states, word) {
		return word
	}
	return say.Sentencef("%s", string(state))
}

// recordText formats a record.
func (a *app) recordText(r wire.Record, replayed bool) string {
	version := cli.Rowf("document", "%s, version %d, %s", r.DocumentReference, r.Version, stateOf(r.Status))
	if replayed {
		version = cli.Rowf(
			"document", "%s, version %d, %s (already registered; this consumed nothing)", r.DocumentReference, r.Version,
			stateOf(r.Status),
		)
	}
	return a.Rows(
		version,
		cli.Rowf("sha256", "%s", r.SHA256),
		cli.Rowf("received at", "%s", r.ReceivedAt),
		cli.Rowf("publicId", "%s", r.PublicID),
		cli.Rowf("verification", "%s", r.VerificationURL),
	)
}

func (a *app) registerCommand() *cobra.Command {
	c, flags := Command("register")
	c.Args = cli.Arguments(1, math.MaxInt)
	var d wire.Declaration
	c.Flags().StringVar(&d.CompanyReference, "company", "", "reference of the company")
	c.Flags().StringVar(&d.Source, "source", "", "reference of the origin system")
	c.Flags().StringVar(
		&d.DocumentReference, "document", "", "reference of the document (default: derived from the file's name)",
	)
	c.Flags().Int32Var(&d.Version, "version", 0, "version of the document, from 1")
	previous := c.Flags().Int32("previous-version", 0, "version that this one supersedes")
	c.Flags().StringVar(&d.MimeType, "mime-type", "", "media type, such as application/pdf")
	c.Flags().StringVar(
		&d.GeneratedAt, "generated-at", "", "time at which the origin made the file, such as 2026-03-01T09:30:00Z",
	)
	c.Flags().StringVar(
		&d.ReservationID, "reservation", "",
		"publicId or link of the version's reservation; a reservation is used even without this flag",
	)
	quiet := c.Flags().Bool("quiet", false, "print only the verification link")
	c.MarkFlagsMutuallyExclusive("json", "quiet")
	cli.Require(c, "company", "source", "version")
	c.RunE = func(c *cobra.Command, files []string) error {
		if len(files) > 1 && d.DocumentReference != "" {
			return say.Errorf("--document names one document: give one FILE, or leave it out")
		}
		if d.ReservationID != "" {
			if len(files) > 1 {
				return say.Errorf("--reservation belongs to one version of one document: give one FILE, or leave it out")
			}
			id, err := reservationFrom(d.ReservationID)
			if err != nil {
				return err
			}
			d.ReservationID = id
		}
		if d.Version < 1 {
			return errVersion
		}
		if c.Flags().Changed("previous-version") {
			d.PreviousVersion = previous
		}
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		declarations, err := Declare(a.App, d, files)
		if err != nil {
			return err
		}
		for i, d := range declarations {
			registered, err := service.Register(c.Context(), d)
			if err != nil {
				return written(say.Errorf("%s: %w", files[i], err))
			}
			text := a.recordText(registered.Record, registered.Replayed)
			if *quiet {
				text = registered.VerificationURL + "\n"
			} else if i > 0 {
				text = "\n" + text
			}
			if err := a.Print(flags.JSON, registered, text); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// reservationFrom parses a publicId, or a link that ends in one.
func reservationFrom(text string) (string, error) {
	id := text[strings.LastIndex(text, "/")+1:]
	if _, ok := domain.ParsePublicID(id); !ok {
		return "", say.Errorf("--reservation must be the publicId of a reservation (26 characters a-z and 2-7), or its link")
	}
	return id, nil
}

// Declare reads all files before anything is sent, so that a missing file does not leave the work half done.
func Declare(a *cli.App, common wire.Declaration, files []string) ([]wire.Declaration, error) {
	out := make([]wire.Declaration, len(files))
	taken := map[string]string{}
	for i, path := range files {
		d := common
		if d.DocumentReference == "" {
			var err error
			if d.DocumentReference, err = referenceFrom(path); err != nil {
				return nil, say.Errorf("%s: %w", path, err)
			}
		}
		for name, reference := range map[string]string{
			"--company": d.CompanyReference, "--source": d.Source, "--document": d.DocumentReference,
		} {
			if !domain.ValidReference(reference) {
				return nil, say.Errorf("%s: %s", name, domain.ReferenceRule)
			}
		}
		if other, twice := taken[d.DocumentReference]; twice {
			return nil, say.Errorf(
				"%s and %s would both be the document %s: register them one by one with --document", other, path,
				d.DocumentReference,
			)
		}
		taken[d.DocumentReference] = path
		h, err := (&app{App: a}).hashFile(path)
		if err != nil {
			return nil, err
		}
		d.SHA256, d.SizeBytes = h.sha256, h.size
		if d.MimeType == "" {
			d.MimeType = mimeType(path, h.head)
		}
		d.MimeType = strings.ToLower(d.MimeType)
		if d.GeneratedAt == "" {
			d.GeneratedAt = h.modified.UTC().Format(time.RFC3339)
		}
		out[i] = d
	}
	return out, nil
}

func (a *app) revokeCommand() *cobra.Command {
	c, flags := Command("revoke")
	reason := c.Flags().String("reason", "", "why, at most 500 characters; kept for the organization's history only")
	c.RunE = func(c *cobra.Command, args []string) error {
		at, service, err := a.recordClient(args[0], flags)
		if err != nil {
			return err
		}
		revoked, err := service.Revoke(c.Context(), at.publicID, *reason)
		if err != nil {
			return written(err)
		}
		return a.Print(flags.JSON, revoked, a.recordText(revoked.Record, false))
	}
	return c
}
