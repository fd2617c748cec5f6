package checktest

import (
	"fmt"
	"os"
	"path/filepath"

	"integrityledger/cmd/lab/weather/history"
)

// changeKeys rotates, revokes, grants and uses keys.
func (s *simulation) changeKeys(o *organization, c history.Call) {
	admin, target := s.admin(o), o.keys[s.keyOf(o)]
	company := c.Company
	c.Key, c.Company, c.Request = admin, "", history.Request{Target: target.id}
	switch n := s.IntN(6); {
	case n < 2 && target.id != admin:
		c.Operation, c.Request.Enabled, c.Company = history.Grant, new(s.IntN(2) > 0), company
		s.do(c, func(c *history.Call) {
			s.allowed(o, c, func() { s.grant(o, target, c.RequestID, company, *c.Request.Enabled) })
		})
	case n == 2 && target.id != admin:
		c.Operation = history.KeyRevoke
		s.do(c, func(c *history.Call) { s.allowed(o, c, func() { s.endKey(o, target, c.RequestID) }) })
	case n == 3 && target.id != admin && !target.revoked:
		c.Operation = history.KeyRotate
		s.do(c, func(c *history.Call) {
			s.allowed(o, c, func() {
				c.Answer.Key = s.newKey(o, c.RequestID).id
				s.endKey(o, target, c.RequestID)
				c.Answer.Sequence = o.sequence
			})
		})
	default:
		c.Operation, c.Key, c.Request = history.KeyUse, target.id, history.Request{}
		s.do(c, func(c *history.Call) { o.admit(c) })
	}
}

// admin returns the key that is never revoked.
func (s *simulation) admin(o *organization) (id string) {
	for k := range o.keys {
		if id == "" || k < id {
			id = k
		}
	}
	return id
}

// allowed admits a call that needs no grant of the company it names.
func (s *simulation) allowed(o *organization, c *history.Call, act func()) {
	company := c.Company
	c.Company = ""
	if o.admit(c) {
		act()
		c.Answer.Sequence = o.sequence
	}
	c.Company = company
}

func (s *simulation) endKey(o *organization, k *apikey, request string) {
	if !k.revoked {
		k.revoked = true
		s.put(o, request, "key.revoked", "", k.id, map[string]any{"keyId": k.id})
	}
}

// certification makes one step with an artifact. If the answer is lost, it repeats the step with its Idempotency-Key.
func (s *simulation) certification(o *organization, c history.Call) {
	c.Company, c.Request = "", history.Request{IdempotencyKey: s.id("idem")}
	var a *artifact
	if len(o.artifacts) > 0 && (len(o.artifacts) > 5 || s.IntN(8) > 0) {
		a = one(s, o.artifacts)
	}
	if a == nil {
		c.Operation = history.Upload
		s.repeat(o, c, func(c *history.Call) { s.upload(o, c, nil) })
		return
	}
	v := a.versions[max(s.IntN(len(a.versions)), s.IntN(len(a.versions)))]
	c.Request.ArtifactVersion = v.id
	step := s.IntN(8)
	if s.IntN(2) == 0 { // the next step towards a certificate
		step = map[string]int{
			"analyzed": 1, "reviewed": 3, "approved": 4, "certified": one(s, []int{0, 0, 5, 6, 7, 7, 7}),
		}[v.state]
	}
	switch step {
	case 0:
		c.Operation, c.Request.Artifact, c.Request.ArtifactVersion = history.Upload, a.id, ""
		s.repeat(o, c, func(c *history.Call) { s.upload(o, c, a) })
	case 1, 2:
		c.Operation, c.Request.ReviewOutcome = history.Review, one(s, []string{"accepted", "accepted", "changes_requested"})
		s.repeat(o, c, func(c *history.Call) {
			s.judge(c, v.state == "analyzed" || v.state == "reviewed", func() {
				v.state, v.outcome, c.Answer.Act = "reviewed", c.Request.ReviewOutcome, s.id("rvw")
				s.put(
					o, c.RequestID, "review.declared", "", c.Answer.Act,
					map[string]any{"artifactId": a.id, "versionId": v.id, "outcome": v.outcome},
				)
			}, v)
		})
	case 3:
		c.Operation = history.Approve
		s.repeat(o, c, func(c *history.Call) {
			s.judge(c, v.state == "reviewed" && v.outcome == "accepted", func() {
				v.state, c.Answer.Act = "approved", s.id("apr")
				s.put(o, c.RequestID, "version.approved", "", c.Answer.Act, map[string]any{"artifactId": a.id, "versionId": v.id})
			}, v)
		})
	case 4:
		c.Operation = history.Certify
		s.repeat(o, c, func(c *history.Call) { s.certify(o, c, a, v) })
	case 5:
		if v.certificate == "" {
			return
		}
		c.Operation, c.Request = history.CertificateEnd, history.Request{PublicID: v.certificate}
		s.do(c, func(c *history.Call) {
			s.admitted(o, c, func(*organization, *history.Call) {
				c.Answer.Certificate, c.Answer.Replayed = v.certificate, v.status == "revoked"
				if v.status != "revoked" {
					v.status = "revoked"
					s.put(
						o, c.RequestID, "certificate.revoked", "", v.certificate,
						map[string]any{"artifactId": a.id, "publicId": v.certificate},
					)
				}
			})
		})
	case 6:
		c.Operation, c.Request = history.ArtifactRead, history.Request{Artifact: a.id}
		s.do(c, func(c *history.Call) {
			s.admitted(o, c, func(*organization, *history.Call) {
				c.Answer.ArtifactVersion, c.Answer.State, c.Answer.Certificate, c.Answer.CertificateStatus = v.id, v.state,
					v.certificate, v.status
			})
		})
	case 7:
		v := one(s, a.versions)
		if v.certificate == "" {
			return
		}
		c.Operation, c.Request = history.CertificateRead, history.Request{PublicID: v.certificate}
		s.do(c, func(c *history.Call) {
			s.admitted(o, c, func(*organization, *history.Call) {
				c.Answer.Result = map[string]string{
					"valid": "MATCH", "revoked": "CERTIFICATE_REVOKED", "replaced": "CERTIFICATE_REPLACED",
				}[v.status]
			})
		})
	}
}

