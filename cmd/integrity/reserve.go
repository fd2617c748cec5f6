package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// reservation is the body of a reservation.
type reservation struct {
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
}

// reservationAnswer is what of a reservation is shown to people.
type reservationAnswer struct {
	PublicID        string `json:"publicId"`
	VerificationURL string `json:"verificationUrl"`
	ExpiresAt       string `json:"expiresAt"`
	Status          string `json:"status"`
}

func (a *app) reserveCommand() *cobra.Command {
	var flags clientFlags
	var d reservation
	var quiet bool
	c := &cobra.Command{
		Use: "reserve", Short: "Reserve the verification link of a version before its file is final",
		Long: "Reserves the link of a version, to be put into the document before its bytes are final; then register the finished FILE\n" +
			"with the same --company, --source, --document and --version. A reservation is no evidence of anything and consumes\n" +
			"nothing. It is active for 7 days; the same command again renews it, and the link never changes.",
		Args: arguments(0, 0),
	}
	flags.add(c)
	c.Flags().StringVar(&d.CompanyReference, "company", "", "reference of the company")
	c.Flags().StringVar(&d.Source, "source", "", "reference of the origin system")
	c.Flags().StringVar(&d.DocumentReference, "document", "", "reference of the document")
	c.Flags().Int32Var(&d.Version, "version", 0, "version of the document, from 1")
	c.Flags().BoolVar(&quiet, "quiet", false, "print only the verification link")
	c.MarkFlagsMutuallyExclusive("json", "quiet")
	require(c, "company", "source", "document", "version")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if d.Version < 1 {
			return errors.New("--version: a whole number from 1 was expected")
		}
		client, err := a.client(flags)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := client.post(c.Context(), "/api/v1/integrity/reservations", d, &raw); err != nil {
			return refusal(err)
		}
		var r reservationAnswer
		if err := json.Unmarshal(raw, &r); err != nil || r.PublicID == "" {
			return errors.New("the answer is of another form than this program knows")
		}
		text := fmt.Sprintf("reservation   %s, until %s\npublicId      %s\nverification  %s\n", r.Status, r.ExpiresAt, r.PublicID, r.VerificationURL)
		if quiet {
			text = r.VerificationURL + "\n"
		}
		return a.print(flags.json, raw, text)
	}
	return c
}
