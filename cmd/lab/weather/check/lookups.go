package check

import (
	"slices"

	"integrityledger/cmd/lab/weather/history"
)

// lookUps are the reads that tell what became of a write of each operation. Beside a log that says what each request
// did, they tell what the ledger shows of it: a write that the log has must be seen, and one that it lacks must not,
// which the models decide.
//
// A creation and an upload have none, because the id to ask for was in the answer that is lost. An upload is settled by
// its repetition with the same Idempotency-Key where there was time for one. Else the log alone tells of both, by the
// request's id: idempotency, artifacts and keys are checked with whatever it says. No client makes companies or grants
// webhooks.
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

// lookUp is a read of one thing.
type lookUp struct {
	operation history.Operation
	of        string
}

// lookedUp requires that somebody has looked after an unknown call, once it was given up, at what it was to change.
func (c *checker) lookedUp(call *history.Call) {
	reads, of := lookUps[call.Operation], c.thing(call)
	switch {
	case reads == nil:
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

// thing is what a call is about.
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

// latest is when the last of the calls began that tell of each thing what is, at present.
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
