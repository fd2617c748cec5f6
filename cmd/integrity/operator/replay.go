package operator

import (
	"bufio"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/history"
)

// EventView is an event as the log stores it.
type EventView struct {
	Shard        domain.Shard `json:"shard"`
	Position     int64        `json:"position"`
	Organization string       `json:"organization"`
	bundle.Event
}

func (a *app) replayCommand() *cobra.Command {
	v := a.ledgerVerb("replay")
	v.describeJSON("the output is always JSON")
	v.Flags().Lookup("json").DefValue = "true"
	only, shards := v.shards()
	after := v.Flags().Int64("after", 0, "start after this position of the shard, or this sequence of the organization")
	v.must("--after must be a number of at least 0, with --shard or --organization", func() bool {
		return *after >= 0 && (!v.Flags().Changed("after") || v.Flags().Changed("shard") || !only.IsZero())
	})
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) (err error) {
		position := *after
		if !only.IsZero() {
			position = 0
			if _, err := l.Store.Organization(ctx, *only); err != nil {
				return err
			}
		}
		of, err := shards(l)
		if err != nil {
			return err
		}
		out := bufio.NewWriter(a.Out)
		defer flush(out, &err)
		return eachEvent(ctx, l, of, position, func(e *domain.Event) error {
			if only.IsZero() || e.Organization == *only && e.Sequence > *after {
				return cli.WriteJSON(out, EventView{e.Shard, e.Position, e.Organization.String(), bundle.View(e)}, "")
			}
			return nil
		})
	})
}

// AffectedView is one act on a record or certificate, from the log. Fields that the act does not have are null.
type AffectedView struct {
	Type              string  `json:"type"` // registered, healed, aliased, revoked, certified or certificate_revoked
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
		OccurredAt: cli.TimeText(e.OccurredAt), Actor: e.Actor.String(), RequestID: e.RequestID,
	}
	if !e.Company.IsZero() {
		v.CompanyID = new(e.Company.String())
	}
	named := func(kind string, b *domain.VersionReference) {
		v.Type, v.Version = kind, &b.Version
		v.CompanyReference, v.Source, v.DocumentReference = &b.CompanyReference, &b.Source, &b.DocumentReference
	}
	switch b := e.Body.(type) {
	case *domain.RecordRegisteredBody:
		named("registered", &b.VersionReference)
	case *domain.RecordHealedBody:
		named("healed", &b.VersionReference)
	case *domain.RecordAliasedBody:
		named("aliased", &b.VersionReference)
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

func (v AffectedView) line() say.Phrase {
	var what say.Phrase = text{}
	if v.DocumentReference != nil {
		what = say.Sentencef("  (company %s, source %s, document %s)", *v.CompanyReference, *v.Source, *v.DocumentReference)
	}
	if v.Version != nil {
		what = say.Sentencef("  version %d%s", *v.Version, what)
	}
	return say.Sentencef("%s  %-10s  %s%s\n", v.OccurredAt, v.Type, v.PublicID, what)
}

// printAffected prints the acts on the selected records and certificates, in the log's order, one per line.
func (v *verb) printAffected(
	ctx context.Context, l *ledger.Opened, shards []domain.Shard, concerned func(*domain.Event) bool,
) (n int, err error) {
	out := bufio.NewWriter(v.app.Out)
	defer flush(out, &err)
	err = eachEvent(ctx, l, shards, 0, func(e *domain.Event) error {
		act, ok := viewAffected(e)
		if !ok || !concerned(e) {
			return nil
		}
		n++
		if v.json {
			return cli.WriteJSON(out, act, "")
		}
		_, err := out.WriteString(v.app.Say(act.line()))
		return err
	})
	return n, err
}

// flush flushes buffered output. After a failed write the flush fails with the same error, which is reported only once.
func flush(out *bufio.Writer, err *error) {
	if failed := out.Flush(); !errors.Is(*err, failed) {
		*err = errors.Join(*err, failed)
	}
}

// eachEvent reads the logs of shards one after the other, starting at a position.
func eachEvent(
	ctx context.Context, l *ledger.Opened, shards []domain.Shard, after int64, do func(*domain.Event) error,
) error {
	for _, shard := range shards {
		tail := history.NewTail(l.Read, shard, after)
		for {
			events, err := tail.Next(ctx, 1000)
			if err != nil {
				return err
			}
			if len(events) == 0 {
				break
			}
			for i := range events {
				if err := do(&events[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
