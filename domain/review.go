package domain

import (
	"fmt"
	"time"
)

// ReviewOutcome is the result of a review.
type ReviewOutcome string

// A version can be approved while its latest review accepts it.
const (
	ReviewAccepted  ReviewOutcome = "accepted"
	ReviewRequested ReviewOutcome = "changes_requested"
)

// DeclareReview declares that a member has reviewed a version, whose bytes the caller sent once more.
// Several reviews may be declared until the version is approved.
type DeclareReview struct {
	Origin
	Artifact  ArtifactID
	Version   ArtifactVersionID
	Member    MemberID
	Outcome   ReviewOutcome
	Statement string
	SHA256    [32]byte // of the bytes supplied
	// Manifest is the SHA-256 of the manifest that these bytes are, in its canonical form; nil where they are no manifest.
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
		return nil, Refuse(InvalidState, "A review can be declared of an analyzed version until it is approved; this one is %s.", version.State)
	case version.Reviews >= MaxReviewsOfAVersion:
		return nil, Refuse(InvalidState, "This version has %d reviews and may have no more.", version.Reviews)
	case !c.supplies(version):
		return nil, Refuse(FileDoesNotMatchVersion, "The file is not the one that was registered as this version: its SHA-256 differs.")
	}
	b := ReviewDeclaredBody{
		ArtifactID: c.Artifact, VersionID: c.Version, ReviewID: c.id.draw(now), MemberID: c.Member, Outcome: c.Outcome, Statement: c.statement.draw(now, c.Statement).Ref(),
	}
	after := *version
	after.State, after.Outcome, after.Reviews = VersionReviewed, c.Outcome, version.Reviews+1
	c.Answer.Body, c.Answer.Version, c.Answer.At = b, after, now
	return []Draft{{Subject: c.id.String(), Body: &b, Texts: []Text{c.statement}}}, nil
}

// supplies reports whether the bytes are those of the version. A manifest may have
// another spelling: what was registered of it is its canonical form.
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
		return nil, Refuse(InvalidState, "The latest review of this version requests changes; only an accepted review can be approved.")
	}
	b := ArtifactVersionApprovedBody{
		ArtifactID: version.Artifact.ID, VersionID: c.Version, ApprovalID: c.id.draw(now), MemberID: c.Member, Statement: c.statement.draw(now, c.Statement).Ref(),
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
		return fmt.Errorf("event %s reviews a version that cannot be reviewed", e.ID)
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
		return fmt.Errorf("event %s approves a version without an accepted review", e.ID)
	}
	v.State = VersionApproved
	return nil
}
