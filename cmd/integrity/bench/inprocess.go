package bench

import (
	"context"
)

const (
	singleOne  = "group size one, 1 organization"
	singleMany = "group size one, 16 organizations"
	groupsOne  = "in process, 1 organization"
	groupsMany = "in process, 16 organizations"

	// groupsConcurrency is that of the target of one busy organization.
	groupsConcurrency = 512
)

// A transaction for each registration, at the best concurrency that there is.

func (r *run) singleOne(ctx context.Context) (*contender, error) {
	return r.inProcess(ctx, singleOne, 1, r.lab.one, 0, 1, 2, 4, 8, 32)
}

func (r *run) singleMany(ctx context.Context) (*contender, error) {
	return r.inProcess(ctx, singleMany, 1, r.lab.many, 0, 4, 8, 16, 32, 64)
}

// Groups, as the service makes them.

func (r *run) groupsOne(ctx context.Context) (*contender, error) {
	return r.inProcess(ctx, groupsOne, 0, r.lab.one, groupsConcurrency)
}

func (r *run) groupsMany(ctx context.Context) (*contender, error) {
	return r.inProcess(ctx, groupsMany, 0, r.lab.many, groupsConcurrency)
}

// inProcess registers with a ledger in this process; weight is the most commands in a transaction, 0 the default.
func (r *run) inProcess(ctx context.Context, name string, weight int, organizations []*organization, workers int, tries ...int) (*contender, error) {
	ledger, stop, err := r.lab.open(ctx, weight)
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { stop(); return nil })
	return &contender{
		name: name, workers: workers, tries: tries, organizations: len(organizations), unit: "registrations", ledger: true,
		call: func(ctx context.Context, worker int) (int, error) {
			return 1, r.lab.register(ctx, ledger, organizations[worker%len(organizations)])
		},
	}, nil
}
