package domain

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// ContentKind is the kind of an artifact version's bytes.
type ContentKind string

// A file's bytes are the uploaded ones, a text's its UTF-8, and a manifest's its canonical form (RFC 8785).
const (
	FileContent     ContentKind = "file"
	TextContent     ContentKind = "text"
	ManifestContent ContentKind = "manifest"
)

// Limits of certification. The last two keep the answer about one artifact bounded.
const (
	MaxFileBytes         = 52_428_800 // of an uploaded file (contract section 7)
	MaxTextBytes         = 1 << 20    // of a text, in UTF-8
	MaxTitle             = 200        // characters
	MaxFileName          = 255        // characters
	MaxStatement         = 2_000      // characters
	MaxReason            = 500        // characters
	MaxArtifactVersions  = 1_000
	MaxReviewsOfAVersion = 100
)

// VersionState is the state of a version. It only advances.
type VersionState string

// The states of a version (contract section 7).
const (
	VersionRegistered VersionState = "registered"
	VersionAnalyzed   VersionState = "analyzed"
	VersionReviewed   VersionState = "reviewed"
	VersionApproved   VersionState = "approved"
	VersionCertified  VersionState = "certified"
)

// Artifact is a document of certification with its versions, which count from 1.
type Artifact struct {
	ID           ArtifactID
	Organization OrganizationID
	Latest       int32 // the newest version
	CreatedAt    time.Time

	// Certified is the highest version that has a certificate, 0 for none, and CertifiedBy that certificate.
	Certified   int32
	CertifiedBy PublicID
}

// ArtifactVersion is one version of an artifact.
type ArtifactVersion struct {
	ID        ArtifactVersionID
	Artifact  *Artifact `compact:"-"` // saved with its versions
	Number    int32
	Kind      ContentKind
	SHA256    [32]byte
	SizeBytes int64
	State     VersionState
	Reviews   int
	Outcome   ReviewOutcome // of the latest review; empty without one
	Retained  bool          // its bytes are kept
}

// Content is the content of a version: the bytes by hash and size, and the declared properties.
type Content struct {
	Kind      ContentKind
	Title     string
	FileName  string // empty for none
	MediaType string // as declared; empty for none
	SHA256    [32]byte
	SizeBytes int64
}

// RegisterArtifactVersion registers a later version of an artifact, or the first version
// of a new one, together with its finished analysis.
type RegisterArtifactVersion struct {
	Origin
	Artifact ArtifactID // zero: a new one
	Version  ArtifactVersionID
	Content  Content
	Analysis AnalysisReport
	// Stored is set if the bytes are in the blob store under the version's id. The organization's current retention
	// decides whether they are kept.
	Stored bool

	begins     bool // the artifact is new
	analysisID AnalysisID
	title      Text
	fileName   Text

	Outcome ArtifactVersionRegistration
}

// ArtifactVersionRegistration is the outcome of a RegisterArtifactVersion.
type ArtifactVersionRegistration struct {
	Artifact Artifact
	Version  ArtifactVersion
	Event    ArtifactVersionRegisteredBody
	Analysis AnalysisCompletedBody
	At       time.Time
}

// NewRegisterArtifactVersion draws the version's id, for the blob store, and the id of a new artifact.
func NewRegisterArtifactVersion(c RegisterArtifactVersion, now time.Time) *RegisterArtifactVersion {
	c.Version = NewID[ArtifactVersionID](now)
	if c.begins = c.Artifact.IsZero(); c.begins {
		c.Artifact = NewID[ArtifactID](now)
	}
	return &c
}

func (c *RegisterArtifactVersion) Need(n *Needs) {
	n.Certification.Accounts = append(n.Certification.Accounts, c.Organization)
	n.Certification.Contents = append(n.Certification.Contents, ContentNeed{c.Organization, c.Content.SHA256})
	n.Certification.Artifacts = append(n.Certification.Artifacts, c.Artifact)
}

