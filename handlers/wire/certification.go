package wire

import (
	"integrityledger/domain"
)

// Artifact is a document of the certification API. Title is the title of its newest version, or null once erased.
type Artifact struct {
	ID            string  `json:"id"`
	Title         *string `json:"title"`
	LatestVersion int32   `json:"latestVersion"`
	CreatedAt     string  `json:"createdAt"`
	UpdatedAt     string  `json:"updatedAt"`
}

// KeptContent says whether the bytes of a version are kept.
type KeptContent struct {
	KeptUntil *string `json:"keptUntil"`
	ErasedAt  *string `json:"erasedAt"`
}

type ArtifactVersion struct {
	ID           string              `json:"id"`
	ArtifactID   string              `json:"artifactId"`
	Version      int32               `json:"version"`
	Title        *string             `json:"title"`
	Kind         domain.ContentKind  `json:"kind"`
	FileName     *string             `json:"fileName"`
	MediaType    *string             `json:"mediaType"`
	SHA256       string              `json:"sha256"`
	SizeBytes    int64               `json:"sizeBytes"`
	State        domain.VersionState `json:"state"`
	AnalysisID   string              `json:"analysisId"`
	RegisteredAt string              `json:"registeredAt"`
	Content      KeptContent         `json:"content"`
}

// Analysis lists the findings of the detectors in a version. It is not a verdict.
type Analysis struct {
	ID          string                  `json:"id"`
	VersionID   string                  `json:"versionId"`
	Status      string                  `json:"status"`
	Detectors   []domain.DetectorResult `json:"detectors"`
	Limitations []string                `json:"limitations"`
	DurationMs  int64                   `json:"durationMs"`
}

type ArtifactRegistration struct {
	Artifact Artifact        `json:"artifact"`
	Version  ArtifactVersion `json:"version"`
	Analysis Analysis        `json:"analysis"`
}

type ListedArtifact struct {
	Artifact
	Newest ArtifactVersion `json:"newestVersion"`
}

type Artifacts struct {
	Artifacts []ListedArtifact `json:"artifacts"`
	Limit     int              `json:"limit"`
	Offset    int              `json:"offset"`
	Total     int64            `json:"total"`
}

type ArtifactHistory struct {
	Artifact
	Versions []CertifiedVersion `json:"versions"`
	Next
}

// CertifiedVersion is a version with its reviews, approval and certificate.
type CertifiedVersion struct {
	ArtifactVersion
	Reviews     []Review     `json:"reviews"`
	Approval    *Approval    `json:"approval"`
	Certificate *Certificate `json:"certificate"`
}

// Manifest is the answer to the validation of a file manifest.
type Manifest struct {
	Valid      bool                `json:"valid"`
	Files      int                 `json:"files"`
	TotalBytes int64               `json:"totalBytes"`
	SHA256     string              `json:"sha256"`
	Warnings   []domain.FieldError `json:"warnings"`
}

// Actor names the key that sent a statement and the member responsible for it.
type Actor struct {
	KeyID    string `json:"keyId"`
	MemberID string `json:"memberId"`
}

// Review is a member's statement about the exact bytes of a version.
type Review struct {
	ID         string               `json:"id"`
	VersionID  string               `json:"versionId"`
	Outcome    domain.ReviewOutcome `json:"outcome"`
	Statement  *string              `json:"statement"`
	Reviewer   Actor                `json:"reviewer"`
	DeclaredAt string               `json:"declaredAt"`
}

type Approval struct {
	ID         string  `json:"id"`
	VersionID  string  `json:"versionId"`
	Statement  *string `json:"statement"`
	Approver   Actor   `json:"approver"`
	ApprovedAt string  `json:"approvedAt"`
}

// ArtifactVersionState is the state of a version in its life cycle.
type ArtifactVersionState struct {
	ID         string              `json:"id"`
	ArtifactID string              `json:"artifactId"`
	Version    int32               `json:"version"`
	State      domain.VersionState `json:"state"`
}

type DeclaredReview struct {
	Review  Review               `json:"review"`
	Version ArtifactVersionState `json:"version"`
}

type ApprovedVersion struct {
	Approval Approval             `json:"approval"`
	Version  ArtifactVersionState `json:"version"`
}

// Certificate is a certificate without its signed bytes. ReplacedBy is a publicId.
type Certificate struct {
	PublicID        string                   `json:"publicId"`
	VersionID       string                   `json:"versionId"`
	ArtifactID      string                   `json:"artifactId"`
	Status          domain.CertificateStatus `json:"status"`
	IssuedAt        string                   `json:"issuedAt"`
	PublicFields    []string                 `json:"publicFields"`
	RevokedAt       *string                  `json:"revokedAt"`
	ReplacedAt      *string                  `json:"replacedAt"`
	ReplacedBy      *string                  `json:"replacedBy"`
	VerificationURL string                   `json:"verificationUrl"`
	DownloadURL     string                   `json:"downloadUrl"`
}

type IssuedCertificate struct {
	Certificate Certificate          `json:"certificate"`
	Version     ArtifactVersionState `json:"version"`
}

// RevokedCertificate is the answer to a revocation. Replayed is true if the certificate was revoked before.
type RevokedCertificate struct {
	Certificate
	Replayed bool `json:"replayed"`
}

// VerificationReason names the check that decided a verification (contract section 7).
type VerificationReason string

// The reasons of a verification.
const (
	ReasonSignature VerificationReason = "SIGNATURE_INVALID"
	ReasonNoFile    VerificationReason = "FILE_NOT_COMPARED"
	ReasonMismatch  VerificationReason = "HASH_MISMATCH"
	ReasonRevoked   VerificationReason = "CERTIFICATE_REVOKED"
	ReasonReplaced  VerificationReason = "CERTIFICATE_REPLACED"
	ReasonMatch     VerificationReason = "MATCH"
)

// Verification reports hash, signature and validity separately; Verified requires all three.
type Verification struct {
	PublicID           string                   `json:"publicId"`
	Verified           bool                     `json:"verified"`
	HashMatches        *bool                    `json:"hashMatches"`
	SignatureValid     bool                     `json:"signatureValid"`
	CertificateCurrent bool                     `json:"certificateCurrent"`
	CertificateStatus  domain.CertificateStatus `json:"certificateStatus"`
	Reason             VerificationReason       `json:"reason"`
	DocumentUploaded   bool                     `json:"documentUploaded"`
	CheckedAt          string                   `json:"checkedAt"`
}

// PublishedCertificate has the texts that the organization authorized for publication, and the key that signed them.
type PublishedCertificate struct {
	Issuer           string  `json:"issuer"`
	IssuedAt         string  `json:"issuedAt"`
	KeyID            string  `json:"keyId"`
	Title            *string `json:"title"`
	OrganizationName *string `json:"organizationName"`
}

// PublicVerification is a verification with the published texts of the certificate.
type PublicVerification struct {
	Verification
	Certificate *PublishedCertificate `json:"certificate"`
	LimitsURL   string                `json:"limitsUrl"`
}
