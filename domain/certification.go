package domain

import (
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// ReviewOutcome is the result of a review.
type ReviewOutcome string

// A version can be approved while its latest review accepts it.
const (
	ReviewAccepted  ReviewOutcome = "accepted"
	ReviewRequested ReviewOutcome = "changes_requested"
)

// DeclareReview declares that a member has reviewed a version. The caller must send the bytes again. Several reviews
// may be declared until the version is approved.
type DeclareReview struct {
	Origin
	Artifact  ArtifactID
	Version   ArtifactVersionID
	Member    MemberID
	Outcome   ReviewOutcome
	Statement string
	SHA256    [32]byte // of the bytes supplied
	// Manifest is the SHA-256 of the bytes' canonical form if they are a manifest, otherwise nil.
	Manifest *[32]byte

	id        ReviewID
	statement Text

	Answer struct {
		Body    ReviewDeclaredBody
		Version ArtifactVersion
		At      time.Time
	}
}

func (c *DeclareReview) Need(n *Needs) {
	n.Certification.Artifacts = append(n.Certification.Artifacts, c.Artifact)
	n.Certification.Versions = append(n.Certification.Versions, c.Version)
}

// Decide implements Command: the version, its state, then the bytes.
func (c *DeclareReview) Decide(s *State, now time.Time) ([]Draft, error) {
	artifact, version := s.artifacts[c.Artifact], s.artifactVersions[c.Version]
	switch {
	case artifact == nil || artifact.Organization != c.Organization:
		return nil, ErrUnknownArtifact
	case version == nil || version.Artifact.ID != c.Artifact:
		return nil, InvalidMember("/versionId", "UNKNOWN", "must name a version of this artifact")
	case version.State != VersionAnalyzed && version.State != VersionReviewed:
		return nil, Refuse(
			InvalidState, "A review can be declared of an analyzed version until it is approved; this one is %s.",
			version.State,
		)
	case version.Reviews >= MaxReviewsOfAVersion:
		return nil, Refuse(InvalidState, "This version has %d reviews and may have no more.", version.Reviews)
	case !c.supplies(version):
		return nil, Refuse(
			FileDoesNotMatchVersion, "The file is not the one that was registered as this version: its SHA-256 differs.",
		)
	}
	b := ReviewDeclaredBody{
		ArtifactID: c.Artifact, VersionID: c.Version, ReviewID: c.id.draw(now), MemberID: c.Member, Outcome: c.Outcome,
		Statement: c.statement.draw(now, c.Statement).Ref(),
	}
	after := *version
	after.State, after.Outcome, after.Reviews = VersionReviewed, c.Outcome, version.Reviews+1
	c.Answer.Body, c.Answer.Version, c.Answer.At = b, after, now
	return []Draft{{Subject: c.id.String(), Body: &b, Texts: []Text{c.statement}}}, nil
}

// supplies reports whether the bytes belong to the version. A manifest may be spelled differently, because its
// canonical form was registered.
func (c *DeclareReview) supplies(v *ArtifactVersion) bool {
	return v.SHA256 == c.SHA256 || v.Kind == ManifestContent && c.Manifest != nil && v.SHA256 == *c.Manifest
}

// ApproveArtifactVersion approves a version whose latest review accepts it.
type ApproveArtifactVersion struct {
	Origin
	Version   ArtifactVersionID
	Member    MemberID
	Statement string

	id        ApprovalID
	statement Text

	Answer struct {
		Body    ArtifactVersionApprovedBody
		Version ArtifactVersion
		At      time.Time
	}
}

func (c *ApproveArtifactVersion) Need(n *Needs) {
	n.Certification.Versions = append(n.Certification.Versions, c.Version)
}

func (c *ApproveArtifactVersion) Decide(s *State, now time.Time) ([]Draft, error) {
	version := s.artifactVersions[c.Version]
	switch {
	case version == nil || version.Artifact.Organization != c.Organization:
		return nil, ErrUnknownArtifactVersion
	case version.State != VersionReviewed:
		return nil, Refuse(InvalidState, "A version can be approved once it is reviewed; this one is %s.", version.State)
	case version.Outcome != ReviewAccepted:
		return nil, Refuse(
			InvalidState, "The latest review of this version requests changes; only an accepted review can be approved.",
		)
	}
	b := ArtifactVersionApprovedBody{
		ArtifactID: version.Artifact.ID, VersionID: c.Version, ApprovalID: c.id.draw(now), MemberID: c.Member,
		Statement: c.statement.draw(now, c.Statement).Ref(),
	}
	after := *version
	after.State = VersionApproved
	c.Answer.Body, c.Answer.Version, c.Answer.At = b, after, now
	return []Draft{{Subject: c.id.String(), Body: &b, Texts: []Text{c.statement}}}, nil
}

// ReviewDeclaredBody is a member's review of a version, declared with the exact bytes.
type ReviewDeclaredBody struct {
	ArtifactID ArtifactID        `json:"artifactId"`
	VersionID  ArtifactVersionID `json:"versionId"`
	ReviewID   ReviewID          `json:"reviewId"`
	MemberID   MemberID          `json:"memberId"`
	Outcome    ReviewOutcome     `json:"outcome"`
	Statement  TextRef           `json:"statement"`
}

func (b *ReviewDeclaredBody) apply(s *State, e *Event) error {
	v := s.artifactVersions[b.VersionID]
	if v == nil || v.State != VersionAnalyzed && v.State != VersionReviewed {
		return say.Errorf("event %s reviews a version that cannot be reviewed", e.ID)
	}
	v.State, v.Outcome, v.Reviews = VersionReviewed, b.Outcome, v.Reviews+1
	return nil
}

// ArtifactVersionApprovedBody is a member's approval of a reviewed version.
type ArtifactVersionApprovedBody struct {
	ArtifactID ArtifactID        `json:"artifactId"`
	VersionID  ArtifactVersionID `json:"versionId"`
	ApprovalID ApprovalID        `json:"approvalId"`
	MemberID   MemberID          `json:"memberId"`
	Statement  TextRef           `json:"statement"`
}

func (b *ArtifactVersionApprovedBody) apply(s *State, e *Event) error {
	v := s.artifactVersions[b.VersionID]
	if v == nil || v.State != VersionReviewed || v.Outcome != ReviewAccepted {
		return say.Errorf("event %s approves a version without an accepted review", e.ID)
	}
	v.State = VersionApproved
	return nil
}

// CertificateStatus is the status of a certificate. A revoked certificate stays revoked when a later one replaces it.
type CertificateStatus string

// The states of a certificate (contract section 7).
const (
	CertificateValid          CertificateStatus = "valid"
	CertificateRevokedStatus  CertificateStatus = "revoked"
	CertificateReplacedStatus CertificateStatus = "replaced"
)

// Values that a caller may authorize for publication in a certificate.
const (
	PublicTitle            = "title"
	PublicOrganizationName = "organizationName"
)

// Certificate is a signed certificate of a version.
type Certificate struct {
	PublicID   PublicID
	Artifact   *Artifact `compact:"-"` // saved with its certificates
	RevokedAt  *time.Time
	ReplacedBy *PublicID
}

// Status derives the status from the certificate's history.
func (c *Certificate) Status() CertificateStatus {
	switch {
	case c.RevokedAt != nil:
		return CertificateRevokedStatus
	case c.ReplacedBy != nil:
		return CertificateReplacedStatus
	default:
		return CertificateValid
	}
}

// IssueCertificate issues the only certificate of an approved version. It replaces the certificate of an earlier
// version of the artifact.
type IssueCertificate struct {
	Origin
	Version ArtifactVersionID
	Member  MemberID

	sum       [32]byte // of the signed bytes
	publicID  PublicID
	issuedAt  time.Time
	fields    []string
	published Published
	payload   Text
	keyID     string
	signature string

	Outcome struct {
		Body    CertificateIssuedBody
		Version ArtifactVersion
	}
}

// Published holds the values that the caller authorized for publication in a certificate; nil for every other value.
type Published struct {
	Title            *string
	OrganizationName *string
}

// Certify signs a certificate of the bytes (hash and size) of a version. It fails as Sign does.
func (r Registrar) Certify(
	origin Origin, member MemberID, version ArtifactVersionID, sum [32]byte, size int64, p Published, now time.Time,
) (c *IssueCertificate, err error) {
	now = now.UTC().Truncate(time.Microsecond)
	c = &IssueCertificate{
		Origin: origin, Version: version, Member: member, sum: sum, issuedAt: now, fields: []string{}, published: p,
		publicID: NewPublicID(r.Secret, origin.Organization.Shard()),
	}
	if p.Title != nil {
		c.fields = append(c.fields, PublicTitle)
	}
	if p.OrganizationName != nil {
		c.fields = append(c.fields, PublicOrganizationName)
	}
	payload := evidence.CertificatePayload{
		Issuer: r.Issuer, PublicID: c.publicID.String(), SHA256: sum, SizeBytes: size,
		IssuedAt: now, Title: p.Title, OrganizationName: p.OrganizationName,
	}.AppendCanonical(nil)
	c.payload = NewText(now, string(payload))
	c.keyID = r.Signer.Key().KeyID
	c.signature, err = Sign(r.Signer, payload)
	return c, err
}

// DatedAt implements Dated: issuedAt is signed.
func (c *IssueCertificate) DatedAt() time.Time { return c.issuedAt }

func (c *IssueCertificate) Need(n *Needs) {
	n.Certification.Versions = append(n.Certification.Versions, c.Version)
	n.Certification.Former = append(n.Certification.Former, c.Version)
	if len(c.fields) > 0 {
		n.Certification.Words = append(n.Certification.Words, c.Version)
	}
}

// checkWords refuses to publish a word that was erased after the signature was made.
func (c *IssueCertificate) checkWords(s *State) error {
	title, name := s.titles[c.Version].Body, s.names[c.Organization].Body
	switch p := c.published; {
	case p.Title != nil && title == "":
		return ErrErasedTitle
	case p.OrganizationName != nil && name == "":
		return ErrErasedName
	case p.Title != nil && *p.Title != title || p.OrganizationName != nil && *p.OrganizationName != name:
		return say.Errorf("the certificate of version %s was signed with other words than its own", c.Version)
	}
	return nil
}

func (c *IssueCertificate) Decide(s *State, _ time.Time) ([]Draft, error) {
	version := s.artifactVersions[c.Version]
	switch {
	case version == nil || version.Artifact.Organization != c.Organization:
		return nil, ErrUnknownArtifactVersion
	case version.SHA256 != c.sum:
		return nil, say.Errorf("version %s is not the one that was signed", c.Version)
	case version.State == VersionCertified:
		return nil, Refuse(InvalidState, "This version has its certificate already; a version is certified once.")
	case version.State != VersionApproved:
		return nil, Refuse(InvalidState, "A certificate needs an approved version; this one is %s.", version.State)
	case version.Artifact.Certified > version.Number:
		return nil, Refuse(
			InvalidState, "Version %d of this artifact has a certificate; an earlier version cannot get one after it.",
			version.Artifact.Certified,
		)
	}
	if err := c.checkWords(s); err != nil {
		return nil, err
	}
	artifact := version.Artifact
	b := CertificateIssuedBody{
		ArtifactID: artifact.ID, VersionID: c.Version, Version: version.Number, PublicID: c.publicID, MemberID: c.Member,
		IssuedAt: c.issuedAt, PublicFields: c.fields, Payload: c.payload.Ref(), KeyID: c.keyID, Signature: c.signature,
	}
	drafts := []Draft{{Subject: c.publicID.String(), Body: &b, Texts: []Text{c.payload}}}
	if artifact.Certified > 0 {
		former := s.certificates[artifact.CertifiedBy]
		if former == nil {
			return nil, say.Errorf("certificate %s was not loaded", artifact.CertifiedBy)
		}
		if former.RevokedAt == nil {
			drafts = append(drafts, Draft{
				Subject: former.PublicID.String(),
				Body:    &CertificateReplacedBody{ArtifactID: artifact.ID, PublicID: former.PublicID, ByPublicID: c.publicID},
			})
		}
	}
	after := *version
	after.State = VersionCertified
	c.Outcome.Body, c.Outcome.Version = b, after
	return drafts, nil
}

// RevokeCertificate revokes a certificate of the organization. The signed bytes stay, and so does the first reason.
type RevokeCertificate struct {
	Origin
	PublicID PublicID
	Reason   string

	reason Text

	Outcome  Certificate
	Replayed bool // it was already revoked
}

func (c *RevokeCertificate) Need(n *Needs) {
	n.Certification.Certificates = append(n.Certification.Certificates, c.PublicID)
}

// Decide implements Command. A certificate of another organization counts as unknown.
func (c *RevokeCertificate) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.certificates[c.PublicID]
	if known == nil || known.Artifact.Organization != c.Organization {
		return nil, ErrUnknownCertificate
	}
	if known.RevokedAt != nil {
		c.Outcome, c.Replayed = *known, true
		return nil, nil
	}
	after := *known
	after.RevokedAt = &now
	c.Outcome, c.Replayed = after, false
	return []Draft{{
		Subject: c.PublicID.String(), Texts: []Text{c.reason.draw(now, c.Reason)},
		Body: &CertificateRevokedBody{ArtifactID: known.Artifact.ID, PublicID: c.PublicID, Reason: c.reason.Ref()},
	}}, nil
}

