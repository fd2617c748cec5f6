package operator

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
)

// organizationAction makes c act on the organization of its first argument.
func (a *app) organizationAction(c *cobra.Command, act func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, args []string, asJSON bool) error) *cobra.Command {
	var asJSON bool
	ledger.AddFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := domain.ParseID[domain.OrganizationID](args[0])
		if err != nil {
			return fmt.Errorf("ID: %w", err)
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error { return act(ctx, l, id, args[1:], asJSON) })
	}
	return c
}

func (a *app) organizationRetentionCommand() *cobra.Command {
	var keep string
	c := &cobra.Command{
		Use: "retention ID", Short: "Set whether the bytes of registered artifacts are kept, and for how long",
		Long: "Sets what becomes of the bytes of files, texts and manifests that an organization registers from now on. Without it they are\n" +
			"hashed, analysed and discarded. What is kept already is erased when it was to be.",
		Args: cli.Arguments(1, 1),
	}
	c.Flags().StringVar(&keep, "keep", "", "none, or days:N with N from 1 to 3650")
	cli.Require(c, "keep")
	return a.organizationAction(c, func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, _ []string, asJSON bool) error {
		days, err := parseRetention(keep)
		if err != nil {
			return err
		}
		if err := l.Do(ctx, &domain.ChangeRetention{Origin: ledger.Origin(a.App, id), Days: days}); err != nil {
			return err
		}
		return a.Print(asJSON, struct {
			ID        string `json:"id"`
			Retention string `json:"retention"`
		}{id.String(), keep}, fmt.Sprintf("%s keeps bytes: %s\n", id, keep))
	})
}

func parseRetention(text string) (int32, error) {
	if text == "none" {
		return 0, nil
	}
	number, ok := strings.CutPrefix(text, "days:")
	days, err := strconv.ParseInt(number, 10, 32)
	if !ok || err != nil || days < 1 || days > domain.MaxRetentionDays {
		return 0, fmt.Errorf("--keep must be none, or days:N with N from 1 to %d", domain.MaxRetentionDays)
	}
	return int32(days), nil
}

func (a *app) organizationCreditsCommand() *cobra.Command {
	var files int64
	add := &cobra.Command{
		Use: "add ID", Short: "Add a file credit pack",
		Long: "Adds registrations of artifacts beyond the month's allowance. They are used once the allowance is, and do not expire.\n" +
			"Hash-only registrations have quotas of their own, which credits never enlarge.",
		Args: cli.Arguments(1, 1),
	}
	add.Flags().Int64Var(&files, "files", 0, "registrations in the pack")
	cli.Require(add, "files")
	a.organizationAction(add, func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, _ []string, asJSON bool) error {
		pack := &domain.AddCredits{Origin: ledger.Origin(a.App, id), Credits: files}
		if err := l.Do(ctx, pack); err != nil {
			return err
		}
		return a.Print(asJSON, struct {
			ID      string `json:"id"`
			Added   int64  `json:"added"`
			Balance int64  `json:"balance"`
		}{id.String(), files, pack.Balance}, fmt.Sprintf("%s has %d file credits\n", id, pack.Balance))
	})
	return cli.Group("credits", "File credits of an organization", add)
}

func (a *app) organizationEraseCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "erase ID SUBJECT", Short: "Erase the texts of a subject for ever",
		Long: "Erases what people wrote about a subject: of a member (usr_…) the address, once the membership has ended; of an artifact\n" +
			"(art_…) its titles, file names, statements, reasons, kept bytes and the certificates that publish a title; of a version of\n" +
			"one (ver_…) the same of that version; of a record or certificate (its publicId) the reason of its revocation; of a webhook\n" +
			"destination (whk_…) addresses and descriptions, and a destination that still receives is disabled; of the organization\n" +
			"itself (its own id) the name and the certificates that publish it. Kept bytes go when a running service looks next, within\n" +
			"a minute. The log keeps ids and salted hashes only, so the history can still be proved. This cannot be undone, and backups\n" +
			"made before still hold the texts.",
		Args: cli.Arguments(2, 2),
	}
	return a.organizationAction(c, func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, args []string, asJSON bool) error {
		if _, err := l.Store.Organization(ctx, id); err != nil {
			return err
		}
		contents, err := l.Store.KeptContents(ctx, id, args[0], a.Now())
		if err != nil {
			return err
		}
		erased := 0
		// What was written while the texts were looked for is found the next time; what
		// is erased cannot be published again.
		for asked := false; ; asked = true {
			texts, err := l.Store.TextsOf(ctx, id, args[0])
			if err != nil {
				return err
			}
			if len(texts) == 0 && (asked || contents == 0) {
				break
			}
			if err := l.Do(ctx, &domain.EraseTexts{Origin: ledger.Origin(a.App, id), Subject: args[0], Texts: append([]domain.TextID{}, texts...)}); err != nil {
				return err
			}
			erased += len(texts)
		}
		if erased == 0 && contents == 0 {
			return cli.NegativeError("this organization has no text of that subject that is not erased already, and no kept bytes")
		}
		line := fmt.Sprintf("erased %d texts of %s\n", erased, args[0])
		if contents > 0 {
			line += fmt.Sprintf("the kept bytes of %d versions go when a running service looks next, within a minute\n", contents)
		}
		return a.Print(asJSON, struct {
			ID       string `json:"id"`
			Subject  string `json:"subject"`
			Erased   int    `json:"erased"`
			Contents int    `json:"contents"` // versions whose kept bytes go
		}{id.String(), args[0], erased, contents}, line)
	})
}
