package action

import (
	"context"
	"math"
	"runtime"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/edge"
)

// Single registrations, reservations and revocations of an organization that are under way at once. Alone it may have
// as many as fill the largest groups; beside others it has so few that theirs wait neither for a processor nor for long
// transactions.
const (
	singlesShare   = 64
	singlesAlone   = 1024
	singlePatience = 5 * time.Second // for which a request waits at most
	singlesLine    = 2048
)

func newSingles(closing <-chan struct{}) *fair.Semaphore[domain.OrganizationID] {
	return fair.NewSemaphore[domain.OrganizationID](fair.Limits{
		Most: math.MaxInt, Each: singlesShare, Alone: singlesAlone, Line: singlesLine, Patience: singlePatience,
		Closing: closing,
	})
}

// Single does a single command once the organization may have one more of them under way.
func Single[Input, Result any](s *Service, do edge.Action[Input, Result]) edge.Action[Input, Result] {
	return func(ctx context.Context, c *edge.Call, input Input) (result Result, err error) {
		release, err := s.singles.Acquire(ctx, c.Access.Organization, 1)
		if err != nil {
			return result, eventstore.QueueFull()
		}
		defer release()
		return do(ctx, c, input)
	}
}

// preparers is how many processors prepare batches: all but one, which stays free for everybody else's requests.
func preparers() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// preparedAtOnce is how many items of a batch are prepared in one turn of its organization.
const preparedAtOnce = 8

// inTurns calls do for every item of 0…n-1, a few in each of the organization's turns with a processor. It stops where
// ctx ends.
func (s *Service) inTurns(ctx context.Context, o domain.OrganizationID, n int, do func(item int)) error {
	var turns errgroup.Group
	turns.SetLimit(preparers())
	for first := 0; first < n; first += preparedAtOnce {
		turns.Go(func() error {
			release, err := s.preparing.Acquire(ctx, o, 1)
			if err != nil {
				return unprepared()
			}
			defer release()
			for i := first; i < min(first+preparedAtOnce, n); i++ {
				do(i)
			}
			return nil
		})
	}
	return turns.Wait()
}

func unprepared() error {
	return domain.Unavailable(
		"The service was too busy to take the request up in time; nothing of it was registered. Send it again.",
	)
}

// usedVersions remembers how many new versions organizations have used of the month at least, for those that have a
// limit. The number never falls within a month, so what remains is never more than this says: declarations beyond it
// are not signed before they are decided. It decides nothing: a replay succeeds with an exhausted quota, and Decide
// signs what it accepts. It is safe for concurrent use.
type usedVersions struct {
	organizations *lru.Cache[domain.OrganizationID, domain.Usage]
}

const maxUsedVersions = 10_000

func newUsedVersions() *usedVersions {
	organizations, _ := lru.New[domain.OrganizationID, domain.Usage](maxUsedVersions) // fails for a size below 1 only
	return &usedVersions{organizations}
}

// note learns from a decision. Of two at once the older may be the one that is remembered.
func (u *usedVersions) note(o domain.OrganizationID, usage domain.Usage) {
	known, _ := u.organizations.Get(o)
	if usage.Limit != nil && (usage.Period > known.Period || usage.Period == known.Period && usage.Used > known.Used) {
		u.organizations.Add(o, usage)
	}
}

// remaining is how many of n new versions the quota has room for at most.
func (u *usedVersions) remaining(o domain.OrganizationID, limit *int64, p domain.Period, n int) int {
	if limit == nil {
		return n
	}
	left := *limit
	if known, _ := u.organizations.Get(o); known.Period == p {
		left -= known.Used
	}
	return int(max(0, min(left, int64(n))))
}
