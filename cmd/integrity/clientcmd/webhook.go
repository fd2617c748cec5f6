package clientcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

func (a *app) webhookCommand() *cobra.Command {
	return cli.Group("webhook", "Webhook destinations and their deliveries",
		a.webhookCreateCommand(), a.webhookListCommand(), a.webhookTestCommand(), a.webhookDeliveriesCommand(),
		a.webhookRedeliverCommand(),
		a.webhookReplayCommand())
}

func (a *app) webhookCreateCommand() *cobra.Command {
	c, flags := Command("webhook create")
	var w wire.WebhookRequest
	c.Flags().StringVar(&w.Description, "description", "", "description of the destination, at most 200 characters")
	types := c.Flags().StringSlice("types", nil, "event types to deliver, separated by commas (default: all)")
	companies := c.Flags().StringSlice(
		"company", nil, "references of companies whose events to deliver, separated by commas",
	)
	c.RunE = func(c *cobra.Command, args []string) error {
		w.URL = args[0]
		for _, text := range *types {
			w.Types = append(w.Types, domain.EventType(strings.TrimSpace(text)))
		}
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		ids, err := companyIDs(c.Context(), service, *companies) // before anything is created
		if err != nil {
			return err
		}
		made, err := service.CreateWebhook(c.Context(), w)
		if err != nil {
			return Unconfirmed(
				err,
				"integrity webhook list shows whether it was created; its secret is then lost, so delete it before you create "+
					"another",
			)
		}
		// Show the secret even if a company could not be authorized: it is never shown again.
		var granted error
		for i, id := range ids {
			if _, granted = service.GrantWebhook(c.Context(), id, made.ID, true); granted != nil {
				granted = Refusal(say.Errorf(
					"the destination was created, but could not be authorized for %s: %w", (*companies)[i], granted,
				))
				break
			}
			made.Companies++
		}
		return errors.Join(a.Print(flags.JSON, made, a.webhookText(made.Webhook)+made.Secret+"\n"), granted)
	}
	return c
}

// companyIDs looks up the organization's companies by reference.
func companyIDs(ctx context.Context, service *client.Client, references []string) ([]string, error) {
	if len(references) == 0 {
		return nil, nil
	}
	found := map[string]string{}
	err := client.Walk(func(after string) (wire.Next, error) {
		page, err := service.Companies(ctx, client.CompaniesQuery{All: true}, after)
		for _, company := range page.Companies {
			found[company.Reference] = company.ID
		}
		return page.Next, err
	})
	if err != nil {
		return nil, Refusal(err)
	}
	ids := make([]string, len(references))
	for i, reference := range references {
		if ids[i] = found[reference]; ids[i] == "" {
			return nil, cli.Negativef("--company: the organization has no company %q", reference)
		}
	}
	return ids, nil
}

// webhookText formats a destination.
func (a *app) webhookText(w wire.Webhook) string {
	state := a.Say(stateOf(w.Status))
	if w.DisabledReason != nil {
		state += " (" + *w.DisabledReason + ")"
	}
	if w.FailingSince != nil {
		state += a.Sayf(", failing since %s", *w.FailingSince)
	}
	url := ""
	if w.URL != nil {
		url = *w.URL
	}
	return fmt.Sprintf(
		"%s  %s  %s  (%s)\n", w.ID, state, cli.Visible(url), a.Sayf("%v, authorized companies: %d", w.Types, w.Companies),
	)
}

func (a *app) webhookListCommand() *cobra.Command {
	c, flags := Command("webhook list")
	c.RunE = func(c *cobra.Command, _ []string) error {
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		list, err := service.Webhooks(c.Context())
		if err != nil {
			return Refusal(err)
		}
		var text strings.Builder
		for _, w := range list.Webhooks {
			text.WriteString(a.webhookText(w))
		}
		return a.Print(flags.JSON, list, text.String())
	}
	return c
}

