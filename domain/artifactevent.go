package domain

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
