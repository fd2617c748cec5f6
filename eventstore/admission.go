package eventstore

import (
	"context"

	"integrityledger/domain"
)

// Admission is places in the queue of a shard for commands of one organization that are yet to be made. What is
// expensive, a signature above all, is spent on admitted commands only: otherwise an organization that sends more than
// its share has the service work for answers that refuse. Release must be called; it is not safe for concurrent use.
type Admission struct {
	ledger       *Ledger
	queue        *queue
	organization domain.OrganizationID
	places       int
}

// Admit takes places for up to n commands of an organization: fewer, or none, where the queue or the organization's
// share of it is full. It never waits. The error is that of a ledger which is being closed.
func (l *Ledger) Admit(organization domain.OrganizationID, n int) (*Admission, error) {
	q, err := l.queue(organization.Shard())
	if err != nil {
		return nil, err
	}
	a := &Admission{ledger: l, queue: q, organization: organization}
	a.places, err = q.admit(organization, n)
	return a, err
}

// Places is how many commands may still come.
func (a *Admission) Places() int { return a.places }

// Execute is Ledger.Execute for commands that have their places. One too many, or of another organization, is taken in
// as if it had not been admitted.
func (a *Admission) Execute(ctx context.Context, commands ...domain.Command) []Answer {
	return a.ledger.execute(ctx, a, commands)
}

// use takes the place of a command, where there is one.
func (a *Admission) use(it item) bool {
	if a == nil || a.places == 0 || it.command.CommandOrigin().Organization != a.organization {
		return false
	}
	a.places--
	return true
}

// Release gives back the places that no command has come for.
func (a *Admission) Release() {
	a.queue.release(a.organization, a.places)
	a.places = 0
}
