package domain

import "time"

// Event types of certification. Every body names its artifact, so that all
// that concerns one can be found in the log.
const (
	ArtifactVersionRegistered EventType = "artifact.version_registered"
	AnalysisCompleted         EventType = "analysis.completed"
	ReviewDeclared            EventType = "review.declared"
	ArtifactVersionApproved   EventType = "version.approved"
	CertificateIssued         EventType = "certificate.issued"
	CertificateReplaced       EventType = "certificate.replaced"
	CertificateRevoked        EventType = "certificate.revoked"
	ContentErased             EventType = "content.erased"
	TextsErased               EventType = "texts.erased"
	RetentionChanged          EventType = "organization.retention_changed"
	CreditsAdded              EventType = "organization.credits_added"
)

// VersionRegisteredBody adds a version; version 1 brings its artifact into being.
type ArtifactVersionRegisteredBody struct {
	ArtifactID  ArtifactID        `json:"artifactId"`
	VersionID   ArtifactVersionID `json:"versionId"`
	Version     int32             `json:"version"`
	Kind        ContentKind       `json:"kind"`
	Title       TextRef           `json:"title"`
	FileName    *TextRef          `json:"fileName"`
	MediaType   *string           `json:"mediaType"` // as declared
	SHA256      string            `json:"sha256"`
	SizeBytes   int64             `json:"sizeBytes"`
	Period      Period            `json:"period"`      // the month that is charged
	Credit      bool              `json:"credit"`      // a credit was taken instead of the month's allowance
	RetainUntil *time.Time        `json:"retainUntil"` // null: the bytes are not kept
}

// AnalysisCompletedBody is the whole analysis of a version.
type AnalysisCompletedBody struct {
	ArtifactID     ArtifactID        `json:"artifactId"`
	VersionID      ArtifactVersionID `json:"versionId"`
	AnalysisID     AnalysisID        `json:"analysisId"`
	Status         string            `json:"status"`
	Detectors      []DetectorResult  `json:"detectors"`
	ElapsedMicros  []int64           `json:"elapsedMicros"` // of each of Detectors
	DurationMillis int64             `json:"durationMs"`
	Limitations    []string          `json:"limitations"`
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

// VersionApprovedBody is a member's approval of a reviewed version.
type ArtifactVersionApprovedBody struct {
	ArtifactID ArtifactID        `json:"artifactId"`
	VersionID  ArtifactVersionID `json:"versionId"`
	ApprovalID ApprovalID        `json:"approvalId"`
	MemberID   MemberID          `json:"memberId"`
	Statement  TextRef           `json:"statement"`
}

// CertificateIssuedBody is a signed certificate. The signed bytes are a text: they
// may hold a title or a name, which can be erased like any other.
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

// CertificateReplacedBody says that a later version's certificate took the place of this one.
type CertificateReplacedBody struct {
	ArtifactID ArtifactID `json:"artifactId"`
	PublicID   PublicID   `json:"publicId"`
	ByPublicID PublicID   `json:"byPublicId"`
}

// CertificateRevokedBody withdraws a certificate.
type CertificateRevokedBody struct {
	ArtifactID ArtifactID `json:"artifactId"`
	PublicID   PublicID   `json:"publicId"`
	Reason     TextRef    `json:"reason"`
}

// ContentErasedBody says that the kept bytes of a version are gone.
type ContentErasedBody struct {
	ArtifactID ArtifactID        `json:"artifactId"`
	VersionID  ArtifactVersionID `json:"versionId"`
}

// TextsErasedBody says which texts an operator erased, for which subject.
type TextsErasedBody struct {
	Subject string   `json:"subject"`
	Texts   []TextID `json:"texts"`
}

// RetentionChangedBody sets for how many days the bytes of what is registered
// from now on are kept; 0: not at all.
type RetentionChangedBody struct {
	Days int32 `json:"days"`
}

// CreditsAddedBody is a file credit pack: registrations beyond the month's allowance.
type CreditsAddedBody struct {
	Credits int64 `json:"credits"`
}

func (*ArtifactVersionRegisteredBody) eventType() EventType { return ArtifactVersionRegistered }
func (*AnalysisCompletedBody) eventType() EventType         { return AnalysisCompleted }
func (*ReviewDeclaredBody) eventType() EventType            { return ReviewDeclared }
func (*ArtifactVersionApprovedBody) eventType() EventType   { return ArtifactVersionApproved }
func (*CertificateIssuedBody) eventType() EventType         { return CertificateIssued }
func (*CertificateReplacedBody) eventType() EventType       { return CertificateReplaced }
func (*CertificateRevokedBody) eventType() EventType        { return CertificateRevoked }
func (*ContentErasedBody) eventType() EventType             { return ContentErased }
func (*TextsErasedBody) eventType() EventType               { return TextsErased }
func (*RetentionChangedBody) eventType() EventType          { return RetentionChanged }
func (*CreditsAddedBody) eventType() EventType              { return CreditsAdded }

func (b *ArtifactVersionRegisteredBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *AnalysisCompletedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *ReviewDeclaredBody) appendCanonical(dst []byte) ([]byte, error)    { return appendJCS(dst, b) }
func (b *ArtifactVersionApprovedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *CertificateIssuedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *CertificateReplacedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *CertificateRevokedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *ContentErasedBody) appendCanonical(dst []byte) ([]byte, error)    { return appendJCS(dst, b) }
func (b *TextsErasedBody) appendCanonical(dst []byte) ([]byte, error)      { return appendJCS(dst, b) }
func (b *RetentionChangedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *CreditsAddedBody) appendCanonical(dst []byte) ([]byte, error)     { return appendJCS(dst, b) }

// newCertificationBody makes the body that stored data of the type is read into, or nil.
func newCertificationBody(t EventType) Body {
	switch t {
	case ArtifactVersionRegistered:
		return new(ArtifactVersionRegisteredBody)
	case AnalysisCompleted:
		return new(AnalysisCompletedBody)
	case ReviewDeclared:
		return new(ReviewDeclaredBody)
	case ArtifactVersionApproved:
		return new(ArtifactVersionApprovedBody)
	case CertificateIssued:
		return new(CertificateIssuedBody)
	case CertificateReplaced:
		return new(CertificateReplacedBody)
	case CertificateRevoked:
		return new(CertificateRevokedBody)
	case ContentErased:
		return new(ContentErasedBody)
	case TextsErased:
		return new(TextsErasedBody)
	case RetentionChanged:
		return new(RetentionChangedBody)
	case CreditsAdded:
		return new(CreditsAddedBody)
	}
	return nil
}
