package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain/say"
	"integrityledger/projections"
	"integrityledger/projections/query"
)

// LoadView is the load of one organization in JSON output. Requests without a valid credential have no organization.
type LoadView struct {
	Organization  *string `json:"organizationId"`
	Name          string  `json:"name"`
	Plan          string  `json:"plan"`
	Requests      int64   `json:"requests"`
	Registrations int64   `json:"registrations"`
	Refusals      int64   `json:"refusals"`
	Received      int64   `json:"receivedBytes"`
	Sent          int64   `json:"sentBytes"`
}

func viewLoad(l query.OrganizationLoad) LoadView {
	v := LoadView{
		Name: l.Name, Plan: l.Plan,
		Requests: l.Requests, Registrations: l.Registrations, Refusals: l.Refusals, Received: l.Received, Sent: l.Sent,
	}
	if !l.Organization.IsZero() {
		v.Organization = new(l.Organization.String())
	}
	return v
}

// columns are the headings of a table of loads.
var columns = []say.Word{"requests", "registrations", "refusals", "received", "sent", "organization"}

func headings(a *cli.App, words ...say.Word) []any {
	said := make([]any, len(words))
	for i, word := range words {
		said[i] = a.Say(word)
	}
	return said
}

const loadColumns = "%10v %13v %10v %10v %10v  %s\n"

func (v LoadView) line() say.Phrase {
	who := say.Sentencef("(no valid credential)")
	if v.Organization != nil {
		who = say.Sentencef("%s  %s  (plan %s)", *v.Organization, cli.Visible(v.Name), v.Plan)
	}
	return say.Sentencef(
		loadColumns, v.Requests, v.Registrations, v.Refusals, bytesText(v.Received), bytesText(v.Sent), who,
	)
}

// bytesText formats a number of bytes with a binary prefix.
func bytesText(n int64) string {
	amount, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for amount >= 1024 && unit < len(units)-1 {
		amount, unit = amount/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", amount, units[unit])
}

// measures are the values that integrity top can sort by.
var measures = map[string]func(query.Load) int64{
	"requests":      func(l query.Load) int64 { return l.Requests },
	"registrations": func(l query.Load) int64 { return l.Registrations },
	"refusals":      func(l query.Load) int64 { return l.Refusals },
	"bytes":         query.Load.Bytes,
}

func (a *app) topCommand() *cobra.Command {
	v := a.ledgerVerb("top")
	names := strings.Join(slices.Sorted(maps.Keys(measures)), ", ")
	by := v.Flags().String("by", "requests", "")
	cli.DescribeFlag(v.Flags().Lookup("by"), say.Sentencef("sort in descending order by one of: %s", names))
	minutes := v.Flags().Int("minutes", 5, "sum over this many minutes, the current one included")
	limit := v.Flags().Int("limit", 20, "show at most this many organizations")
	v.check(func() error {
		if measures[*by] == nil {
			return say.Errorf("--by must be one of: %s", names)
		}
		return nil
	})
	kept := int(query.TrafficKept.Minutes())
	v.check(func() error {
		if *minutes < 1 || *minutes > kept {
			return say.Errorf("--minutes must be 1 to %d", kept)
		}
		return nil
	})
	v.must("--limit must be at least 1", func() bool { return *limit >= 1 })
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		since := a.Now().Add(-time.Duration(*minutes) * time.Minute)
		loads, err := l.Store.Top(ctx, since, measures[*by])
		if err != nil {
			return err
		}
		loads = loads[:min(len(loads), *limit)]
		if !v.json {
			if _, err := fmt.Fprintf(a.Out, loadColumns, headings(a.App, columns...)...); err != nil {
				return errors.Join(say.Errorf("print the load of organizations"), err)
			}
		}
		return showAll(v, "organizations", loads, viewLoad)
	})
}

// ActView is one run of an operator command that changed an organization.
type ActView struct {
	OccurredAt string `json:"occurredAt"`
	Person     string `json:"person"`
	Host       string `json:"host"`
	Command    string `json:"command"`
	RequestID  string `json:"requestId"`
}

func viewAct(a projections.OperatorAct) ActView {
	return ActView{cli.TimeText(a.OccurredAt), a.Person, a.Host, a.Command, a.RequestID}
}

func (v ActView) line() say.Phrase {
	return say.Sentencef("%s  %s at %s  %s  (request %s)\n",
		v.OccurredAt, cli.Visible(v.Person), cli.Visible(v.Host), v.Command, v.RequestID)
}

func (a *app) actsCommand() *cobra.Command {
	return list(a, "organization acts", "acts", (*query.Store).OperatorActs, viewAct)
}
