package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Load is an organization's load on all processes in some time.
type Load struct {
	Requests      int64
	Registrations int64 // registered versions, including each item of a batch
	Refusals      int64 // requests answered with 4xx or 5xx, and failed items of batches and calls of MCP tools
	Received      int64 // bytes of request bodies
	Sent          int64 // bytes of answers' bodies
}

// Bytes returns the sum of both directions.
func (l Load) Bytes() int64 { return l.Received + l.Sent }

func (l Load) plus(o Load) Load {
	return Load{
		l.Requests + o.Requests, l.Registrations + o.Registrations, l.Refusals + o.Refusals, l.Received + o.Received,
		l.Sent + o.Sent,
	}
}

// Traffic adds up the load by organization and UTC minute until Flush writes it. The zero organization stands for
// requests without a valid credential. Traffic is safe for concurrent use; its zero value is empty.
type Traffic struct {
	noted notes[organizationMinute, Load]
}

type organizationMinute struct {
	organization domain.OrganizationID
	minute       int64
}

func (m organizationMinute) shard() domain.Shard { return m.organization.Shard() }

// Note adds to the load of an organization.
func (t *Traffic) Note(organization domain.OrganizationID, at time.Time, l Load) {
	t.noted.add(organizationMinute{organization, at.Unix() / 60}, l, Load.plus)
}

// TrafficKept is how long traffic is kept in the database.
const TrafficKept = time.Hour

// Rows are written in the order of their keys, so that two processes cannot deadlock.
var (
	writeTraffic = cluster.SQL(`INSERT INTO {traffic} AS t (shard, minute, organization_id, requests, registrations, refusals, received_bytes, sent_bytes)
	SELECT s.shard, n.* FROM {shard_heads} s, unnest($2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
		AS n(minute, organization_id, requests, registrations, refusals, received_bytes, sent_bytes) WHERE s.shard = $1
	ORDER BY n.minute, n.organization_id
	ON CONFLICT (shard, minute, organization_id) DO UPDATE SET requests = t.requests + excluded.requests,
		registrations = t.registrations + excluded.registrations, refusals = t.refusals + excluded.refusals,
		received_bytes = t.received_bytes + excluded.received_bytes, sent_bytes = t.sent_bytes + excluded.sent_bytes`)

	forgetTraffic = cluster.SQL(`DELETE FROM {traffic} WHERE shard = $1 AND minute < $2`)

	readTraffic = cluster.SQL(`SELECT t.organization_id, coalesce(o.plan, ''), coalesce(n.body, ''), t.requests, t.registrations, t.refusals, t.received, t.sent
	FROM (SELECT organization_id, sum(requests)::bigint AS requests, sum(registrations)::bigint AS registrations,
			sum(refusals)::bigint AS refusals, sum(received_bytes)::bigint AS received, sum(sent_bytes)::bigint AS sent
		FROM {traffic} WHERE shard = $1 AND minute > $2 GROUP BY organization_id) t
	LEFT JOIN {organization_state} o ON o.shard = $1 AND o.organization_id = t.organization_id
	LEFT JOIN {texts} n ON n.shard = $1 AND n.organization_id = o.organization_id AND n.id = o.name_id`)
)

// Flush writes the load noted since the last flush and forgets load older than TrafficKept, in memory too. Load that
// could not be written stays noted.
func (t *Traffic) Flush(ctx context.Context, s *Store, now time.Time) error {
	oldest := now.Add(-TrafficKept).Unix() / 60
	t.noted.drop(func(m organizationMinute) bool { return m.minute < oldest })
	return t.noted.flush(ctx, s, organizationMinute.shard, Load.plus,
		func(ctx context.Context, shard domain.Shard, at []organizationMinute, loads []Load) error {
			column := func(value func(Load) int64) []int64 { return statement.Column(loads, value) }
			if _, err := statement.Try(
				ctx, s.Pool, "remove old load of organizations", forgetTraffic, shard, oldest,
			); err != nil {
				return err
			}
			_, err := statement.Try(ctx, s.Pool, "write the load of organizations", writeTraffic, shard,
				statement.Column(at, func(m organizationMinute) int64 { return m.minute }),
				statement.Column(at, func(m organizationMinute) domain.OrganizationID { return m.organization }),
				column(func(l Load) int64 { return l.Requests }), column(func(l Load) int64 { return l.Registrations }),
				column(func(l Load) int64 { return l.Refusals }), column(func(l Load) int64 { return l.Received }),
				column(func(l Load) int64 { return l.Sent }))
			return err
		})
}

// OrganizationLoad is the load of one organization.
type OrganizationLoad struct {
	Organization domain.OrganizationID // zero: requests without a valid credential
	Plan, Name   string                // the name is empty once erased
	Load
}

// Top reads the load of all organizations since a time, the heaviest by a measure first.
func (s AllowanceReader) Top(ctx context.Context, since time.Time, by func(Load) int64) ([]OrganizationLoad, error) {
	list, err := allShards(ctx, s.reader, "read the load of organizations",
		func(row pgx.CollectableRow) (l OrganizationLoad, err error) {
			err = row.Scan(&l.Organization, &l.Plan, &l.Name, &l.Requests, &l.Registrations, &l.Refusals, &l.Received, &l.Sent)
			return l, err
		}, readTraffic, since.Unix()/60)
	slices.SortStableFunc(list, func(a, b OrganizationLoad) int { return cmp.Compare(by(b.Load), by(a.Load)) })
	return list, err
}
