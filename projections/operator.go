package projections

import (
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

// Operator is the person behind an operator's command. Events do not name people, so the person is recorded in a table
// beside the log. The table is not a projection, and only operators read it.
type Operator struct {
	Person  string // system user
	Host    string
	Command string // without arguments
}

// OperatorAct is one run of a command that changed an organization.
type OperatorAct struct {
	Organization domain.OrganizationID
	OccurredAt   time.Time
	RequestID    string // in the events of the run
	Operator
}

// WriteOperatorActs is the statement of Operator.Record.
var WriteOperatorActs = cluster.SQL(`INSERT INTO {operator_acts} (shard, organization_id, request_id, occurred_at, person, host, command)
	SELECT s.shard, n.organization_id, n.request_id, n.occurred_at, $5, $6, $7
	FROM {shard_heads} s, unnest($2::uuid[], $3::text[], $4::timestamptz[]) AS n(organization_id, request_id, occurred_at)
	WHERE s.shard = $1 ORDER BY n.organization_id, n.request_id
	ON CONFLICT DO NOTHING`)

// Record queues the person behind events of OperatorActor, in the transaction that appends them.
func (o Operator) Record(b *pgx.Batch, shard domain.Shard, events []domain.Event) {
	var acts []domain.Event
	for _, e := range events {
		if e.Actor == domain.OperatorActor {
			acts = append(acts, e)
		}
	}
	if acts == nil {
		return
	}
	b.Queue(WriteOperatorActs, shard,
		column(acts, func(e domain.Event) domain.OrganizationID { return e.Organization }),
		column(acts, func(e domain.Event) string { return e.RequestID }),
		column(acts, func(e domain.Event) time.Time { return e.OccurredAt }),
		o.Person, o.Host, o.Command)
}
