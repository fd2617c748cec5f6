package clientcmd

import (
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain/say"
	"integrityledger/handlers/wire"
)

// lookupCommand finds a record by its version or its link.
func (a *app) lookupCommand() *cobra.Command {
	c, flags := Command("lookup")
	d := versionFlags(c)
	c.MarkFlagsRequiredTogether(versionFlagNames...)
	c.RunE = func(c *cobra.Command, args []string) error {
		byVersion := c.Flags().Changed("version")
		if byVersion == (len(args) == 1) {
			return say.Errorf("name the record by PUBLIC_ID, or by --company, --source, --document and --version")
		}
		if byVersion && d.Version < 1 {
			return errVersion
		}
		var record wire.Record
		if byVersion {
			service, err := Connect(a.App, flags)
			if err != nil {
				return err
			}
			if record, err = service.Lookup(c.Context(), *d); err != nil {
				return Refusal(err)
			}
		} else {
			at, service, err := a.recordClient(args[0], flags)
			if err != nil {
				return err
			}
			if record, err = service.Record(c.Context(), at.publicID); err != nil {
				return Refusal(err)
			}
		}
		return a.Print(flags.JSON, record, a.recordText(record, false))
	}
	return c
}

func (a *app) usageCommand() *cobra.Command {
	c, flags := Command("usage")
	c.RunE = func(c *cobra.Command, _ []string) error {
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		usage, err := service.Usage(c.Context())
		if err != nil {
			return Refusal(err)
		}
		return a.Print(flags.JSON, usage, a.usageText(usage))
	}
	return c
}

// usageText formats a month's usage.
func (a *app) usageText(u wire.Allowance) string {
	rows := []cli.Row{
		cli.Rowf("plan", "%s", u.Plan),
		cli.Rowf("month", "%s, until %s", u.Period, u.Organization.ResetsAt),
	}
	if u.Organization.Limit != nil && u.Organization.Remaining != nil {
		rows = append(rows, cli.Rowf(
			"versions", "%d of %d used, %d remaining", u.Organization.Used, *u.Organization.Limit, *u.Organization.Remaining,
		))
	} else {
		rows = append(rows, cli.Rowf("versions", "%d used, no limit", u.Organization.Used))
	}
	if b := u.Backfill; b.Limit != nil && b.Remaining != nil && *b.Limit > 0 {
		rows = append(rows, cli.Rowf("backfill", "%d of %d used, %d remaining", b.Used, *b.Limit, *b.Remaining))
	}
	for _, company := range u.Companies {
		rows = append(rows, cli.Rowf("company", "%s  %d", company.CompanyReference, company.Used))
	}
	for _, w := range u.Warnings {
		rows = append(rows, cli.Rowf(
			"warning", "%d %% of %s (%d of %d), reached at %s", w.Percent, w.Allowance, w.Used, w.Limit, w.ReachedAt,
		))
	}
	return a.Rows(rows...)
}
