package wire

import "integrityledger/domain"

// Artifact is a document of the certification API. Title is that of its newest version; null once erased.
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

// Analysis is what the detectors found in a version. It is no verdict.
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
}

// CertifiedVersion is a version with what was declared about it.
type CertifiedVersion struct {
	ArtifactVersion
	Reviews     []Review     `json:"reviews"`
	Approval    *Approval    `json:"approval"`
	Certificate *Certificate `json:"certificate"`
}

// Manifest answers the validation of a file manifest.
type Manifest struct {
	Valid      bool                `json:"valid"`
	Files      int                 `json:"files"`
	TotalBytes int64               `json:"totalBytes"`
	SHA256     string              `json:"sha256"`
	Warnings   []domain.FieldError `json:"warnings"`
}