// Decide implements Command: the artifact, then the quota.
func (c *RegisterArtifactVersion) Decide(s *State, now time.Time) ([]Draft, error) {
	o := s.Organization(c.Organization)
	if o == nil {
		return nil, errUnknownOrganization
	}
	artifact := s.artifacts[c.Artifact]
	switch {
	case c.begins && artifact != nil:
		return nil, say.Errorf("artifact %s exists before its first registration", c.Artifact)
	case c.begins:
		artifact = &Artifact{ID: c.Artifact, Organization: c.Organization, CreatedAt: now}
	case artifact == nil || artifact.Organization != c.Organization:
		return nil, ErrUnknownArtifact
	case artifact.Latest >= MaxArtifactVersions:
		return nil, Refuse(
			InvalidState, "This artifact has %d versions and may have no more; register a new artifact.", artifact.Latest,
		)
	}
	period := PeriodOf(now)
	limit, used := s.plans.Of(o.Plan, o.Internal).RegistrationsPerMonth, s.registrations[monthKey{c.Organization, period}]
	credit, err := RegistrationRoom(o.Plan, limit, used, s.account(c.Organization).Credits, period, now)
	if err != nil {
		return nil, err
	}
	texts := []Text{c.title.draw(now, c.Content.Title)}
	b := ArtifactVersionRegisteredBody{
		ArtifactID: c.Artifact, VersionID: c.Version, Version: artifact.Latest + 1, Kind: c.Content.Kind,
		Title:     c.title.Ref(),
		MediaType: optional(c.Content.MediaType), SHA256: hex.EncodeToString(c.Content.SHA256[:]),
		SizeBytes: c.Content.SizeBytes,
		Period:    period, Credit: credit,
	}
	if c.Content.FileName != "" {
		texts = append(texts, c.fileName.draw(now, c.Content.FileName))
		b.FileName = new(c.fileName.Ref())
	}
	if days := s.account(c.Organization).RetentionDays; c.Stored && days > 0 {
		b.RetainUntil = new(now.AddDate(0, 0, int(days)))
	}
	results, elapsed := c.Analysis.with(duplicateResult(s.contents[ContentNeed{c.Organization, c.Content.SHA256}]))
	a := AnalysisCompletedBody{
		ArtifactID: c.Artifact, VersionID: c.Version, AnalysisID: c.analysisID.draw(now), Status: AnalysisCompletedStatus,
		Detectors:     results,
		ElapsedMicros: elapsed, DurationMillis: c.Analysis.Duration.Milliseconds(), Limitations: c.Analysis.Limitations,
	}
	after := *artifact
	after.Latest = b.Version
	c.Outcome = ArtifactVersionRegistration{
		Artifact: after, Event: b, Analysis: a, At: now,
		Version: ArtifactVersion{
			ID: c.Version, Artifact: &after, Number: b.Version, Kind: b.Kind, SHA256: c.Content.SHA256,
			SizeBytes: c.Content.SizeBytes,
			State:     VersionAnalyzed, Retained: b.RetainUntil != nil,
		},
	}
	drafts := []Draft{
		{Subject: c.Version.String(), Body: &b, Texts: texts},
		{Subject: c.analysisID.String(), Body: &a},
	}
	if credit {
		return drafts, nil
	}
	return append(drafts, s.warn(o, RegistrationsAllowance, period, used+1, limit)...), nil
}

