package domain

import (
	"cmp"
	"time"

	"integrityledger/domain/say"
)

// Limits of reservations (specification, Limits; contract section 3).
const (
	ReservationLife        = 7 * 24 * time.Hour
	MaxPendingReservations = 1_000  // active ones of an organization
	MaxUnfinalized         = 10_000 // reserved but never registered versions of an organization
)

// ReservationStatus is the status of a reservation. It follows from the version and the clock, so no job needs to
// update it.
type ReservationStatus string

// A reservation is pending for seven days, then expired, unless its organization released it before or a
// registration finalized it. An expired or released one keeps its public id.
const (
	ReservationPending   ReservationStatus = "pending"
	ReservationExpired   ReservationStatus = "expired"
	ReservationReleased  ReservationStatus = "released"
	ReservationFinalized ReservationStatus = "finalized"
)

// Reservation is a version's claim to its public id.
type Reservation struct {
	PublicID  PublicID
	ExpiresAt time.Time // the time of its release, if it was released
	Status    ReservationStatus
}

// ReservedVersion is a reserved but unregistered version, for its organization.
type ReservedVersion struct {
	VersionReference
	Reservation
}

// Reservation returns the version as a reservation at now. Finalization, with or without an earlier reservation, sets
// the expiry to seven days after receivedAt.
func (v *Version) Reservation(now time.Time) Reservation {
	r := Reservation{PublicID: v.PublicID, ExpiresAt: v.ExpiresAt, Status: ReservationPending}
	switch {
	case v.Registered():
		r.ExpiresAt, r.Status = v.ReceivedAt.Add(ReservationLife), ReservationFinalized
	case v.Released:
		r.Status = ReservationReleased
	case !v.ExpiresAt.After(now):
		r.Status = ReservationExpired
	}
	return r
}

// Reserved returns an unregistered version at now, for its organization.
func (v *Version) Reserved(companyReference string, now time.Time) ReservedVersion {
	return ReservedVersion{
		VersionReference{companyReference, v.Document.Source, v.Document.Reference, v.Version}, v.Reservation(now),
	}
}

// Reserve gives a version its public id before the file is final, or renews the reservation.
type Reserve struct {
	Origin
	Key     KeyID
	Limits  KeyLimits // of the key; only the source applies
	Version VersionReference
	// PublicID is a new one (NewPublicID), for a version without a public id.
	PublicID PublicID

	documentID DocumentID // used for a new document

	Outcome  Reservation
	Replayed bool // the version was reserved or registered before
}

func (c *Reserve) Need(n *Needs) {
	n.Declarations = append(n.Declarations, DeclarationNeed{c.Organization, c.Key, c.Version})
	n.Pending = append(n.Pending, c.Organization)
	n.Warnings = true
}

// Decide implements Command. Both limits are counted under the shard's lock, so they are exact, and they refuse only
// new versions. A known version always returns its public id, because its file may already contain the link. Its
// reservation is renewed unless it is registered, its company is closed, or it is not pending and the limit of pending
// ones is reached. In these cases it is returned unchanged.
func (c *Reserve) Decide(s *State, now time.Time) ([]Draft, error) {
	v := c.Version
	o, company, err := s.declarant(c.Origin, c.Key, c.Limits, v)
	if err != nil {
		return nil, err
	}
	b := &VersionReservedBody{
		DocumentID: c.documentID.draw(now), VersionReference: v, PublicID: c.PublicID, ExpiresAt: now.Add(ReservationLife),
	}
	var known *Version
	if document := s.Document(company.ID, v.Source, v.DocumentReference); document != nil {
		b.DocumentID = document.ID
		known = s.Version(document.ID, v.Version)
	}
	c.Outcome, c.Replayed = Reservation{PublicID: b.PublicID, ExpiresAt: b.ExpiresAt, Status: ReservationPending}, false
	active, _ := s.pendingOf(c.Organization, now)
	newPending := true
	if known != nil {
		is := known.Reservation(now)
		b.PublicID, b.Renewed = known.PublicID, true
		c.Outcome.PublicID, c.Replayed = known.PublicID, known.PublicID != c.PublicID
		if is.Status == ReservationFinalized || is.ExpiresAt.Equal(b.ExpiresAt) || company.ClosedAt != nil ||
			is.Status != ReservationPending && active >= MaxPendingReservations {
			c.Outcome = is
			return nil, nil
		}
		newPending = is.Status != ReservationPending
	} else if err := cmp.Or(
		company.takesVersions(), o.checkUnfinalized(), s.checkPending(c.Organization, now),
	); err != nil {
		return nil, err
	}
	drafts := []Draft{{Company: company.ID, Subject: b.PublicID.String(), Body: b}}
	if newPending {
		drafts = append(drafts,
			s.warn(o, PendingAllowance, PeriodOf(now), int64(active+1), new(int64(MaxPendingReservations)))...)
	}
	if known == nil {
		drafts = append(drafts,
			s.warn(o, UnfinalizedAllowance, PeriodOf(now), int64(o.Unfinalized+1), new(int64(o.UnfinalizedMost())))...)
	}
	return drafts, nil
}

// UnfinalizedMost returns the organization's limit of reserved but unregistered versions: the operator's limit if set,
// otherwise MaxUnfinalized.
func (o *Organization) UnfinalizedMost() int {
	if o.UnfinalizedLimit != nil {
		return int(*o.UnfinalizedLimit)
	}
	return MaxUnfinalized
}

