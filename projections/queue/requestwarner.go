package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// unwarnedOf finds organizations of a shard that reached a threshold of an allowance without a warning. They have a
// meter's note in month $2, or in the previous month $3 if it was made after $4, for the limit that their plan sets
// ($5, with $6 for requests and $7 for attempts). It agrees with domain.WarnOfMeters: an organization is found only
// until it has been warned. The last charge noted at least the lowest threshold that it reached, so only notes with the
// limit of the 80 % note are used. Otherwise, if the plan tables of two processes differ, each would find the notes of
// its own limit behind the other's warning again and again.
const unwarnedOf = `SELECT DISTINCT r.organization_id FROM unnest(ARRAY[$2, $3]::int[]) AS p(period)
	JOIN LATERAL (SELECT organization_id, period, reached_80, reached_95, reached_100, limit_80, limit_95, limit_100 FROM {%[1]s}
		WHERE shard = %[4]s AND period = p.period AND reached_80 IS NOT NULL OFFSET 0) r ON true
	JOIN LATERAL (SELECT plan, internal FROM {organization_state} WHERE shard = %[4]s AND organization_id = r.organization_id OFFSET 0) o ON true
	JOIN unnest($5::text[], $6::bigint[], $7::bigint[]) AS l(plan, requests, attempts) ON l.plan = o.plan AND NOT o.internal
	LEFT JOIN LATERAL (SELECT period, of_limit, at_80, at_95, at_100 FROM {allowance_warnings}
		WHERE shard = %[4]s AND organization_id = r.organization_id AND allowance = '%[2]s' OFFSET 0) w ON true
	CROSS JOIN LATERAL (VALUES (r.reached_80, r.limit_80, w.at_80), (r.reached_95, r.limit_95, w.at_95), (r.reached_100, r.limit_100, w.at_100)) AS n(reached, most, given)
	WHERE n.reached IS NOT NULL AND n.most = l.%[3]s AND r.limit_80 = n.most AND (n.given IS NULL OR w.period <> r.period OR w.of_limit <> n.most)
		AND (r.period = $2 OR n.reached > $4 AND (w.period IS NULL OR w.period <= r.period))`

var (
	unwarned    = cluster.SQL(strings.Join(unwarnedIn("$1"), " UNION "))
	anyUnwarned = Due(unwarnedIn("s.shard")...)
)

// unwarnedIn returns the query of each allowance for a shard.
func unwarnedIn(shard string) []string {
	of := func(a domain.Allowance, limits string) string {
		return fmt.Sprintf(unwarnedOf, projections.MeterTables[a], a, limits, shard)
	}
	return []string{of(domain.RequestsAllowance, "requests"), of(domain.AttemptsAllowance, "attempts")}
}

// MeterWarner turns the notes of the meters of requests and webhook attempts into events: at once if this process
// counted the request, otherwise at its next check. Several processes may run one; a warning that two of them find is
// recorded once.
type MeterWarner struct {
	Pool   eventstore.Database
	Shards int
	Plans  domain.Plans
	// Do executes the service's own command.
	Do  func(context.Context, domain.Command) error
	Now func() time.Time
	Log *slog.Logger
}

// warnEvery is the time between two checks for notes of other processes.
const warnEvery = 10 * time.Second

// NewMeterWarner returns the loop of a MeterWarner.
func NewMeterWarner(w MeterWarner) *Loop {
	return NewLoop(Loop{Pool: w.Pool, Shards: Shards(w.Shards), Every: warnEvery, Log: w.Log,
		Failure: "warnings of what the month has used have to wait", Work: w.warn,
		Due: func(ctx context.Context) ([]domain.Shard, error) {
			return DueIn(ctx, w.Pool, w.Shards, anyUnwarned, w.arguments()...)
		}})
}

// arguments returns the arguments of unwarnedOf after the shard.
func (w MeterWarner) arguments() []any {
	now, names := w.Now(), w.Plans.Names()
	period := domain.PeriodOf(now)
	return []any{
		int32(period), int32(period.Previous()), now.Add(-domain.WarningLifetime), names,
		statement.Column(names, func(name string) *int64 { return w.Plans[name].RequestsPerMonth }),
		statement.Column(names, func(name string) *int64 { return w.Plans[name].WebhookAttemptsPerMonth }),
	}
}

// warn warns every organization of a shard with an open warning.
func (w MeterWarner) warn(ctx context.Context, shard domain.Shard) (more bool, err error) {
	found, err := statement.All(ctx, w.Pool, "find whom to warn of what the month has used",
		pgx.RowTo[domain.OrganizationID],
		unwarned, append([]any{shard}, w.arguments()...)...)
	if err != nil {
		return false, err
	}
	for _, id := range found {
		origin := domain.Origin{Organization: id, Actor: domain.SystemActor, RequestID: "requests"}
		if err := w.Do(ctx, &domain.WarnOfMeters{Origin: origin}); err != nil {
			return false, fmt.Errorf("warn organization %s of what its month has used: %w", origin.Organization, err)
		}
	}
	return false, nil
}