// RegistrationRoom checks whether a month with used registrations has room for another. credit reports whether it would
// take a credit. Without room, the error says when there will be some.
func RegistrationRoom(
	plan string, limit *int64, used, credits int64, period Period, now time.Time,
) (credit bool, err error) {
	switch {
	case limit == nil || used < *limit:
		return false, nil
	case credits > 0:
		return true, nil
	case *limit == 0:
		return false, Refuse(
			PlanRequired, "The plan %s does not include registrations of artifacts; a file credit pack or another plan does.",
			plan,
		)
	}
	return false, Refuse(
		ArtifactQuotaExhausted, "The plan %s allows %d registrations of artifacts in %s and all are used; the allowance "+
			"resets at %s. A file credit pack enlarges it.",
		plan, *limit, period, period.End().Format(time.RFC3339),
	).After(period.End().Sub(now))
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// ArtifactVersionRegisteredBody adds a version. Version 1 creates its artifact.
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

func (b *ArtifactVersionRegisteredBody) apply(s *State, e *Event) error {
	a := s.artifacts[b.ArtifactID]
	if a == nil && b.Version == 1 {
		a = s.AddArtifact(Artifact{ID: b.ArtifactID, Organization: e.Organization, CreatedAt: e.OccurredAt})
	}
	if a == nil || b.Version != a.Latest+1 {
		return say.Errorf("event %s registers version %d of an artifact out of order", e.ID, b.Version)
	}
	v := ArtifactVersion{
		ID: b.VersionID, Artifact: a, Number: b.Version, Kind: b.Kind, SizeBytes: b.SizeBytes, State: VersionRegistered,
		Retained: b.RetainUntil != nil,
	}
	var ok bool
	if v.SHA256, ok = ParseSHA256(b.SHA256); !ok {
		return say.Errorf("event %s: sha256 is not 64 hexadecimal characters", e.ID)
	}
	a.Latest = b.Version
	s.AddArtifactVersion(v)
	s.AddTitle(v.ID, e.text(b.Title))
	content := ContentNeed{e.Organization, v.SHA256}
	s.AddContent(content, s.contents[content]+1)
	if b.Credit {
		s.account(e.Organization).Credits--
	} else {
		s.AddRegistrations(e.Organization, b.Period, s.registrations[monthKey{e.Organization, b.Period}]+1)
	}
	return nil
}

// ContentErasedBody records that the kept bytes of a version were erased.
type ContentErasedBody struct {
	ArtifactID ArtifactID        `json:"artifactId"`
	VersionID  ArtifactVersionID `json:"versionId"`
}

func (b *ContentErasedBody) apply(s *State, e *Event) error {
	v := s.artifactVersions[b.VersionID]
	if v == nil || !v.Retained {
		return say.Errorf("event %s erases bytes that were not kept", e.ID)
	}
	v.Retained = false
	return nil
}

// EraseContent records that the kept bytes of a version were deleted from the blob store.
type EraseContent struct {
	Origin
	Version ArtifactVersionID
}

func (c *EraseContent) Need(n *Needs) {
	n.Certification.Versions = append(n.Certification.Versions, c.Version)
}

// Decide implements Command. Bytes that were never committed, or were already erased, cause no event.
func (c *EraseContent) Decide(s *State, _ time.Time) ([]Draft, error) {
	version := s.artifactVersions[c.Version]
	if version == nil || version.Artifact.Organization != c.Organization || !version.Retained {
		return nil, nil
	}
	return []Draft{
		{Subject: c.Version.String(), Body: &ContentErasedBody{ArtifactID: version.Artifact.ID, VersionID: c.Version}},
	}, nil
}

// titleRule describes a valid title.
const titleRule = "must be 1 to 200 characters on one line, not only spaces, without control characters and " +
	"without characters that change the direction of writing"

// maxTitleBytes is the maximum length of a title before normalization: no character is composed of more than four, each
// of at most four bytes.
const maxTitleBytes = 4 * 4 * MaxTitle

// ReadTitle reads a required title and normalizes it to NFC.
func ReadTitle(o *strictjson.Object, name string) string {
	title := o.String(name, strictjson.Required)
	if len(title) > maxTitleBytes {
		o.Problem(name, strictjson.CodeFormat, titleRule)
		return ""
	}
	title = norm.NFC.String(title)
	if o.OK(name) && (strings.TrimSpace(title) == "" || !ValidName(title, MaxTitle)) {
		o.Problem(name, strictjson.CodeFormat, titleRule)
	}
	return title
}

// ReadStatement reads a required text of a person, with at most most characters.
func ReadStatement(o *strictjson.Object, name string, most int) string {
	text := o.Sized(name, strictjson.Required, 1, most)
	if o.OK(name) && strings.TrimSpace(text) == "" {
		o.Problem(name, strictjson.CodeFormat, "must not be only spaces")
	}
	return text
}

// ReadConsent reads a member that must be true, because the request acts in a person's name.
func ReadConsent(o *strictjson.Object, name string) {
	if given := o.Bool(name, strictjson.Required); o.OK(name) && !given {
		o.Problem(name, strictjson.CodeFormat, "must be true")
	}
}

// AnalysisCompletedStatus is the only status of an analysis. Each detector reports what it could not determine.
const AnalysisCompletedStatus = "completed"

// DetectorEvidence describes where a detector found a structure: names, counts and positions, never a part of the
// content.
type DetectorEvidence struct {
	Structure string  `json:"structure"`
	Count     int64   `json:"count"`
	Unit      string  `json:"unit"`
	Positions []int64 `json:"positions"`
}

// DetectorResult is the result of one detector (contract, section 7).
type DetectorResult struct {
	ID          string             `json:"id"`
	Version     int                `json:"version"`
	Outcome     string             `json:"outcome"`
	Severity    string             `json:"severity"`
	Summary     string             `json:"summary"`
	Evidence    []DetectorEvidence `json:"evidence"`
	Limitations []string           `json:"limitations"`
}

// AnalysisReport is a finished analysis of a content.
type AnalysisReport struct {
	Results     []DetectorResult
	Elapsed     []time.Duration // by result
	Duration    time.Duration   // in total
	Limitations []string
}

// with adds the result of the only detector that examines the organization instead of the bytes.
func (r AnalysisReport) with(last DetectorResult) (results []DetectorResult, elapsedMicros []int64) {
	results = append(append([]DetectorResult{}, r.Results...), last)
	elapsedMicros = make([]int64, len(results))
	for i, d := range r.Elapsed {
		elapsedMicros[i] = d.Microseconds()
	}
	return results, elapsedMicros
}

// DuplicateDetector is the name of the detector that compares with the organization's other versions.
const DuplicateDetector = "duplicate-content"

// duplicateResult reports whether the organization already has the same bytes.
func duplicateResult(others int64) DetectorResult {
	r := DetectorResult{
		ID: DuplicateDetector, Version: 1, Outcome: "clear", Severity: "none", Evidence: []DetectorEvidence{},
		Summary:     "No other version of an artifact of this organization has the same bytes.",
		Limitations: []string{"Only exactly the same bytes are found, and only among the artifacts of this organization."},
	}
	if others > 0 {
		r.Outcome, r.Severity = "finding", "info"
		r.Summary = fmt.Sprintf("%d other versions of artifacts of this organization have the same bytes.", others)
		if others == 1 {
			r.Summary = "One other version of an artifact of this organization has the same bytes."
		}
		r.Evidence = []DetectorEvidence{
			{Structure: "version of an artifact", Count: others, Unit: "version", Positions: []int64{}},
		}
	}
	return r
}

// AnalysisCompletedBody is the complete analysis of a version.
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

func (b *AnalysisCompletedBody) apply(s *State, e *Event) error {
	v := s.artifactVersions[b.VersionID]
	if v == nil || v.State != VersionRegistered {
		return say.Errorf("event %s analyses a version that was never registered, or a second time", e.ID)
	}
	v.State = VersionAnalyzed
	return nil
}
