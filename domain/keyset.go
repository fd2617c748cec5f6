package domain

import (
	"encoding/json"
	"time"

	"integrityledger/domain/evidence"
)

// KeySets is the rule that lets the installation publish its trusted keys: a program that does not know it could not
// read the event.
const KeySets Rule = "key-sets"

// InstallationID is the organization of the installation itself: it has no members, keys and companies, and its events
// belong to no tenant. Its first command creates it, in shard 0. Its id is a UUIDv7 of time zero without random bits,
// which no other organization can have.
var InstallationID = OrganizationID{6: 0x70, 8: 0x80}

const installationName = "installation"

// KeysPublishedBody publishes the trusted keys. Its canonical form is the payload of evidence.KeySet, and the leaf of
// the event has its SHA-256.
type KeysPublishedBody struct {
	Contract    string          `json:"contract"`
	Issuer      string          `json:"issuer"`
	TrustedKeys json.RawMessage `json:"trustedKeys"`
}

// apply changes nothing, because no decision depends on the published keys.
func (*KeysPublishedBody) apply(*State, *Event) error { return nil }

// ErrNoKeySetsYet means that the rule is off.
var ErrNoKeySetsYet = Refuse(
	InvalidState, "The trusted keys cannot be published before every process of the service has been upgraded.",
)

// PublishKeys publishes a key set in the history of the installation.
type PublishKeys struct {
	Origin // of InstallationID
	Set    evidence.KeySet
	// After is the installation's sequence for which the caller found that the set is not the last published one. If
	// another command has published since, this one is refused.
	After int64

	name Text
}

func (*PublishKeys) Need(*Needs) {}

// Decide implements Command. The installation has the plan that every table of plans contains, and no limits.
func (c *PublishKeys) Decide(s *State, now time.Time) ([]Draft, error) {
	if !s.Follows(KeySets) {
		return nil, ErrNoKeySetsYet
	}
	var body KeysPublishedBody
	if err := json.Unmarshal(c.Set.Payload, &body); err != nil {
		return nil, err
	}
	subject := InstallationID.String()
	publish := Draft{Subject: subject, Body: &body}
	o := s.Organization(InstallationID)
	switch {
	case o == nil && c.After == 0:
		return []Draft{{
			Subject: subject, Texts: []Text{c.name.draw(now, installationName)},
			Body: &OrganizationCreatedBody{Name: c.name.Ref(), Plan: FreePlan, Internal: true},
		}, publish}, nil
	case o == nil || o.Sequence != c.After:
		return nil, Refuse(
			InvalidState, "The keys were published by another command at the same time; run the command again.",
		)
	}
	return []Draft{publish}, nil
}

// ofInstallation reports whether a command may change the history of the installation.
func ofInstallation(c Command) bool {
	switch c.(type) {
	case *PublishKeys, *ResetClock:
		return true
	}
	return false
}
