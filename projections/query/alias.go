package query

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/projections/internal/statement"
)

// alias is a former public id of a record, with the event that made it one.
type alias struct {
	organization domain.OrganizationID
	body         *domain.RecordAliasedBody
	data         []byte
}

var findAliases = cluster.SQL(`SELECT n.place, i.organization_id, e.v, e.data
	FROM unnest($2::uuid[]) WITH ORDINALITY AS n(id, place)
	JOIN LATERAL (SELECT organization_id, position FROM {aliases} WHERE shard = $1 AND public_id = n.id OFFSET 0) i ON true
	JOIN LATERAL (SELECT v, data ` + eventAtPosition + `) e ON true`)

// aliasesOf finds former public ids, in the order of ids. It returns nil for others. It is asked only about ids that no
// record has.
func aliasesOf(
	ctx context.Context, from history.Querier, shard domain.Shard, ids ...domain.PublicID,
) ([]*alias, error) {
	found := make([]*alias, len(ids))
	_, err := statement.All(ctx, from, "find aliases", func(row pgx.CollectableRow) (none struct{}, err error) {
		var a alias
		var place int
		var v int16
		if err := row.Scan(&place, &a.organization, &v, &a.data); err != nil {
			return none, err
		}
		body, err := domain.DecodeBody(domain.RecordAliased, v, a.data)
		a.body, _ = body.(*domain.RecordAliasedBody)
		found[place-1] = &a
		return none, err
	}, findAliases, shard, ids)
	return found, err
}

// keptFor returns what do returns for the record that a former public id leads to, if unknown is the answer for the id
// itself. The record must belong to the organization, unless that is zero.
func keptFor[T any](
	ctx context.Context, from history.Querier, shard domain.Shard, organization domain.OrganizationID, id domain.PublicID,
	unknown error, do func(a *alias) (T, error),
) (none T, err error) {
	found, err := aliasesOf(ctx, from, shard, id)
	switch a := found[0]; {
	case err != nil:
		return none, err
	case a == nil || !organization.IsZero() && a.organization != organization:
		return none, unknown
	default:
		return do(a)
	}
}

// under makes the evidence of the kept record the evidence of its former public id. With a former receipt, that is
// what the evidence consists of.
func (e *Evidence) under(a *alias) *Evidence {
	e.Alias = a.body
	if a.body.Payload == nil {
		return e
	}
	e.Event.Data = a.data
	e.Record, _ = domain.ReadSignedRecord(a.data)
	if payload, err := evidence.ParseRecordPayload(a.body.Payload); err == nil {
		e.ReceivedAt = payload.ReceivedAt
	}
	return e
}

// SignedID returns the public id in the signed bytes of evidence that was asked for by id.
func (e *Evidence) SignedID(id domain.PublicID) domain.PublicID {
	if e.Alias != nil && e.Alias.Payload == nil {
		return e.Alias.AliasOf
	}
	return id
}

func isUnknown(err error) bool {
	return errors.Is(err, domain.ErrUnknownRecord) || errors.Is(err, ErrUnknownPublicID)
}