// checkUnfinalized refuses a reservation beyond the limit of unregistered versions. Only registrations, or the
// operator, make room.
func (o *Organization) checkUnfinalized() error {
	if o.Unfinalized < o.UnfinalizedMost() {
		return nil
	}
	return Refuse(UnfinalizedIdentityLimit,
		"This organization has %d reserved versions that were never registered and may have no more: register them, or "+
			"ask the operator for a higher limit.", o.Unfinalized)
}

// pendingOf returns the number of an organization's active reservations, and the first expiry.
func (s *State) pendingOf(id OrganizationID, now time.Time) (active int, earliest time.Time) {
	for _, expires := range s.pending[id] {
		if !expires.After(now) {
			continue
		}
		if active++; active == 1 || expires.Before(earliest) {
			earliest = expires
		}
	}
	return active, earliest
}

// checkPending refuses a reservation beyond the limit of active ones. It can succeed when the first of them expires.
func (s *State) checkPending(id OrganizationID, now time.Time) error {
	active, earliest := s.pendingOf(id, now)
	if active < MaxPendingReservations {
		return nil
	}
	return Refuse(
		PendingReservationLimit,
		"This organization has %d pending reservations and may have no more: register or release some of them, or wait "+
			"until one expires.",
		active,
	).After(earliest.Sub(now))
}

// checkReservation checks the reservation that a declaration names. reserved is the declared version's own, or nil. A
// declaration may always omit it.
func (d *Declaration) checkReservation(s *State, company CompanyID, reserved *Version) error {
	if d.ReservationID == nil || reserved != nil && reserved.PublicID == *d.ReservationID {
		return nil
	}
	if other := s.public[*d.ReservationID]; other != nil && other.Document.Company == company {
		return Refuse(
			ReservationMismatch,
			"That reservationId belongs to another version of this company: send the one of this version, or none.",
		)
	}
	return InvalidMember("/reservationId", "UNKNOWN", "must name a reservation of this company")
}

// VersionReservedBody gives a version its public id before it is registered, or renews the reservation.
type VersionReservedBody struct {
	DocumentID DocumentID `json:"documentId"`
	VersionReference
	PublicID  PublicID  `json:"publicId"`
	ExpiresAt time.Time `json:"expiresAt"`
	Renewed   bool      `json:"renewed"` // the version was already reserved
}

func (b *VersionReservedBody) apply(s *State, e *Event) error {
	d := s.AddDocument(Document{
		ID: b.DocumentID, Organization: e.Organization, Company: e.Company, Source: b.Source, Reference: b.DocumentReference,
	})
	known := s.versions[versionKey{d.ID, b.Version}]
	switch {
	case b.Renewed != (known != nil) || known != nil && (known.Registered() || known.PublicID != b.PublicID):
		return say.Errorf("event %s cannot reserve version %d", e.ID, b.Version)
	case known != nil:
		known.ExpiresAt, known.Released = b.ExpiresAt, false
	default:
		s.AddVersion(Version{Document: d, Version: b.Version, PublicID: b.PublicID, ExpiresAt: b.ExpiresAt})
		s.organizations[e.Organization].Unfinalized++
	}
	s.AddPending(e.Organization, b.PublicID, b.ExpiresAt)
	return nil
}

// ReleaseReservation frees the place of a pending reservation at once. The version stays unregistered and keeps its
// public id. It can be reserved again or registered, as if the reservation had expired.
type ReleaseReservation struct {
	Origin
	Key      KeyID
	Limits   KeyLimits // of the key; only the source applies
	PublicID PublicID

	Outcome  ReservedVersion
	Replayed bool // it was already released, or had expired
}

func (c *ReleaseReservation) Need(n *Needs) {
	n.Records = append(n.Records, RecordNeed{Key: c.Key, PublicID: c.PublicID})
}

// Decide implements Command. A version that the caller may not see counts as unknown.
func (c *ReleaseReservation) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.public[c.PublicID]
	if known == nil || known.Document.Organization != c.Organization ||
		!s.mayUse(c.Origin, c.Key, known.Document.Company) {
		return nil, ErrUnknownReservation
	}
	if source := c.Limits.Source; source != nil && *source != known.Document.Source {
		return nil, InvalidMember(
			"/publicId", "KEY_LIMIT",
			"must be a reservation of the one source that this key may declare; use a key of that source",
		)
	}
	if known.Registered() {
		return nil, Refuse(
			InvalidState,
			"This version is registered, so there is no reservation to release; a record is revoked, where it must be.",
		)
	}
	company := s.companies[known.Document.Company]
	c.Outcome = known.Reserved(company.Reference, now)
	if c.Replayed = c.Outcome.Status != ReservationPending; c.Replayed {
		return nil, nil
	}
	c.Outcome.ExpiresAt, c.Outcome.Status = now, ReservationReleased
	b := &VersionReleasedBody{DocumentID: known.Document.ID, Version: known.Version}
	return []Draft{{Company: company.ID, Subject: c.PublicID.String(), Body: b}}, nil
}

// VersionReleasedBody frees the place of a pending reservation, which counts as expired from then on.
type VersionReleasedBody struct {
	DocumentID DocumentID `json:"documentId"`
	Version    int32      `json:"version"`
}

func (b *VersionReleasedBody) apply(s *State, e *Event) error {
	v := s.versions[versionKey{b.DocumentID, b.Version}]
	if v == nil || v.Registered() {
		return say.Errorf("event %s releases a version that is not reserved", e.ID)
	}
	v.ExpiresAt, v.Released = e.OccurredAt, true
	s.AddPending(e.Organization, v.PublicID, time.Time{}) // not active, even if the clock is set back
	return nil
}
