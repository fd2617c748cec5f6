package domain

import (
	"slices"
	"time"
)

// AdministeredDay is the number of administrative events that an organization has caused in a UTC day.
type AdministeredDay struct {
	Organization OrganizationID
	Day          time.Time // its first moment
	Used         int64
}

// In returns the count for the day of now.
func (d AdministeredDay) In(now time.Time) AdministeredDay {
	if today := now.UTC().Truncate(24 * time.Hour); !d.Day.Equal(today) {
		d.Day, d.Used = today, 0
	}
	return d
}

// End returns the first moment of the next day, when the day's allowance resets.
func (d AdministeredDay) End() time.Time { return d.Day.AddDate(0, 0, 1) }

// AddAdministered loads an organization's count of its last day with administrative events.
func (s *Loaded) AddAdministered(d AdministeredDay) { s.administered.put(d.Organization, d) }

// Administered lists the counts that commands have raised in this state.
func (s *State) Administered() []AdministeredDay {
	list := make([]AdministeredDay, len(s.administering))
	for i, id := range s.administering {
		list[i] = s.administered[id]
	}
	return list
}

// administer charges the events of a command to its organization's day, or refuses the command when the day's allowance
// is used up. A command that takes something away is charged and never refused: a stolen key must not be able to stop
// its own revocation. The first command of a day is never refused either, so that a command with more events than the
// whole allowance can be executed.
func (s *State) administer(c Command, drafts []Draft, now time.Time) error {
	by, events := c.CommandOrigin(), int64(len(drafts))
	if events == 0 || !administrative(c) {
		return nil
	}
	o := s.organizations[by.Organization]
	if o == nil {
		return errUnknownOrganization
	}
	day := s.administered[by.Organization].In(now)
	most := s.plans.Of(o.Plan, o.Internal).AdministrativeEventsPerDay
	if most != nil && day.Used > 0 && day.Used+events > *most && !TakesAway(c) {
		return dayUsed(*most, day.End().Sub(now))
	}
	day.Organization = by.Organization
	day.Used += events
	s.administered.put(by.Organization, day)
	if !slices.Contains(s.administering, by.Organization) {
		s.administering = append(s.administering, by.Organization)
	}
	return nil
}

// dayUsed refuses an administrative command until the UTC day ends.
func dayUsed(most int64, reset time.Duration) *Error {
	return Refuse(
		RateLimited,
		"An organization may cause at most %d administrative events in a UTC day; wait until the next day. Revoking, "+
			"disabling and removing still work.",
		most,
	).After(reset).Of(DayLimit, most)
}

// administrative reports whether the events of a command are charged to its organization's day: all changes by members
// and keys, except API work that other allowances of the plan limit. In the console that work is also charged, because
// it takes no request of the month.
func administrative(c Command) bool {
	by := c.CommandOrigin()
	if !by.Actor.Judged() {
		return false
	}
	switch plain(c).(type) {
	case *Register, *Reserve, *ReleaseReservation, *Revoke, *RegisterArtifactVersion, *DeclareReview,
		*ApproveArtifactVersion, *IssueCertificate, *RevokeCertificate:
		return by.Console
	default:
		return true
	}
}

// TakesAway reports whether a command only revokes, disables or removes something. Such a command is counted, but the
// limits of the minute and the day never refuse it. Each needs something that a limited command has added, so their
// number is limited, too. Commands that change nothing do not count as such, nor does a repeated withdrawal of a grant,
// which is an event each time.
func TakesAway(c Command) bool {
	switch c := plain(c).(type) {
	case *RevokeKey, *DeleteWebhook, *RemovePasskey, *RemoveDomain, *WithdrawName, *WithdrawConsent, *Revoke,
		*RevokeCertificate, *ReleaseReservation:
		return true
	case *SetAccess:
		return !c.Enabled && !c.idle
	case *SetWebhookAccess:
		return !c.Enabled && !c.idle
	case *SetCompanyStatus:
		return c.Status == CompanyClosedStatus
	case *ChangeMember:
		return c.Role == nil && c.Status != nil && (*c.Status == MemberDisabled || *c.Status == MemberEnded)
	case *UpdateWebhook:
		return c.Status != nil && *c.Status == WebhookDisabled && c.URL == nil && c.Description == nil && c.Types == nil
	default:
		return false
	}
}
