package operator

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/eventstore/history"
)

// AffectedView is one act on a record or a certificate, as the log has it. What the act does not say is null.
type AffectedView struct {
	Type              string  `json:"type"` // registered, revoked, certified or certificate_revoked
	PublicID          string  `json:"publicId"`
	OrganizationID    string  `json:"organizationId"`
	CompanyID         *string `json:"companyId"`
	CompanyReference  *string `json:"companyReference"`
	Source            *string `json:"source"`
	DocumentReference *string `json:"documentReference"`
	Version           *int32  `json:"version"`
	Sequence          int64   `json:"sequence"`
	OccurredAt        string  `json:"occurredAt"`
	Actor             string  `json:"actor"`
	RequestID         string  `json:"requestId"`
}

func viewAffected(e *domain.Event) (v AffectedView, ok bool) {
	v = AffectedView{
		PublicID: e.Subject, OrganizationID: e.Organization.String(), Sequence: e.Sequence,
		OccurredAt: cli.TimeText(e.OccurredAt), Actor: e.Actor, RequestID: e.RequestID,
	}
	if !e.Company.IsZero() {
		id := e.Company.String()
		v.CompanyID = &id
	}
	switch b := e.Body.(type) {
	case *domain.RecordRegisteredBody:
		v.Type, v.Version = "registered", &b.Version
		v.CompanyReference, v.Source, v.DocumentReference = &b.CompanyReference, &b.Source, &b.DocumentReference
	case *domain.RecordRevokedBody:
		v.Type, v.Version = "revoked", &b.Version
	case *domain.CertificateIssuedBody:
		v.Type, v.Version = "certified", &b.Version
	case *domain.CertificateRevokedBody:
		v.Type = "certificate_revoked"
	default:
		return v, false
	}
	return v, true
}

func (v AffectedView) line() string {
	what := ""
	if v.DocumentReference != nil {
		what = fmt.Sprintf("  (company %s, source %s, document %s)", *v.CompanyReference, *v.Source, *v.DocumentReference)
	}
	if v.Version != nil {
		what = fmt.Sprintf("  version %d%s", *v.Version, what)
	}
	return fmt.Sprintf("%s  %-10s  %s%s\n", v.OccurredAt, v.Type, v.PublicID, what)
}

// printAffected writes the acts on records and certificates that concern names, in the log's order, one a line.
func (a *app) printAffected(ctx context.Context, l *ledger.Opened, first, last domain.Shard, asJSON bool, concern func(*domain.Event) bool) (n int, err error) {
	out := bufio.NewWriter(a.Out)
	defer func() { err = errors.Join(err, out.Flush()) }()
	for shard := int(first); shard <= int(last); shard++ {
		tail := history.NewTail(l.Read, domain.Shard(shard), 0)
		for {
			events, err := tail.Next(ctx, 1000)
			if err != nil {
				return n, err
			}
			if len(events) == 0 {
				break
			}
			for i := range events {
				v, ok := viewAffected(&events[i])
				if !ok || !concern(&events[i]) {
					continue
				}
				n++
				if asJSON {
					err = cli.WriteJSON(out, v, "")
				} else {
					_, err = out.WriteString(v.line())
				}
				if err != nil {
					return n, err
				}
			}
		}
	}
	return n, nil
}

func (a *app) keyAffectedCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "affected KEY_ID", Short: "Print what an API key has registered, certified and revoked",
		Long: "Prints every registration, certificate and revocation by an API key, ended or not, from the log, in the order in which they were\n" +
			"committed; with --json, one object a line.",
		Args: cli.Arguments(1, 1),
	}
	ledger.AddFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := readKeyID(args[0])
		if err != nil {
			return err
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			known, err := l.Store.Key(ctx, id)
			if err != nil {
				return err
			}
			shard, actor := known.Organization.Shard(), id.String()
			_, err = a.printAffected(ctx, l, shard, shard, asJSON, func(e *domain.Event) bool { return e.Actor == actor })
			return err
		})
	}
	return c
}