// CertificateIssuedBody is a signed certificate. The signed bytes are a Text: they may contain a title or a name, and
// can be erased like any other.
type CertificateIssuedBody struct {
	ArtifactID   ArtifactID        `json:"artifactId"`
	VersionID    ArtifactVersionID `json:"versionId"`
	Version      int32             `json:"version"`
	PublicID     PublicID          `json:"publicId"`
	MemberID     MemberID          `json:"memberId"`
	IssuedAt     time.Time         `json:"issuedAt"` // as signed
	PublicFields []string          `json:"publicFields"`
	Payload      TextRef           `json:"payload"`
	KeyID        string            `json:"keyId"`
	Signature    string            `json:"signature"`
}

func (b *CertificateIssuedBody) apply(s *State, e *Event) error {
	v := s.artifactVersions[b.VersionID]
	if v == nil || v.State != VersionApproved || v.Artifact.Certified >= v.Number {
		return say.Errorf("event %s certifies a version that cannot be certified", e.ID)
	}
	v.State, v.Artifact.Certified, v.Artifact.CertifiedBy = VersionCertified, v.Number, b.PublicID
	s.AddCertificate(Certificate{PublicID: b.PublicID, Artifact: v.Artifact})
	return nil
}

// CertificateReplacedBody records that a later version's certificate has replaced this one.
type CertificateReplacedBody struct {
	ArtifactID ArtifactID `json:"artifactId"`
	PublicID   PublicID   `json:"publicId"`
	ByPublicID PublicID   `json:"byPublicId"`
}

func (b *CertificateReplacedBody) apply(s *State, e *Event) error {
	c := s.certificates[b.PublicID]
	if c == nil || c.Status() != CertificateValid {
		return say.Errorf("event %s replaces a certificate that is not valid", e.ID)
	}
	c.ReplacedBy = new(b.ByPublicID)
	return nil
}

// CertificateRevokedBody revokes a certificate.
type CertificateRevokedBody struct {
	ArtifactID ArtifactID `json:"artifactId"`
	PublicID   PublicID   `json:"publicId"`
	Reason     TextRef    `json:"reason"`
}

func (b *CertificateRevokedBody) apply(s *State, e *Event) error {
	c := s.certificates[b.PublicID]
	if c == nil || c.RevokedAt != nil {
		return say.Errorf("event %s revokes a certificate that was never issued, or a second time", e.ID)
	}
	c.RevokedAt = new(e.OccurredAt)
	return nil
}
