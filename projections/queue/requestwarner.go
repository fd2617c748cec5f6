package queue

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/statement"
)

// unwarned finds organizations that reached a part of their allowance without a warning of it: in month $2, and in
// month $3 before it if that was after $4.
const unwarned = `SELECT r.organization_id FROM unnest(ARRAY[$2, $3]::int[]) AS p(period)
	JOIN LATERAL (SELECT organization_id, period, reached_80, reached_95, reached_100 FROM request_usage
		WHERE shard = $1 AND period = p.period AND reached_80 IS NOT NULL OFFSET 0) r ON true
	LEFT JOIN LATERAL (SELECT period, at_80, at_95, at_100 FROM allowance_warnings
		WHERE shard = $1 AND organization_id = r.organization_id AND allowance = 'requests' OFFSET 0) w ON true
	WHERE (w.period IS NULL OR w.period <= r.period OR r.period = $2) AND (r.period = $2 OR greatest(r.reached_80, r.reached_95, r.reached_100) > $4)
		AND (w.period IS DISTINCT FROM r.period OR w.at_80 IS NULL OR r.reached_95 IS NOT NULL AND w.at_95 IS NULL OR r.reached_100 IS NOT NULL AND w.at_100 IS NULL)`

// RequestWarner turns what the meter of requests has noted into events: at once if this process counted the request,
// otherwise at its next look. Several processes may run one; a warning that two of them find is decided once.
type RequestWarner struct {
	Pool   eventstore.Database
	Shards int
	// Do executes the service's own command.
	Do  func(context.Context, domain.Command) error
	Now func() time.Time
	Log *slog.Logger
}

// warnEvery is the time between two looks for what another process has noted.
const warnEvery = 10 * time.Second

// NewRequestWarner makes the loop of a warner.
func NewRequestWarner(w RequestWarner) *Loop {
	return NewLoop(Loop{Pool: w.Pool, Shards: Shards(w.Shards), Every: warnEvery, Log: w.Log, Failure: "warnings of the month's requests have to wait", Work: w.warn,
		Due: func(ctx context.Context) ([]domain.Shard, error) {
			return DueIn(ctx, w.Pool, w.Shards, w.periods(), unwarned)
		}})
}

// periods are the arguments of unwarned after the shard.
func (w RequestWarner) periods() []any {
	now := w.Now()
	period := domain.PeriodOf(now)
	return []any{int32(period), int32(period.Previous()), now.Add(-domain.WarningLifetime)}
}

// warn warns every organization of a shard that has an open warning.
func (w RequestWarner) warn(ctx context.Context, shard domain.Shard) (more bool, err error) {
	found, err := statement.All(ctx, w.Pool, "find whom to warn of the month's requests", pgx.RowTo[domain.OrganizationID], unwarned,
		append([]any{shard}, w.periods()...)...)
	if err != nil {
		return false, err
	}
	for _, id := range found {
		origin := domain.Origin{Organization: id, Actor: domain.SystemActor, RequestID: "requests"}
		if err := w.Do(ctx, &domain.WarnOfRequests{Origin: origin}); err != nil {
			return false, fmt.Errorf("warn organization %s of its month's requests: %w", origin.Organization, err)
		}
	}
	return false, nil
}