// deliveryText formats a delivery.
func (a *app) deliveryText(d wire.Delivery) string {
	parts := []say.Sentence{say.Sentencef("%d attempts", d.Attempts)}
	if d.Sequence != nil {
		parts = append(parts, say.Sentencef("sequence %d", *d.Sequence))
	}
	if d.LastAttemptAt != nil {
		parts = append(parts, say.Sentencef("last at %s", *d.LastAttemptAt))
	}
	if d.NextAttemptAt != nil {
		parts = append(parts, say.Sentencef("next at %s", *d.NextAttemptAt))
	}
	if d.ResponseStatus != nil {
		parts = append(parts, say.Sentencef("HTTP %d", *d.ResponseStatus))
	}
	text := fmt.Sprintf("%s  %s  %s  %s", d.ID, d.Type, d.Status, a.Say(say.Join(parts, ", ")))
	if d.Reason != nil {
		text += ": " + cli.Visible(*d.Reason)
		if *d.Reason == domain.AddressBlocked {
			text += ". " + a.Say(say.Word(domain.BlockedAddressRemedy))
		}
	}
	return text + "\n"
}

// deliveryCommand creates a command that queues one delivery.
func (a *app) deliveryCommand(
	name, again string, queue func(*client.Client, context.Context, string) (wire.Delivery, error),
) *cobra.Command {
	c, flags := Command(name)
	c.RunE = func(c *cobra.Command, args []string) error {
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		d, err := queue(service, c.Context(), args[0])
		if err != nil {
			return Unconfirmed(err, again)
		}
		return a.Print(
			flags.JSON, d, a.deliveryText(d)+a.Sayf("integrity webhook deliveries %s shows the outcome", d.WebhookID)+"\n",
		)
	}
	return c
}

func (a *app) webhookTestCommand() *cobra.Command {
	return a.deliveryCommand("webhook test", "the same command sends another test", (*client.Client).TestWebhook)
}

func (a *app) webhookRedeliverCommand() *cobra.Command {
	return a.deliveryCommand("webhook redeliver", "the same command restarts the attempts", (*client.Client).Redeliver)
}

func (a *app) webhookDeliveriesCommand() *cobra.Command {
	c, flags := Command("webhook deliveries")
	status := c.Flags().String("status", "", "only deliveries with this status: pending, delivered, exhausted, "+
		"suppressed or cancelled")
	most := c.Flags().Int("limit", 100, "show at most this many of the newest deliveries")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *most < 1 {
			return say.Errorf("--limit must be a whole number from 1")
		}
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		list := []wire.Delivery{}
		err = client.Walk(func(after string) (wire.Next, error) {
			page, err := service.Deliveries(c.Context(), args[0], *status, after)
			list = append(list, page.Deliveries...)
			page.HasMore = page.HasMore && len(list) < *most
			return page.Next, err
		})
		if err != nil {
			return Refusal(err)
		}
		list = list[:min(*most, len(list))]
		var text strings.Builder
		for _, d := range list {
			text.WriteString(a.deliveryText(d))
		}
		return a.Print(flags.JSON, map[string]any{"deliveries": list}, text.String())
	}
	return c
}

// webhookReplayCommand counts the events that a destination has missed, page by page, and queues them with --confirm.
func (a *app) webhookReplayCommand() *cobra.Command {
	c, flags := Command("webhook replay")
	var r wire.ReplayRequest
	c.Flags().Int64Var(&r.FromSequence, "from", 0, "sequence of the first event")
	c.Flags().Int64Var(&r.ToSequence, "to", 0, "sequence of the last event (default: the newest)")
	c.Flags().StringVar(&r.CompanyReference, "company", "", "only events of this company")
	confirm := c.Flags().Bool("confirm", false, "queue the deliveries instead of counting them")
	cli.Require(c, "from")
	c.RunE = func(c *cobra.Command, args []string) error {
		if r.FromSequence < 1 || c.Flags().Changed("to") && r.ToSequence < r.FromSequence {
			return say.Errorf("--from must be a sequence of at least 1, and --to at least --from")
		}
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		done := wire.Replay{DryRun: !*confirm, NextSequence: &r.FromSequence}
		for r.DryRun = !*confirm; done.NextSequence != nil; {
			r.FromSequence = *done.NextSequence
			page, err := service.ReplayWebhook(c.Context(), args[0], r)
			if err != nil {
				if done.Count > 0 && *confirm {
					err = say.Errorf("%w\n  %d deliveries were queued before the error", err, done.Count)
				}
				return Unconfirmed(err, "run the same command again; nothing is queued twice")
			}
			done.Count, done.NextSequence = done.Count+page.Count, page.NextSequence
		}
		text := a.Sayf("%d deliveries were queued", done.Count)
		if done.DryRun {
			text = a.Sayf("%d deliveries would be queued; to queue them, add --confirm", done.Count)
		}
		return a.Print(flags.JSON, done, text+"\n")
	}
	return c
}
