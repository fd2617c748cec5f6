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
	o, err := openPayload(payload, StatusAsOfContract)
	if err != nil {
		return StatusAsOfPayload{}, err
	}
	p := StatusAsOfPayload{
		StatusPayload: readStatus(o),
		AsOf:          readTime(o, "asOf"),
		AsOfSequence:  o.Int("asOfSequence", 1, strictjson.MaxInteger, strictjson.Required),
	}
	if err := closePayload(o, payload, p.AppendCanonical); err != nil {
		return StatusAsOfPayload{}, err
	}
	return p, nil
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

// verifyAsOf is steps 2 to 6 for the state as of an earlier moment, which is history: it never becomes the observed
// status. receivedAt ≤ asOf ≤ observedAt, and asOfSequence ≤ sequence.
func (f *Findings) verifyAsOf(e Envelope, trust *TrustedKeys, now time.Time) {
	if e.StatusAsOf == nil {
		return
	}
	finding, _, reason := checkSigned(trust, *e.StatusAsOf)
	if finding != Valid {
		f.StatusAsOf = finding
		f.fail("status as of", reason)
		return
	}
	f.StatusAsOf = Invalid
	p, err := ParseStatusAsOfPayload([]byte(e.StatusAsOf.Payload))
	if err == nil {
		err = p.about(e.Signed, f.Record.PublicID, now)
	}
	if err != nil {
		f.fail("status as of", err.Error())
		return
	}
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
