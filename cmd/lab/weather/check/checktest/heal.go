package checktest

import (
	"slices"

	"integrityledger/cmd/lab/weather/history"
)

// heal looks up every unknown outcome, after its call was given up.
func (s *simulation) heal() {
	s.now += 20_000
	for _, c := range slices.Clone(s.h.Calls) {
		if c.Outcome != history.Unknown || !c.Operation.Writes() {
			continue
		}
		o := s.organizations[slices.IndexFunc(s.organizations, func(o *organization) bool { return o.ID == c.Organization })]
		read, see := s.lookUp(o, c)
		if see == nil {
			continue
		}
		read.Organization, read.Key = o.ID, s.admin(o)
		for s.do(read, func(c *history.Call) {
			s.admitted(o, c, func(_ *organization, c *history.Call) { see(c) })
		}).Outcome == history.Unknown {
			continue
		}
	}
}

// lookUp returns the call that shows a write's outcome, and the function that fills in its answer. It returns nil for a
// write without a look-up.
func (s *simulation) lookUp(o *organization, c history.Call) (read history.Call, see func(*history.Call)) {
	r := c.Request
	read = history.Call{Company: c.Company}
	switch c.Operation {
	case history.Register:
		read.Operation, read.Request = history.Lookup, history.Request{
			Source: r.Source, Document: r.Document, Version: r.Version,
		}
		return read, func(c *history.Call) {
			if d := o.documents[c.Company+"/"+r.Source+"/"+r.Document]; d != nil && d.versions[r.Version] != nil &&
				d.versions[r.Version].registered {
				c.Answer.RecordAnswer = d.record(r.Version)
			} else {
				refuse(c, 404, "RECORD_NOT_FOUND")
			}
		}
	case history.Reserve, history.Release:
		read.Operation, read.Request = history.ReservationRead, r
		return read, func(c *history.Call) {
			d, number := o.find(r.PublicID)
			if d == nil {
				d, number = o.documents[c.Company+"/"+r.Source+"/"+r.Document], r.Version
			}
			if d != nil && d.versions[number] != nil {
				if v := d.versions[number]; v.reserved && !v.registered {
					c.Answer.ReservationStatus, c.Answer.PublicID = "pending", v.publicID
				}
			}
		}
	case history.Revoke:
		read.Operation, read.Request = history.Record, r
		return read, func(c *history.Call) {
			if d, number := o.find(r.PublicID); d.versions[number].registered {
				c.Answer.RecordAnswer = d.record(number)
			} else {
				refuse(c, 404, "RECORD_NOT_FOUND")
			}
		}
	case history.KeyRotate, history.KeyRevoke, history.Grant:
		read.Operation, read.Request = history.KeyRead, history.Request{Target: r.Target}
		return read, func(c *history.Call) {
			k := o.keys[r.Target]
			c.Answer.KeyState, c.Answer.Granted = map[bool]string{
				true: "revoked", false: "working",
			}[k.revoked], k.grants[c.Company]
		}
	case history.Review, history.Approve, history.Certify:
		read.Operation = history.ArtifactRead
		return read, func(c *history.Call) {
			v := o.version(func(v *artifactVersion) bool { return v.id == r.ArtifactVersion })
			c.Answer.ArtifactVersion, c.Answer.State, c.Answer.Certificate, c.Answer.CertificateStatus = v.id, v.state,
				v.certificate, v.status
		}
	case history.CertificateEnd:
		read.Operation, read.Request = history.CertificateRead, history.Request{PublicID: r.PublicID}
		return read, func(c *history.Call) {
			v := o.version(func(v *artifactVersion) bool { return v.certificate == r.PublicID })
			c.Answer.Result = map[string]string{
				"valid": "MATCH", "revoked": "CERTIFICATE_REVOKED", "replaced": "CERTIFICATE_REPLACED",
			}[v.status]
		}
	}
	return read, nil
}

func (o *organization) version(matches func(*artifactVersion) bool) *artifactVersion {
	for _, a := range o.artifacts {
		if i := slices.IndexFunc(a.versions, matches); i >= 0 {
			return a.versions[i]
		}
	}
	return nil
}
