package domain

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
	claims       map[Claim]bool
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
		claims:       map[Claim]bool{},
		titles:       map[ArtifactVersionID]Text{},
		names:        map[OrganizationID]Text{},
	}
}

// account is that of an organization; an empty one if nothing was loaded.
func (c *certificationState) account(id OrganizationID) *CertificationAccount {
	return addOnce(c.accounts, id, CertificationAccount{})
}

// AddAccount loads what certification knows of an organization.
func (s *State) AddAccount(id OrganizationID, a CertificationAccount) {
	*s.certification.account(id) = a
}

// AddRegistrations loads how many registrations of a month were used.
func (s *State) AddRegistrations(id OrganizationID, period Period, used int64) {
	s.certification.used[registrationKey{id, period}] = used
}

// AddArtifact returns the one object that stands for the artifact; its versions and certificates point to it.
func (s *State) AddArtifact(a Artifact) *Artifact      { return addOnce(s.certification.artifacts, a.ID, a) }
func (s *State) AddArtifactVersion(v ArtifactVersion)  { addOnce(s.certification.versions, v.ID, v) }
func (s *State) AddCertificate(c Certificate)          { addOnce(s.certification.certificates, c.PublicID, c) }
func (s *State) AddContent(n ContentNeed, count int64) { s.certification.contents[n] = count }

// AddClaim loads that a claim of an Idempotency-Key still holds.
func (s *State) AddClaim(c Claim) { s.certification.claims[c] = true }

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
