package query

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// Publisher is what an organization says about itself.
type Publisher struct {
	Domains []CheckedDomain // oldest first
	Name    *domain.PublisherName
}

// CheckedDomain is a domain with its last check, which is zero without one.
type CheckedDomain struct {
	domain.PublisherDomain
	TriedAt *time.Time
	Found   string // see publishers.ReadSighting
}

// Public returns the part that the public may see at a time. A name is shown only beside a domain: without one,
// everybody could take any name.
func (p Publisher) Public(now time.Time) (public Publisher) {
	for _, d := range p.Domains {
		if d.Public(now) {
			public.Domains = append(public.Domains, d)
		}
	}
	if public.Domains != nil {
		public.Name = p.Name
	}
	return public
}

var (
	findPublisherDomains = cluster.SQL(`SELECT ` + projections.PublisherDomainColumns + `, c.tried_at, coalesce(c.found, '')
	FROM (SELECT statement_id, organization_id, domain_id, added_at, method, checked_at, failed_days, failed_at, lapsed_at
		FROM {publisher_domains} WHERE shard = $1 AND organization_id = $2 AND removed_at IS NULL OFFSET 0) p
	JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = p.domain_id OFFSET 0) t ON true
	LEFT JOIN LATERAL (SELECT tried_at, found FROM {publisher_checks}
		WHERE shard = $1 AND statement_id = p.statement_id OFFSET 0) c ON true
	ORDER BY p.statement_id`)
	findPublisherName = cluster.SQL(`SELECT ` + projections.PublisherNameColumns + `
	FROM (SELECT statement_id, organization_id, name_id, member_id, stated_at
		FROM {publisher_names} WHERE shard = $1 AND organization_id = $2 AND withdrawn_at IS NULL OFFSET 0) p
	JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = p.name_id OFFSET 0) t ON true
	WHERE t.body IS NOT NULL`)
)

// Publisher reads what an organization says about itself, for its members.
func (s OrganizationReader) Publisher(ctx context.Context, o domain.OrganizationID) (Publisher, error) {
	return publisher(ctx, s.Pool, o)
}

// PublisherOf reads what the organization of a record says about itself, for anyone. It reads nothing if the record's
// evidence says that there is nothing.
func (s RecordReader) PublisherOf(ctx context.Context, e *Evidence, now time.Time) (Publisher, error) {
	if !e.Published {
		return Publisher{}, nil
	}
	all, err := publisher(ctx, s.Public, e.Event.Organization)
	return all.Public(now), err
}

func publisher(ctx context.Context, from history.Querier, o domain.OrganizationID) (p Publisher, err error) {
	domains, first := statement.All(ctx, from, "read domains", func(row pgx.CollectableRow) (d CheckedDomain, err error) {
		d.PublisherDomain, err = projections.ScanPublisherDomainAnd(row, &d.TriedAt, &d.Found)
		return d, err
	}, findPublisherDomains, o.Shard(), o)
	names, second := statement.All(
		ctx, from, "read the name", projections.ScanPublisherName, findPublisherName, o.Shard(), o,
	)
	p.Domains = domains
	if len(names) > 0 {
		p.Name = &names[0]
	}
	return p, errors.Join(first, second)
}