// repeat sends a request of unknown outcome again with the same Idempotency-Key.
func (s *simulation) repeat(o *organization, c history.Call, act func(*history.Call)) {
	once := func(c *history.Call) {
		s.admitted(o, c, func(*organization, *history.Call) {
			k := c.Request.IdempotencyKey
			if kept, known := o.kept[k]; known {
				c.Outcome, c.Status, c.Code, c.Answer = kept.Outcome, kept.Status, kept.Code, kept.Answer
				c.Answer.Replayed = true
				return
			}
			act(c)
			if c.Outcome == history.Answered {
				o.kept[k] = *c
			}
		})
	}
	for range 3 {
		if s.do(c, once).Outcome != history.Unknown {
			return
		}
	}
}

func (s *simulation) upload(o *organization, c *history.Call, a *artifact) {
	if a == nil {
		a = &artifact{id: s.id("art")}
		o.artifacts = append(o.artifacts, a)
	}
	v := &artifactVersion{id: s.id("ver"), state: "analyzed", number: int32(len(a.versions) + 1)}
	a.versions = append(a.versions, v)
	s.put(
		o, c.RequestID, "artifact.version_registered", "", v.id,
		map[string]any{"artifactId": a.id, "versionId": v.id, "version": v.number, "sha256": hash(v.id)},
	)
	s.put(o, c.RequestID, "analysis.completed", "", v.id, map[string]any{"artifactId": a.id, "versionId": v.id})
	c.Status = 201
	c.Answer.Artifact, c.Answer.ArtifactVersion, c.Answer.State = a.id, v.id, v.state
}

func (s *simulation) judge(c *history.Call, ok bool, act func(), v *artifactVersion) {
	if !ok {
		refuse(c, 409, "INVALID_STATE")
		return
	}
	act()
	c.Status, c.Answer.ArtifactVersion, c.Answer.State = 201, v.id, v.state
}

func (s *simulation) certify(o *organization, c *history.Call, a *artifact, v *artifactVersion) {
	var former *artifactVersion
	ok := v.state == "approved"
	for _, w := range a.versions {
		if w.certificate != "" {
			former = w
			ok = ok && w.number < v.number
		}
	}
	s.judge(c, ok, func() {
		v.state, v.certificate, v.status = "certified", s.publicID(), "valid"
		c.Answer.Certificate = v.certificate
		s.put(
			o, c.RequestID, "certificate.issued", "", v.certificate,
			map[string]any{"artifactId": a.id, "versionId": v.id, "publicId": v.certificate, "version": v.number},
		)
		if former != nil && former.status == "valid" {
			former.status = "replaced"
			s.put(
				o, c.RequestID, "certificate.replaced", "", former.certificate,
				map[string]any{"artifactId": a.id, "publicId": former.certificate, "byPublicId": v.certificate},
			)
		}
	}, v)
}

