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

// Limits of an organization's single registrations, reservations and revocations in progress. An organization alone on
// the service may have enough to fill the largest groups. Beside others it may have only so few that their requests
// wait neither for a processor nor for long transactions.
const (
	singlesShare   = 64
	singlesAlone   = 1024
	singlePatience = 5 * time.Second // the longest wait of a request
	singlesLine    = 2048
)

func newSingles(closing <-chan struct{}) *fair.Semaphore[domain.OrganizationID] {
	return fair.NewSemaphore[domain.OrganizationID](fair.Limits{
		Most: math.MaxInt, Each: singlesShare, Alone: singlesAlone, Line: singlesLine, Patience: singlePatience,
		Closing: closing,
	})
}

// Single makes an action that waits until the organization may have another single command in progress.
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

// preparers returns the number of processors that may prepare batches: all but one, which stays free for other
// requests.
func preparers() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// preparedAtOnce is the number of batch items prepared in one turn of their organization.
const preparedAtOnce = 8

// inTurns calls do for every item of 0…n-1, with a few items in each of the organization's turns on a processor. It
// stops when ctx ends.
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
		"The service was too busy to process the request in time. Nothing was registered; send the request again.",
	)
}

// usedVersions caches what organizations with a limit have used of the month's new versions, and have left of their
// backfill allowance. Declarations beyond the remainder are not signed in advance. The remainder is too low between a
// new backfill allowance and the next decision. The cache decides nothing: a replay succeeds even if the quota is
// exhausted, and Decide signs every declaration that it accepts. usedVersions is safe for concurrent use.
type usedVersions struct {
	organizations *lru.Cache[domain.OrganizationID, knownUse]
}

type knownUse struct {
	period         domain.Period
	used, backfill int64
}

const maxUsedVersions = 10_000

func newUsedVersions() *usedVersions {
	organizations, _ := lru.New[domain.OrganizationID, knownUse](maxUsedVersions) // fails only for a size below 1
	return &usedVersions{organizations}
}

// note updates the cache after a decision. Of two concurrent calls, the older numbers may win.
func (u *usedVersions) note(o domain.OrganizationID, usage domain.Usage, backfill int64) {
	known, _ := u.organizations.Get(o)
	if usage.Limit == nil || usage.Period < known.period {
		return
	}
	now := knownUse{usage.Period, usage.Used, backfill}
	if known.period == now.period {
		now.used = max(now.used, known.used)
	}
	if now != known {
		u.organizations.Add(o, now)
	}
}

// remaining returns how many of n new versions the quota and the backfill allowance may still have room for.
func (u *usedVersions) remaining(o domain.OrganizationID, limit *int64, p domain.Period, n int) int {
	if limit == nil {
		return n
	}
	known, _ := u.organizations.Get(o)
	left := *limit
	if known.period == p {
		left = max(0, left-known.used)
	}
	return int(max(0, min(left+known.backfill, int64(n))))
}
