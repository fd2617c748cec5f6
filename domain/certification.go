package domain

import (
	"fmt"
)

// CertificationNeeds is what commands of certification must have loaded.
type CertificationNeeds struct {
	Accounts     []OrganizationID // with their registrations of this and the neighbouring months, and the warnings of them
	Artifacts    []ArtifactID
	Versions     []ArtifactVersionID // with their artifacts
	Former       []ArtifactVersionID // of these versions' artifacts: the certificate of the highest certified version
	Certificates []PublicID          // with their artifacts
	Contents     []ContentNeed
	Claims       []Claim
	Words        []ArtifactVersionID // these versions' titles, and the names of their organizations
}

// ContentNeed asks how many versions of an organization have the same bytes.
type ContentNeed struct {
	Organization OrganizationID
	SHA256       [32]byte
}

// CertificationAccount is what certification knows of an organization.
type CertificationAccount struct {
	RetentionDays int32 // 0: bytes are not kept
	Credits       int64 // registrations left of file credit packs
}

type registrationKey struct {
	organization OrganizationID
	period       Period
}

// certificationState is certification's part of a State.
type certificationState struct {
	accounts     map[OrganizationID]*CertificationAccount
	used         map[registrationKey]int64 // registrations out of the month's allowance
	artifacts    map[ArtifactID]*Artifact
	versions     map[ArtifactVersionID]*ArtifactVersion
	certificates map[PublicID]*Certificate
	contents     map[ContentNeed]int64
	claims       map[claimKey]bool
	// Words that are not erased, where they were loaded or came into being.
	titles map[ArtifactVersionID]Text
	names  map[OrganizationID]Text
}

func newCertificationState() certificationState {
	return certificationState{
		accounts:     map[OrganizationID]*CertificationAccount{},
		used:         map[registrationKey]int64{},
		artifacts:    map[ArtifactID]*Artifact{},
		versions:     map[ArtifactVersionID]*ArtifactVersion{},
		certificates: map[PublicID]*Certificate{},
		contents:     map[ContentNeed]int64{},
		claims:       map[claimKey]bool{},
		titles:       map[ArtifactVersionID]Text{},
		names:        map[OrganizationID]Text{},
	}
}

// account is that of an organization, made where nothing was loaded.
func (w *certificationState) account(id OrganizationID) *CertificationAccount {
	a := w.accounts[id]
	if a == nil {
		a = &CertificationAccount{}
		w.accounts[id] = a
	}
	return a
}

// AddAccount loads what certification knows of an organization.
func (s *State) AddAccount(id OrganizationID, a CertificationAccount) {
	*s.certification.account(id) = a
}

// AddRegistrations loads how many registrations of a month were used.
func (s *State) AddRegistrations(id OrganizationID, period Period, used int64) {
	s.certification.used[registrationKey{id, period}] = used
}

// AddArtifact loads an artifact and returns the one object that stands for it.
func (s *State) AddArtifact(a Artifact) *Artifact {
	if s.certification.artifacts[a.ID] == nil {
		s.certification.artifacts[a.ID] = &a
	}
	return s.certification.artifacts[a.ID]
}

// AddArtifactVersion loads a version of an artifact that AddArtifact returned.
func (s *State) AddArtifactVersion(v ArtifactVersion) {
	if s.certification.versions[v.ID] == nil {
		s.certification.versions[v.ID] = &v
	}
}

// AddCertificate loads a certificate of an artifact that AddArtifact returned.
func (s *State) AddCertificate(c Certificate) {
	if s.certification.certificates[c.PublicID] == nil {
		s.certification.certificates[c.PublicID] = &c
	}
}

// AddContent loads how many versions of an organization have the same bytes.
func (s *State) AddContent(n ContentNeed, versions int64) { s.certification.contents[n] = versions }

// AddClaim loads that a claim of an Idempotency-Key still holds.
func (s *State) AddClaim(c Claim) { s.certification.claims[c.key()] = true }

// AddTitle loads the title of a version; erased titles are left out.
func (s *State) AddTitle(id ArtifactVersionID, title Text) {
	if title.Body != "" {
		s.certification.titles[id] = title
	}
}

// AddName loads the name of an organization; an erased name is left out.
func (s *State) AddName(id OrganizationID, name Text) {
	if name.Body != "" {
		s.certification.names[id] = name
	}
}

// applyCertification brings the state past an event of certification; known is
// false for any other.
func (s *State) applyCertification(e *Event) (known bool, err error) {
	w := &s.certification
	switch b := e.Body.(type) {
	case *ArtifactVersionRegisteredBody:
		return true, s.applyVersion(e, b)
	case *AnalysisCompletedBody:
		v := w.versions[b.VersionID]
		if v == nil || v.State != VersionRegistered {
			return true, fmt.Errorf("event %s analyses a version that was never registered, or a second time", e.ID)
		}
		v.State = VersionAnalyzed
	case *ReviewDeclaredBody:
		v := w.versions[b.VersionID]
		if v == nil || v.State != VersionAnalyzed && v.State != VersionReviewed {
			return true, fmt.Errorf("event %s reviews a version that cannot be reviewed", e.ID)
		}
		v.State, v.Outcome, v.Reviews = VersionReviewed, b.Outcome, v.Reviews+1
	case *ArtifactVersionApprovedBody:
		v := w.versions[b.VersionID]
		if v == nil || v.State != VersionReviewed || v.Outcome != ReviewAccepted {
			return true, fmt.Errorf("event %s approves a version without an accepted review", e.ID)
		}
		v.State = VersionApproved
	case *CertificateIssuedBody:
		v := w.versions[b.VersionID]
		if v == nil || v.State != VersionApproved || v.Artifact.Certified >= v.Number {
			return true, fmt.Errorf("event %s certifies a version that cannot be certified", e.ID)
		}
		v.State, v.Artifact.Certified, v.Artifact.CertifiedBy = VersionCertified, v.Number, b.PublicID
		s.AddCertificate(Certificate{PublicID: b.PublicID, Artifact: v.Artifact})
	case *CertificateReplacedBody:
		c := w.certificates[b.PublicID]
		if c == nil || c.Status() != CertificateValid {
			return true, fmt.Errorf("event %s replaces a certificate that is not valid", e.ID)
		}
		by := b.ByPublicID
		c.ReplacedBy = &by
	case *CertificateRevokedBody:
		c := w.certificates[b.PublicID]
		if c == nil || c.RevokedAt != nil {
			return true, fmt.Errorf("event %s revokes a certificate that was never issued, or a second time", e.ID)
		}
		at := e.OccurredAt
		c.RevokedAt = &at
	case *ContentErasedBody:
		v := w.versions[b.VersionID]
		if v == nil || !v.Retained {
			return true, fmt.Errorf("event %s erases bytes that were not kept", e.ID)
		}
		v.Retained = false
	case *TextsErasedBody:
		s.forget(b.Texts)
	case *RetentionChangedBody:
		w.account(e.Organization).RetentionDays = b.Days
	case *CreditsAddedBody:
		w.account(e.Organization).Credits += b.Credits
	default:
		return false, nil
	}
	return true, nil
}
