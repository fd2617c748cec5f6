package domain

import "time"

// Claim is one request's hold on an Idempotency-Key (contract section 7). Its
// token tells it from another request that took the key over after the lease.
type Claim struct {
	Organization OrganizationID
	Route        string // method and template
	Key          string
	Token        [16]byte
}

// claimKey is a Claim as a map knows it.
type claimKey struct {
	organization OrganizationID
	route, key   string
	token        [16]byte
}

func (c Claim) key() claimKey { return claimKey{c.Organization, c.Route, c.Key, c.Token} }

// StoredAnswer is what a repetition of a claimed request is answered.
type StoredAnswer struct {
	Claim
	Status int
	Body   []byte // data of the envelope, or its error, in JSON
}

// Idempotent executes a command under a claim: the answer is stored in the
// transaction of its events, so there is never one without the other. A request
// that has lost its claim changes nothing.
type Idempotent struct {
	Command
	Claim Claim
	// Render makes the answer of the outcome. Decide calls it.
	Render func() (status int, body []byte, err error)
}

// Need implements Command.
func (c *Idempotent) Need(n *Needs) {
	c.Command.Need(n)
	n.Certification.Claims = append(n.Certification.Claims, c.Claim)
}

// Decide implements Command.
func (c *Idempotent) Decide(s *State, now time.Time) ([]Draft, error) {
	if !s.certification.claims[c.Claim.key()] {
		return nil, RequestUnderWay()
	}
	drafts, err := c.Command.Decide(s, now)
	if err != nil || len(drafts) == 0 {
		return drafts, err
	}
	answer := StoredAnswer{Claim: c.Claim}
	if answer.Status, answer.Body, err = c.Render(); err != nil {
		return nil, err
	}
	drafts[len(drafts)-1].Answer = &answer
	return drafts, nil
}

// RequestUnderWay answers a request whose Idempotency-Key another request holds.
func RequestUnderWay() *Error {
	return Refuse(RequestInProgress, "A request with this Idempotency-Key is still running; send the same request again in a moment.")
}
