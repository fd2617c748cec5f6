package domain

import (
	"io"
	"time"
)

// ClockReset is the type of the events by which a shard whose head was dated by a wrong
// clock goes back to the right time.
const ClockReset EventType = "clock.reset"

// ClockResetBody says that the organization's shard goes back from the date of its head
// to that of this event: the one place where the dates of a history decrease. Every
// organization that has an event dated later than this one has such an event of its own.
type ClockResetBody struct {
	From time.Time `json:"from"`
}

func (*ClockResetBody) eventType() EventType                         { return ClockReset }
func (b *ClockResetBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }

// ResetClock takes an organization's history back from a date in the future.
type ResetClock struct {
	Origin
	From time.Time // of the shard's head

	drawn []Drawn
}

// NewResetClock prepares a reset.
func NewResetClock(origin Origin, from, now time.Time, random io.Reader) (*ResetClock, error) {
	drawn, err := Draw(now, random, 1)
	return &ResetClock{Origin: origin, From: from.UTC(), drawn: drawn}, err
}

// Need implements Command.
func (*ResetClock) Need(*Needs) {}

// Decide implements Command.
func (c *ResetClock) Decide(_ *State, now time.Time) ([]Draft, error) {
	if !now.Before(c.From) {
		return nil, Refuse(InvalidState, "The history is not dated in the future.")
	}
	return []Draft{{Drawn: c.drawn[0], Subject: c.Organization.String(), Body: &ClockResetBody{From: c.From}}}, nil
}
