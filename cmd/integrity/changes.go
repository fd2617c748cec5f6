package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// feedEvent is what of a feed event is shown to people.
type feedEvent struct {
	ID                string `json:"id"`
	Sequence          int64  `json:"sequence"`
	Type              string `json:"type"`
	OccurredAt        string `json:"occurredAt"`
	PublicID          string `json:"publicId"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
	RecordStatus      string `json:"recordStatus"`
}

func (a *app) changesCommand() *cobra.Command {
	var flags clientFlags
	var company string
	var after int64
	c := &cobra.Command{
		Use: "changes", Short: "Print the changes of a company",
		Long: "Prints every change of a company after a sequence, in order; --json prints one event a line as the service gives it. The\n" +
			"sequence of the last event is where to go on.",
		Args: arguments(0, 0),
	}
	flags.add(c)
	c.Flags().StringVar(&company, "company", "", "reference of the company")
	c.Flags().Int64Var(&after, "after", 0, "begin after this sequence")
	require(c, "company")
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := a.client(flags)
		if err != nil {
			return err
		}
		for more := true; more; {
			var page struct {
				Events     []json.RawMessage `json:"events"`
				NextCursor int64             `json:"nextCursor"`
				HasMore    bool              `json:"hasMore"`
			}
			query := url.Values{"companyReference": {company}, "after": {strconv.FormatInt(after, 10)}, "limit": {"1000"}}
			if err := client.get(c.Context(), "/api/v1/integrity/changes", query, &page); err != nil {
				return refusal(err)
			}
			for _, raw := range page.Events {
				var e feedEvent
				if err := json.Unmarshal(raw, &e); err != nil {
					return fmt.Errorf("the answer is of another form than this program knows: %w", err)
				}
				if flags.json {
					err = writeJSON(a.out, raw, "")
				} else {
					_, err = fmt.Fprintf(a.out, "%6d  %s  %-22s  %s  %s %s v%d  %s\n", e.Sequence, e.OccurredAt, e.Type, e.PublicID, e.Source, e.DocumentReference, e.Version, e.RecordStatus)
				}
				if err != nil {
					return err
				}
			}
			if page.HasMore && page.NextCursor <= after {
				return errors.New("the service's cursor does not move: the answer cannot be right")
			}
			after, more = page.NextCursor, page.HasMore
		}
		return nil
	}
	return c
}
