package transparency

import (
	"context"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

// ErrNoKeySet means that no trusted keys have been published.
var ErrNoKeySet = say.New("no trusted keys have been published: integrity keys publish")

// PublishedKeys are the trusted keys that were published last.
type PublishedKeys struct {
	evidence.KeySet
	Event domain.Event // that published them
}

var lastKeySet = cluster.SQL(`SELECT o.sequence, coalesce((SELECT e.sequence FROM {events} e
		WHERE e.shard = $1 AND e.organization_id = $2 AND e.type = 'keys.published' ORDER BY e.sequence DESC LIMIT 1), 0)
	FROM {organization_state} o WHERE o.shard = $1 AND o.organization_id = $2`)

// ReadPublishedKeys reads the trusted keys that were published last, from the event. It does not check that the tree
// contains the event. The error may be ErrNoKeySet. sequence, which is valid with that error too, is the installation's
// for domain.PublishKeys.After.
func ReadPublishedKeys(ctx context.Context, from history.Querier) (last PublishedKeys, sequence int64, err error) {
	var published int64                                                                          // sequence of the event
	rows, _ := from.Query(ctx, lastKeySet, domain.InstallationID.Shard(), domain.InstallationID) // rows carry its error
	if _, err := pgx.ForEachRow(rows, []any{&sequence, &published}, func() error { return nil }); err != nil {
		return last, 0, say.Errorf("look for published keys: %w", err)
	}
	if published == 0 {
		return last, sequence, ErrNoKeySet
	}
	events, err := history.NewOrganizationTail(from, domain.InstallationID, published-1).Next(ctx, 1)
	if err != nil {
		return last, 0, err
	}
	if len(events) == 0 {
		return last, 0, say.Errorf("read published keys: %w", history.ErrDamaged)
	}
	last.Event = events[0]
	if last.KeySet, err = evidence.ParseKeySet(last.Event.Data); err != nil {
		return last, 0, say.Errorf("position %d: %w: %w", last.Event.Position, err, history.ErrDamaged)
	}
	return last, sequence, nil
}

// PublishedKeys returns the trusted keys that were published last, with the proof that the published tree contains
// their event: KeySet.AppendProof writes both as a file. The proof is checked before it is returned. The error may be
// ErrNoKeySet, or ErrNotIntegrated until the next checkpoint.
func (r *Reader) PublishedKeys(ctx context.Context) (last PublishedKeys, proof *evidence.Inclusion, err error) {
	if last, _, err = ReadPublishedKeys(ctx, r.Pool); err != nil {
		return last, nil, err
	}
	proof, err = r.Inclusion(ctx, last.Event.Shard, last.Event.Position, last.Event.Leaf())
	return last, proof, err
}
