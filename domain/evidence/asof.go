package evidence

import (
	"errors"
	"fmt"
	"time"

	"integrityledger/domain/strictjson"
)

// clockTolerance is how far the service's clock may be ahead of a verifier's.
const clockTolerance = 300 * time.Second

// ParseStatusAsOfPayload reads the signed bytes of a state as of an earlier moment,
// contract integrity-status-as-of-v1, as strictly as ParseRecordPayload.
func ParseStatusAsOfPayload(payload []byte) (StatusAsOfPayload, error) {
	return parsePayload(payload, StatusAsOfContract, func(o *strictjson.Object) StatusAsOfPayload {
		return StatusAsOfPayload{readStatus(o), readTime(o, "asOf"), o.Int("asOfSequence", 1, strictjson.MaxInteger, strictjson.Required)}
	})
}

// about refuses a state of another record than this one, and one that was observed in the verifier's future.
func (p StatusPayload) about(record Signed, publicID string, now time.Time) error {
	observedAt, _ := parseServiceTime(p.ObservedAt) // it was read strictly, so it parses
	switch {
	case p.PublicID != publicID || p.PayloadSHA256 != hexSHA256([]byte(record.Payload)):
		return errors.New("it is about another record")
	case observedAt.After(now.Add(clockTolerance)):
		return errors.New("it lies in the future of this computer's clock")
	}
	return nil
}

// verifyState is steps 2 to 5 for a state of the record; it says what is wrong with it.
func verifyState[P interface {
	about(record Signed, publicID string, now time.Time) error
}](f *Findings, part string, e Envelope, s Signed, trust *TrustedKeys, now time.Time, parse func([]byte) (P, error)) (p P, finding Finding) {
	finding, _, reason := checkSigned(trust, s)
	if finding == Valid {
		var err error
		if p, err = parse([]byte(s.Payload)); err == nil {
			err = p.about(e.Signed, f.Record.PublicID, now)
		}
		if err == nil {
			return p, Valid
		}
		finding, reason = Invalid, err.Error()
	}
	f.fail(part, reason)
	return p, finding
}

// verifyAsOf is steps 2 to 6 for the state as of an earlier moment, which is history: it never becomes the observed
// status. receivedAt ≤ asOf ≤ observedAt, and asOfSequence ≤ sequence.
func (f *Findings) verifyAsOf(e Envelope, trust *TrustedKeys, now time.Time) {
	if e.StatusAsOf == nil {
		return
	}
	p, finding := verifyState(f, "status as of", e, *e.StatusAsOf, trust, now, ParseStatusAsOfPayload)
	if f.StatusAsOf = finding; finding != Valid {
		return
	}
	f.StatusAsOf = Invalid
	asOf, _ := parseServiceTime(p.AsOf)
	observedAt, _ := parseServiceTime(p.ObservedAt)
	receivedAt, _ := parseServiceTime(f.Record.ReceivedAt)
	switch {
	case asOf.Before(receivedAt):
		f.fail("status as of", "its moment lies before the record")
		return
	case asOf.After(observedAt) || p.AsOfSequence > p.Sequence:
		f.fail("status as of", "its moment lies after it was observed")
		return
	}
	f.StatusAsOf, f.AsOfStatus, f.AsOf, f.AsOfSequence = Valid, &p.Status, &p.AsOf, &p.AsOfSequence
	when := fmt.Sprintf("%s (sequence %d)", p.AsOf, p.AsOfSequence)
	switch p.Status {
	case Revoked:
		f.fail("status as of", "the record had been revoked by "+when)
	case Superseded:
		f.note("History: by " + when + " a later version had replaced this one.")
	default:
		f.note("History: the version was current as of " + when + "; this says nothing about any later time.")
	}
}
