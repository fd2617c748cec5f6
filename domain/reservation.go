package domain

import (
	"cmp"
	"fmt"
	"time"
)

// Limits of reservations (specification, Limits; contract section 3).
const (
	ReservationLife        = 7 * 24 * time.Hour
	MaxPendingReservations = 1_000  // active ones of an organization
	MaxUnfinalized         = 10_000 // versions of an organization that were reserved and never registered
)

// ReservationStatus says where a reservation stands; it follows from the
// version and the clock, so no job is needed for the answer to be right.
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
	ExpiresAt time.Time // of a released one, when it was released
	Status    ReservationStatus
}

// ReservedVersion is a version that was reserved and is not registered, as its organization sees it.
type ReservedVersion struct {
	VersionReference
	Reservation
}

// Reservation shows the version as a reservation at now. Finalization, with or
// without a reservation before it, sets the expiry to receivedAt and seven days.
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

// Reserved shows a version that is not registered as its organization sees it at now.
func (v *Version) Reserved(companyReference string, now time.Time) ReservedVersion {
	return ReservedVersion{
		VersionReference{companyReference, v.Document.Source, v.Document.Reference, v.Version}, v.Reservation(now),
	}
}

// Reserve gives a version its public id before the file is final, or renews that.
type Reserve struct {
	Origin
	Key     KeyID
	Limits  KeyLimits // of the key; a reservation is held to its source
	Version VersionReference
	// PublicID is a fresh one (NewPublicID), for a version that has none.
	PublicID PublicID

	documentID DocumentID // used where nothing of the document is known

	Outcome  Reservation
	Replayed bool // the version was reserved or registered before
}

func (c *Reserve) Need(n *Needs) {
	n.Declarations = append(n.Declarations, DeclarationNeed{c.Organization, c.Key, c.Version})
	n.Pending = append(n.Pending, c.Organization)
	n.Warnings = true
}

// Decide implements Command. Both limits are counted under the shard's lock, so they are exact, and they refuse new
// versions only. A known version always answers with its public id, for its file may hold the link already. It is
// renewed unless it is registered, its company is closed, or it is not pending and the pending ones are as many as
// there may be: then it is answered as it stands.
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

// UnfinalizedMost is how many versions the organization may reserve and leave
// unregistered: the operator's number for it, else MaxUnfinalized.
func (o *Organization) UnfinalizedMost() int {
	if o.UnfinalizedLimit != nil {
		return int(*o.UnfinalizedLimit)
	}
	return MaxUnfinalized
}

// checkUnfinalized refuses one more version that may never be registered.
// Nothing but registrations, or the operator, makes room.
func (o *Organization) checkUnfinalized() error {
	if o.Unfinalized < o.UnfinalizedMost() {
		return nil
	}
	return Refuse(UnfinalizedIdentityLimit,
		"This organization has %d reserved versions that were never registered and may have no more: register them, or "+
			"ask the operator for a higher limit.", o.Unfinalized)
}

// pendingOf counts an organization's active reservations, and tells when the first of them expires.
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

// checkPending refuses one more active reservation. It can succeed again when the first of them expires.
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

// checkReservation judges the reservation that a declaration names. reserved is
// the declared version's own, or nil. A declaration may always leave it out.
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

// VersionReservedBody gives a version its public id before it is registered, or renews that.
type VersionReservedBody struct {
	DocumentID DocumentID `json:"documentId"`
	VersionReference
	PublicID  PublicID  `json:"publicId"`
	ExpiresAt time.Time `json:"expiresAt"`
	Renewed   bool      `json:"renewed"` // the version was reserved before
}

func (b *VersionReservedBody) apply(s *State, e *Event) error {
	d := s.AddDocument(Document{
		ID: b.DocumentID, Organization: e.Organization, Company: e.Company, Source: b.Source, Reference: b.DocumentReference,
	})
	known := s.versions[versionKey{d.ID, b.Version}]
	switch {
	case b.Renewed != (known != nil) || known != nil && (known.Registered() || known.PublicID != b.PublicID):
		return fmt.Errorf("event %s cannot reserve version %d", e.ID, b.Version)
	case known != nil:
		known.ExpiresAt, known.Released = b.ExpiresAt, false
	default:
		s.AddVersion(Version{Document: d, Version: b.Version, PublicID: b.PublicID, ExpiresAt: b.ExpiresAt})
		s.organizations[e.Organization].Unfinalized++
	}
	s.AddPending(e.Organization, b.PublicID, b.ExpiresAt)
	return nil
}

// ReleaseReservation gives the place of a pending reservation back at once. The version stays one of those that were
// never registered: with its public id, to be reserved again or registered as if the reservation had expired.
type ReleaseReservation struct {
	Origin
	Key      KeyID
	Limits   KeyLimits // of the key, which is held to its source
	PublicID PublicID

	Outcome  ReservedVersion
	Replayed bool // it was released before, or had expired
}

func (c *ReleaseReservation) Need(n *Needs) {
	n.Records = append(n.Records, RecordNeed{Key: c.Key, PublicID: c.PublicID})
}

// Decide implements Command. What the key may not see answers as unknown.
func (c *ReleaseReservation) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.public[c.PublicID]
	if known == nil || known.Document.Organization != c.Organization || !s.Granted(c.Key, known.Document.Company) {
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

// VersionReleasedBody gives the place of a pending reservation back; from then on it counts as expired.
type VersionReleasedBody struct {
	DocumentID DocumentID `json:"documentId"`
	Version    int32      `json:"version"`
}

func (b *VersionReleasedBody) apply(s *State, e *Event) error {
	v := s.versions[versionKey{b.DocumentID, b.Version}]
	if v == nil || v.Registered() {
		return fmt.Errorf("event %s releases a version that is not reserved", e.ID)
	}
	v.ExpiresAt, v.Released = e.OccurredAt, true
	s.AddPending(e.Organization, v.PublicID, time.Time{}) // not active, even where the clock is taken back
	return nil
}
