package check

import (
	"fmt"
	"slices"

	"integrityledger/cmd/lab/weather/history"
)

// artifact is the state of an artifact. Its versions are never changed in place.
type artifact struct {
	versions []certified
}

// certified is a version of an artifact on its way to a certificate.
type certified struct {
	id, state, outcome  string
	number              int32
	certificate, status string // of the certificate: valid, revoked or replaced
}

func (a artifact) index(matches func(certified) bool) int {
	return slices.IndexFunc(a.versions, matches)
}

func (a artifact) version(id string) (certified, bool) {
	i := a.index(func(v certified) bool { return v.id == id })
	if i < 0 {
		return certified{}, false
	}
	return a.versions[i], true
}

func (a artifact) ofCertificate(publicID string) (certified, bool) {
	i := a.index(func(v certified) bool { return v.certificate == publicID })
	if i < 0 || publicID == "" {
		return certified{}, false
	}
	return a.versions[i], true
}

// with returns the artifact with one version changed.
func (a artifact) with(v certified) artifact {
	a.versions = slices.Clone(a.versions)
	if i := a.index(func(w certified) bool { return w.id == v.id }); i >= 0 {
		a.versions[i] = v
	} else {
		a.versions = append(a.versions, v)
	}
	return a
}

// mayCertify reports whether a version may get a certificate, apart from its state: no later version may have one.
func (a artifact) mayCertify(v certified) bool {
	return a.index(func(w certified) bool { return w.certificate != "" && w.number >= v.number }) < 0
}

func (m *models) artifactEvent(e *event) {
	switch e.Type {
	case artifactVersion:
		m.artifactOf[e.VersionID] = e.ArtifactID
	case certificateIssued:
		m.artifactOf[e.Subject] = e.ArtifactID
	}
	at(m.artifacts, Certification, e.ArtifactID).happen(e, func(a artifact) (artifact, string) {
		next, why := a.after(e)
		if c := e.call; why == "" && c != nil && c.Outcome == history.Answered && c.Answer.State != "" &&
			c.Operation != history.Upload && e.Type == primary[c.Operation] {
			if v, _ := next.version(e.VersionID); v.state != c.Answer.State {
				why = fmt.Sprintf("the answer says that the version is %s, but it is %s", c.Answer.State, v.state)
			}
		}
		return next, why
	})
}

// after returns the artifact after an event, and why the event is impossible.
func (a artifact) after(e *event) (artifact, string) {
	v, known := a.version(e.VersionID)
	switch e.Type {
	case artifactVersion:
		if known || int(e.Version) != len(a.versions)+1 {
			return a, fmt.Sprintf("version %d comes after %d versions", e.Version, len(a.versions))
		}
		return a.with(certified{id: e.VersionID, number: e.Version, state: "registered"}), ""
	case certificateNext, certificateEnded:
		v, known = a.ofCertificate(e.certificateOf())
		status := map[string]string{certificateNext: "replaced", certificateEnded: "revoked"}[e.Type]
		if !known || v.status == "revoked" || v.status == status {
			return a, fmt.Sprintf("the certificate is %q and cannot become %s", v.status, status)
		}
		v.status = status
		return a.with(v), ""
	}
	if !known {
		return a, "there is no such version"
	}
	was := v.state
	must := func(ok bool, next string) (artifact, string) {
		v.state = next
		if !ok {
			return a.with(v), fmt.Sprintf(
				"the version is %s, with a review that says %q, and cannot become %s", was, v.outcome, next,
			)
		}
		return a.with(v), ""
	}
	switch e.Type {
	case "analysis.completed":
		return must(was == "registered", "analyzed")
	case reviewDeclared:
		v.outcome = e.Outcome
		return must(was == "analyzed" || was == "reviewed", "reviewed")
	case versionApproved:
		return must(was == "reviewed" && v.outcome == "accepted", "approved")
	case certificateIssued:
		ok := was == "approved" && a.mayCertify(v)
		v.certificate, v.status = e.Subject, "valid"
		return must(ok, "certified")
	}
	return a, "" // other events do not change the state
}

// certificateOf returns the certificate that an event names.
func (e *event) certificateOf() string {
	if e.PublicID != "" {
		return e.PublicID
	}
	return e.Subject
}

// seenArtifact adds a call's observations of an artifact.
func (m *models) seenArtifact(c *history.Call) {
	r, a := c.Request, c.Answer
	see := func(of, says string, holds func(artifact) bool) {
		if of != "" {
			at(m.artifacts, Certification, of).observe(c, says, holds)
		}
	}
	ofVersion := m.artifactOf[r.ArtifactVersion]
	switch c.Operation {
	case history.Review, history.Approve, history.Certify:
		if c.Outcome == history.Refused && c.Code == "INVALID_STATE" {
			see(ofVersion, fmt.Sprintf("a %s was refused for the state", c.Operation), func(is artifact) bool {
				v, known := is.version(r.ArtifactVersion)
				return known && !is.takes(c.Operation, v)
			})
		}
	case history.ArtifactRead:
		if c.Outcome != history.Answered || a.ArtifactVersion == "" {
			return
		}
		see(m.artifactOf[a.ArtifactVersion],
			fmt.Sprintf(
				"version %s is %s, with certificate %q that is %q", a.ArtifactVersion, a.State, a.Certificate, a.CertificateStatus,
			), func(is artifact) bool {
				v, known := is.version(a.ArtifactVersion)
				return known && v.state == a.State && v.certificate == a.Certificate && v.status == a.CertificateStatus
			})
	case history.CertificateEnd:
		if c.Outcome == history.Answered && m.effect(c) == nil && r.IdempotencyKey == "" {
			see(m.artifactOf[r.PublicID], "the certificate was revoked before", func(is artifact) bool {
				v, _ := is.ofCertificate(r.PublicID)
				return v.status == "revoked"
			})
		}
	case history.CertificateRead:
		m.seenCertificate(c, see)
	}
}

// takes reports whether a version may be reviewed, approved or certified.
func (a artifact) takes(o history.Operation, v certified) bool {
	switch o {
	case history.Review:
		return v.state == "analyzed" || v.state == "reviewed"
	case history.Approve:
		return v.state == "reviewed" && v.outcome == "accepted"
	default:
		return v.state == "approved" && a.mayCertify(v)
	}
}

func (m *models) seenCertificate(c *history.Call, see func(of, says string, holds func(artifact) bool)) {
	id := c.Request.PublicID
	of := m.artifactOf[id]
	if c.Outcome == history.Refused {
		if c.Code == "CERTIFICATE_NOT_FOUND" {
			see(of, "the certificate is unknown", func(is artifact) bool { _, known := is.ofCertificate(id); return !known })
		}
		return
	}
	if of == "" {
		m.violate(Certification, id, []*history.Call{c}, "a certificate was shown that the log does not have")
		return
	}
	want := c.Answer.CertificateStatus
	switch c.Answer.Result {
	case "MATCH":
		want = "valid"
	case "CERTIFICATE_REVOKED":
		want = "revoked"
	case "CERTIFICATE_REPLACED":
		want = "replaced"
	}
	if want != "" {
		see(of, "the certificate is "+want, func(is artifact) bool {
			v, known := is.ofCertificate(id)
			return known && v.status == want
		})
	}
}