// end writes the files and the end state.
func (s *simulation) end() error {
	e := &s.h.End
	e.Log = s.log
	for i, f := range s.stream {
		of := s.organizationOf(f.ID)
		e.Feed = append(e.Feed, f)
		e.Stream = append(e.Stream, history.Message{Number: uint64(i) + 1, ID: f.ID, Organization: of.ID, Event: f})
	}
	for _, o := range s.organizations {
		s.h.Header.Organizations = append(s.h.Header.Organizations, o.Organization)
		e.Usage = append(
			e.Usage, history.Usage{Organization: o.ID, Period: period, Used: o.used, Companies: o.byCompany, Entries: o.units},
		)
		e.Verdicts = append(e.Verdicts, history.Verdict{Name: history.BundleVerdict, Organization: o.ID, Clean: true})
		for _, company := range o.Companies {
			s.deliver(history.Webhook{ID: s.id("whk"), Organization: o.ID, Company: company.Reference})
		}
	}
	e.Verdicts = append(
		e.Verdicts, history.Verdict{Name: history.AuditVerdict, Clean: true},
		history.Verdict{Name: history.RebuildVerdict, Clean: true},
	)
	e.Monitors = append(e.Monitors, history.Monitor{Name: "monitor", Size: int64(len(s.log))})
	e.Checkpoints = append(e.Checkpoints, history.Checkpoint{Seen: s.now, By: "harness", Note: s.checkpoint()})
	e.Leaves, e.Trust = &history.Leaves{File: leavesFile}, &history.Trust{File: trustFile}
	text, err := s.trust.Marshal()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.h.Directory, "evidence"), 0o750); err != nil {
		return err
	}
	if err := s.file(trustFile, text); err != nil {
		return err
	}
	if err := s.file(leavesFile, s.leaves); err != nil {
		return err
	}
	for _, o := range s.organizations {
		for _, d := range o.documents {
			for number, v := range d.versions {
				if !v.registered {
					continue
				}
				name := fmt.Sprintf("evidence/%s.json", v.publicID)
				if err := s.file(name, s.envelope(o, d, number)); err != nil {
					return err
				}
				e.Evidence = append(e.Evidence, history.Evidence{PublicID: v.publicID, File: name})
			}
		}
	}
	return nil
}

func (s *simulation) file(name string, text []byte) error {
	return os.WriteFile(filepath.Join(s.h.Directory, name), text, 0o600)
}

func (s *simulation) organizationOf(event string) *organization {
	for i := range s.log {
		if s.log[i].ID == event {
			for _, o := range s.organizations {
				if o.ID == s.log[i].Organization {
					return o
				}
			}
		}
	}
	return nil
}

// deliver delivers all events of its company to a destination, some at the second attempt.
func (s *simulation) deliver(w history.Webhook) {
	e := &s.h.End
	e.Webhooks = append(e.Webhooks, w)
	for _, f := range s.feed[w.Organization+"/"+w.Company] {
		e.Deliveries = append(
			e.Deliveries, history.Delivery{ID: s.id("dlv"), Webhook: w.ID, EventID: f.ID, State: "delivered"},
		)
		r := history.Receipt{
			Webhook: w.ID, At: s.now + s.Int64N(1000), EventID: f.ID, BodySHA256: hash(f.ID), Signed: true, Status: 200,
			PublicID: f.PublicID, Version: f.Version,
			RecordStatus: f.RecordStatus,
		}
		if s.IntN(5) == 0 {
			failed := r
			failed.Status, failed.At = 503, r.At-1
			e.Receipts = append(e.Receipts, failed)
		}
		e.Receipts = append(e.Receipts, r)
	}
}

// Write writes a history to its directory, as a harness does.
func Write(h *history.History) error {
	w, err := history.Create(h.Directory, h.Header)
	if err != nil {
		return err
	}
	for _, c := range h.Calls {
		w.Call(c)
	}
	for _, f := range h.Faults {
		w.Fault(f)
	}
	for _, e := range h.End.Parts() {
		w.End(e)
	}
	return w.Close()
}
