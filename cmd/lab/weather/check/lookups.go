package check

import (
	"slices"

	"integrityledger/cmd/lab/weather/history"
)

// lookUps are the reads that show the outcome of a write, by operation. The log says what each request did; these reads
// show whether the ledger agrees. A write in the log must be visible, and a missing one must not be, which the models
// decide.
//
// A creation and an upload have no look-up, because the ID was in the lost answer. An upload is settled by repeating it
// with the same Idempotency-Key, if there was time. Otherwise only the log shows the outcome of both, by the request's
// ID; idempotency, artifacts and keys are then checked against it. No client creates companies or grants webhooks.
var lookUps = map[history.Operation][]history.Operation{
	history.Register:       {history.Lookup, history.Record, history.Compare, history.Register},
	history.Reserve:        {history.ReservationRead},
	history.Release:        {history.ReservationRead},
	history.Revoke:         {history.Lookup, history.Record, history.Compare},
	history.KeyRotate:      {history.KeyRead},
	history.KeyRevoke:      {history.KeyRead},
	history.Grant:          {history.KeyRead},
	history.Review:         {history.ArtifactRead},
	history.Approve:        {history.ArtifactRead},
	history.Certify:        {history.ArtifactRead},
	history.CertificateEnd: {history.CertificateRead},
}

// lookUp is a read of one object.
type lookUp struct {
	operation history.Operation
	of        string
}

// lookedUp requires that an unknown call's object was looked up after the call was given up.
func (c *checker) lookedUp(call *history.Call) {
	reads, of := lookUps[call.Operation], c.thing(call)
	switch {
	case reads == nil, c.Header.Lost:
		c.add("unknown: the log alone tells", 1)
	case !slices.ContainsFunc(reads, func(o history.Operation) bool { return c.latest()[lookUp{o, of}] > call.End }):
		c.violate(
			Resolved, call.RequestID, []*history.Call{call}, "nobody has looked up what became of an unknown %s of %s",
			call.Operation, of,
		)
	default:
		c.add("unknown: looked up", 1)
	}
}

// thing returns the object of a call.
func (c *checker) thing(call *history.Call) string {
	r := call.Request
	switch call.Operation {
	case history.KeyRead, history.KeyRotate, history.KeyRevoke:
		return r.Target
	case history.Grant:
		return r.Target + " " + call.Company
	case history.Review, history.Approve, history.Certify:
		return r.ArtifactVersion
	case history.ArtifactRead:
		return call.Answer.ArtifactVersion
	}
	if of, ok := c.ofCall(call); ok {
		return of.String()
	}
	return r.PublicID
}

// latest returns, for each object, when the last call began that shows its present state.
func (c *checker) latest() map[lookUp]int64 {
	if c.answers == nil {
		c.answers = map[lookUp]int64{}
		for i := range c.Calls {
			call := &c.Calls[i]
			told := call.Outcome == history.Answered ||
				slices.Contains([]string{"RECORD_NOT_FOUND", "VERSION_CONFLICT", "CERTIFICATE_NOT_FOUND"}, call.Code)
			if !told || call.Request.ReadAfter != nil {
				continue
			}
			note := func(of string) {
				at := lookUp{call.Operation, of}
				c.answers[at] = max(c.answers[at], call.Start)
			}
			note(c.thing(call))
			if call.Operation == history.KeyRead && call.Company != "" {
				note(c.thing(call) + " " + call.Company)
			}
		}
	}
	return c.answers
}
