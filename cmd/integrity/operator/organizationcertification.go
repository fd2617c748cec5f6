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

func (a *app) organizationRetentionCommand() *cobra.Command {
	v := a.ledgerVerb("organization retention")
	keep := v.Flags().String("keep", "", "none, or days:N with N from 1 to 3650")
	cli.Require(v.Command, "keep")
	return v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
		days, err := parseRetention(*keep)
		if err != nil {
			return err
		}
		if err := l.Do(ctx, &domain.ChangeRetention{Origin: ledger.Origin(a.App, id), Days: days}); err != nil {
			return err
		}
		return v.print(struct {
			ID        string `json:"id"`
			Retention string `json:"retention"`
		}{id.String(), *keep}, fmt.Sprintf("%s keeps bytes: %s\n", id, *keep))
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
	v := a.ledgerVerb("organization credits add")
	files := v.Flags().Int64("files", 0, "registrations in the pack")
	cli.Require(v.Command, "files")
	return cli.Group("credits", "File credits of an organization", v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
		pack := &domain.AddCredits{Origin: ledger.Origin(a.App, id), Credits: *files}
		if err := l.Do(ctx, pack); err != nil {
			return err
		}
		return v.print(struct {
			ID      string `json:"id"`
			Added   int64  `json:"added"`
			Balance int64  `json:"balance"`
		}{id.String(), *files, pack.Balance}, fmt.Sprintf("%s has %d file credits\n", id, pack.Balance))
	}))
}

func (a *app) organizationEraseCommand() *cobra.Command {
	v := a.ledgerVerb("organization erase")
	return v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
		subject := v.args[1]
		if _, err := l.Store.Organization(ctx, id); err != nil {
			return err
		}
		contents, err := l.Store.KeptContents(ctx, id, subject, a.Now())
		if err != nil {
			return err
		}
		erased := 0
		// What was written while the texts were looked for is found the next time; what
		// is erased cannot be published again.
		for asked := false; ; asked = true {
			texts, err := l.Store.TextsOf(ctx, id, subject)
			if err != nil {
				return err
			}
			if len(texts) == 0 && (asked || contents == 0) {
				break
			}
			if err := l.Do(ctx, &domain.EraseTexts{Origin: ledger.Origin(a.App, id), Subject: subject, Texts: append([]domain.TextID{}, texts...)}); err != nil {
				return err
			}
			erased += len(texts)
		}
		if erased == 0 && contents == 0 {
			return cli.NegativeError("this organization has no text of that subject that is not erased already, and no kept bytes")
		}
		line := fmt.Sprintf("erased %d texts of %s\n", erased, subject)
		if contents > 0 {
			line += fmt.Sprintf("the kept bytes of %d versions go when a running service looks next, within a minute\n", contents)
		}
		return v.print(struct {
			ID       string `json:"id"`
			Subject  string `json:"subject"`
			Erased   int    `json:"erased"`
			Contents int    `json:"contents"` // versions whose kept bytes go
		}{id.String(), subject, erased, contents}, line)
	})
}
