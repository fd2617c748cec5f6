package check

import (
	"cmp"

	"integrityledger/cmd/lab/weather/history"
)

// acknowledged compares every write with the log.
func (c *checker) acknowledged() {
	for i := range c.Calls {
		call := &c.Calls[i]
		if !call.Operation.Writes() {
			continue
		}
		list := c.effects[call]
		if len(list) > 1 {
			c.violate(
				resolvedOr(call), call.RequestID, []*history.Call{call}, "one %s has made %s and %s", call.Operation, list[0],
				list[1],
			)
		}
		switch call.Outcome {
		case history.Answered:
			c.answered(call)
		case history.Refused:
			if len(list) > 0 {
				c.violate(
					Refusal, call.RequestID, []*history.Call{call}, "a %s that was refused with %d %s has made %s", call.Operation,
					call.Status, call.Code, list[0],
				)
			} else if other := c.byRequest[call.RequestID]; len(other) > 0 && call.Batch == 0 {
				c.violate(
					Refusal, call.RequestID, []*history.Call{call}, "a %s that was refused with %d %s has made %s", call.Operation,
					call.Status, call.Code, other[0],
				)
			}
		case history.Unknown:
			c.resolved(call)
		}
	}
}

func resolvedOr(call *history.Call) Name {
	if call.Outcome == history.Unknown {
		return Resolved
	}
	return Acknowledged
}

// promises reports whether an answer says that the call itself has changed the ledger.
func promises(call *history.Call) bool {
	switch call.Operation {
	case history.Register:
		return call.Status == 201 || call.Answer.Applied > 0
	case history.Reserve, history.CompanyCreate:
		return call.Status == 201
	case history.Revoke, history.Release, history.KeyCreate, history.KeyRotate, history.Upload, history.Review,
		history.Approve, history.Certify,
		history.CertificateEnd:
		return !call.Answer.Replayed
	}
	return false // a grant or a revocation of a key may already be in place
}

func (c *checker) answered(call *history.Call) {
	a, e, calls := &call.Answer, c.effect(call), []*history.Call{call}
	if e == nil {
		if promises(call) {
			c.violate(Acknowledged, call.RequestID, calls, "an acknowledged %s has no event in the log", call.Operation)
		} else if others := c.byRequest[call.RequestID]; len(others) > 0 && call.Batch == 0 {
			c.violate(Acknowledged, call.RequestID, calls, "a %s that changed nothing has made %s", call.Operation, others[0])
		}
		return
	}
	if a.Replayed && call.Operation != history.Reserve { // which renews an earlier reservation
		c.violate(
			Acknowledged, call.RequestID, calls, "a %s was answered as a repetition, but has made %s", call.Operation, e,
		)
	}
	if a.Sequence != 0 && a.Sequence < e.Sequence {
		c.violate(Acknowledged, call.RequestID, calls, "the answer names sequence %d, but has made %s", a.Sequence, e)
	}
	differs := func(what, said, is string) {
		if said != "" && said != is {
			c.violate(Acknowledged, call.RequestID, calls, "the answer has %s %q, but %s has %q", what, said, e, is)
		}
	}
	switch call.Operation {
	case history.Register:
		differs("sha256", a.Hash, e.declaration().hash)
		if of, _ := c.ofCall(call); of != e.of {
			c.violate(Acknowledged, call.RequestID, calls, "%s was asked for, but %s is of %s", of, e, e.of)
		}
		if a.Applied != 1 {
			c.violate(Acknowledged, call.RequestID, calls, "the answer has applied %d, but %s costs one unit", a.Applied, e)
		}
		differs("publicId", a.PublicID, e.Subject)
		differs("id", a.RecordID, e.RecordID)
		differs("status", a.Status, e.Status)
	case history.Reserve, history.Revoke, history.Release:
		differs("publicId", a.PublicID, e.Subject)
	case history.KeyCreate, history.KeyRotate:
		differs("key", a.Key, e.KeyID)
	case history.CertificateEnd, history.Certify:
		differs("certificate", a.Certificate, e.Subject)
	case history.Upload:
		differs("artifact", a.Artifact, e.ArtifactID)
		differs("version", a.ArtifactVersion, e.VersionID)
	case history.Review, history.Approve:
		differs("act", a.Act, e.Subject)
	}
}

// resolved counts the outcomes of unknown calls. The models, which know the log, check that no client saw an effect
// that did not happen, and that every later reader saw one that did.
func (c *checker) resolved(call *history.Call) {
	if e := c.effect(call); e != nil {
		c.add("unknown: happened", 1)
		if of, _ := c.ofCall(call); e.of.document != "" && call.Request.Document != "" && of != e.of {
			c.violate(Resolved, call.RequestID, []*history.Call{call}, "%s was asked for, but %s is of %s", of, e, e.of)
		}
	} else {
		c.add("unknown: never happened", 1)
		if others := c.byRequest[call.RequestID]; len(others) > 0 && call.Batch == 0 {
			c.violate(
				Resolved, call.RequestID, []*history.Call{call}, "an unknown %s has half an effect: %s without a %s",
				call.Operation, others[0], primary[call.Operation],
			)
		}
	}
	c.lookedUp(call)
}

// idempotency checks that all calls of one route with one Idempotency-Key have one effect and, if answered, one answer.
func (c *checker) idempotency() {
	type scope struct{ organization, route, key string }
	calls := map[scope][]*history.Call{}
	for i := range c.Calls {
		call := &c.Calls[i]
		if k := call.Request.IdempotencyKey; k != "" && call.Operation.Writes() {
			r := call.Request
			s := scope{call.Organization, string(call.Operation) + " " + cmp.Or(r.ArtifactVersion, r.Artifact, r.PublicID), k}
			calls[s] = append(calls[s], call)
		}
	}
	for s, list := range calls {
		effects := 0
		var answered *history.Call
		for _, call := range list {
			effects += len(c.effects[call])
			if call.Outcome != history.Answered {
				continue
			}
			if answered != nil && ids(answered) != ids(call) {
				c.violate(
					Idempotency, s.organization+" "+s.route, []*history.Call{answered, call},
					"one Idempotency-Key was answered with %v and with %v", ids(answered), ids(call),
				)
			}
			answered = call
		}
		if effects > 1 {
			c.violate(Idempotency, s.organization+" "+s.route, list, "one Idempotency-Key has %d effects", effects)
		}
		if answered != nil && effects == 0 {
			c.violate(
				Idempotency, s.organization+" "+s.route, list, "an answer was kept for an Idempotency-Key without an effect",
			)
		}
	}
}

// ids returns the IDs in a certification answer.
func ids(c *history.Call) [4]string {
	return [4]string{c.Answer.Artifact, c.Answer.ArtifactVersion, c.Answer.Act, c.Answer.Certificate}
}
