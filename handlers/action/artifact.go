package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func viewArtifact(a query.Artifact) wire.Artifact {
	return wire.Artifact{
		ID: a.ID.String(), Title: a.Title, LatestVersion: a.Latest,
		CreatedAt: evidence.FormatTime(a.CreatedAt), UpdatedAt: evidence.FormatTime(a.UpdatedAt),
	}
}

func viewArtifactVersion(v query.ArtifactVersion) wire.ArtifactVersion {
	return wire.ArtifactVersion{
		ID: v.ID.String(), ArtifactID: v.ArtifactID.String(), Version: v.Version, Title: v.Title, Kind: v.Kind,
		FileName:  v.FileName,
		MediaType: v.MediaType, SHA256: v.SHA256, SizeBytes: v.SizeBytes, State: v.State, AnalysisID: v.AnalysisID.String(),
		RegisteredAt: evidence.FormatTime(v.RegisteredAt),
		Content:      wire.KeptContent{KeptUntil: wire.TimeOrNull(v.RetainUntil), ErasedAt: wire.TimeOrNull(v.ContentErased)},
	}
}

func viewAnalysis(b domain.AnalysisCompletedBody) wire.Analysis {
	return wire.Analysis{
		ID: b.AnalysisID.String(), VersionID: b.VersionID.String(), Status: b.Status, Detectors: b.Detectors,
		Limitations: b.Limitations, DurationMs: b.DurationMillis,
	}
}

// RegisteredContent is the content that a request registers. Its file belongs to the spool.
type RegisteredContent struct {
	domain.Content
	file     *os.File
	later    bool // a new version of the artifact in the path, not of a new artifact
	artifact domain.ArtifactID
}

// readContent reads a file, a text or a manifest. It takes the request itself because the body is streamed. The caller
// must close the file.
func (s *Artifacts) readContent(r *http.Request) (RegisteredContent, error) {
	if edge.CallOf(r).Body == nil {
		return s.ReadFileContent(r)
	}
	var text string
	var manifest domain.Manifest
	c, err := edge.Read(r, func(o *strictjson.Object) RegisteredContent {
		c := contentFor(r)
		c.Title = domain.ReadTitle(o, "title")
		switch c.Kind = domain.ContentKind(o.String("kind", strictjson.Required)); c.Kind {
		case domain.TextContent:
			c.MediaType = "text/plain"
			text = o.String("text", strictjson.Required)
			if o.OK("text") && (len(text) < 1 || len(text) > domain.MaxTextBytes) {
				o.Problem("text", strictjson.CodeLength, "must be 1 to 1048576 bytes of UTF-8")
			}
		case domain.ManifestContent:
			c.MediaType = edge.JSONType
			manifest = domain.ReadManifestMember(o, "manifest")
		default:
			if o.OK("kind") {
				o.Problem("kind", strictjson.CodeFormat, "must be text or manifest; a file is sent as multipart/form-data")
			}
		}
		return c
	})
	if err != nil {
		return c, err
	}
	if c.Kind == domain.ManifestContent {
		text = string(manifest.Canonical())
	}
	c.SizeBytes, c.SHA256 = int64(len(text)), sha256.Sum256([]byte(text))
	c.file, err = s.spoolText([]byte(text))
	return c, err
}

// ArtifactID returns the artifact that the path of an upload or a page names.
func ArtifactID(r *http.Request) domain.ArtifactID {
	return edge.PathID(r, "id", domain.ParseID[domain.ArtifactID])
}

func contentFor(r *http.Request) RegisteredContent {
	return RegisteredContent{later: edge.Variable(r, "id") != "", artifact: ArtifactID(r)}
}

// ReadFileContent reads an uploaded file, which the caller passes to RegisterContent. It takes the request itself
// because the body is streamed.
func (s *Artifacts) ReadFileContent(r *http.Request) (RegisteredContent, error) {
	u, err := s.readUpload(r, true)
	if err != nil {
		return RegisteredContent{}, err
	}
	o := edge.CallOf(r).Meter.Decode(u.metadata)
	u.Title = domain.ReadTitle(o, "title")
	if err = edge.Invalid(o.Problems()); err != nil {
		u.file.Close()
	}
	return u.RegisteredContent, err
}

// RegisterVersion registers a file, a text or a manifest, as RegisterContent does. It takes the request itself because
// the body is streamed.
func (s *Artifacts) RegisterVersion(r *http.Request) (edge.Response, error) {
	content, err := s.readContent(r)
	if err != nil {
		return edge.Response{}, err
	}
	return s.RegisterContent(r.Context(), edge.CallOf(r), content, func(o domain.ArtifactVersionRegistration) any {
		return viewVersionRegistration(content.Content, o)
	})
}

// RegisterContent registers the first version of a new artifact, or a later version of an existing one, and answers it
// with status 201. Content that would be refused anyway is not analysed. RegisterContent closes the file.
func (s *Artifacts) RegisterContent(
	ctx context.Context, c *edge.Call, content RegisteredContent, show func(domain.ArtifactVersionRegistration) any,
) (edge.Response, error) {
	defer content.file.Close()
	return s.once(ctx, c, content.Content, func() (domain.Command, func() edge.Response, error) {
		id := content.artifact
		if id.IsZero() && content.later {
			return nil, nil, domain.ErrUnknownArtifact
		}
		ctx, cancel := context.WithTimeout(ctx, edge.AnalysisPatience)
		defer cancel()
		days, err := s.mayRegister(ctx, c.Access, id)
		if err != nil {
			return nil, nil, err
		}
		report, err := s.analyse(ctx, c.Access.Organization, content)
		if err != nil {
			return nil, nil, err
		}
		command := domain.NewRegisterArtifactVersion(domain.RegisterArtifactVersion{
			Origin: c.Origin(), Artifact: id, Content: content.Content, Analysis: report, Stored: days > 0,
		}, s.Now())
		if days > 0 {
			keeping, cancel := context.WithTimeout(ctx, edge.KeepPatience)
			defer cancel()
			err = s.Keep(keeping, c.Access.Organization, command.Artifact, command.Version, content.file, content.SizeBytes)
		}
		return command, func() edge.Response {
			return edge.Response{Status: http.StatusCreated, Data: show(command.Outcome)}
		}, err
	})
}

// mayRegister refuses early if Decide would refuse later: an unknown artifact, or no registrations left in the month.
// It returns the number of days for which bytes are kept.
func (s *Artifacts) mayRegister(
	ctx context.Context, access domain.Access, id domain.ArtifactID,
) (days int32, err error) {
	if !id.IsZero() {
		if err := s.Store.KnowsArtifact(ctx, access, id); err != nil {
			return 0, err
		}
	}
	now := s.Now()
	period := domain.PeriodOf(now)
	has, err := s.Store.Registrations(ctx, access.Organization, period)
	if err != nil {
		return 0, err
	}
	_, err = domain.RegistrationRoom(
		access.Plan, s.Store.Plans.Of(access.Plan, access.Internal).RegistrationsPerMonth, has.Used, has.Credits, period,
		now,
	)
	if s.Keep == nil {
		has.RetentionDays = 0
	}
	return has.RetentionDays, err
}

// analyse runs the analysis of the bytes in a separate process.
func (s *Artifacts) analyse(
	ctx context.Context, o domain.OrganizationID, c RegisteredContent,
) (domain.AnalysisReport, error) {
	start := s.Now()
	report, err := s.Analyze(ctx, o, c.file, c.SizeBytes, c.MediaType, c.FileName)
	if err != nil {
		if ctx.Err() != nil {
			err = domain.Unavailable("The analysis did not start in time; send the request again.")
		}
		return domain.AnalysisReport{}, err
	}
	result := domain.AnalysisReport{
		Duration: s.Now().Sub(start), Elapsed: report.Elapsed, Limitations: analysis.Limitations(),
	}
	for _, r := range report.Results {
		d := domain.DetectorResult{
			ID: r.ID, Version: r.Version, Outcome: string(r.Outcome), Severity: string(r.Severity), Summary: r.Summary,
			Evidence: make([]domain.DetectorEvidence, len(r.Evidence)), Limitations: r.Limitations,
		}
		for i, e := range r.Evidence {
			d.Evidence[i] = domain.DetectorEvidence{
				Structure: e.Structure, Count: e.Count, Unit: string(e.Unit), Positions: e.Positions,
			}
		}
		result.Results = append(result.Results, d)
	}
	return result, nil
}

func viewVersionRegistration(c domain.Content, o domain.ArtifactVersionRegistration) wire.ArtifactRegistration {
	at := evidence.FormatTime(o.At)
	return wire.ArtifactRegistration{
		Artifact: wire.Artifact{
			ID: o.Artifact.ID.String(), Title: &c.Title, LatestVersion: o.Artifact.Latest,
			CreatedAt: evidence.FormatTime(o.Artifact.CreatedAt), UpdatedAt: at,
		},
		Version: wire.ArtifactVersion{
			ID: o.Version.ID.String(), ArtifactID: o.Artifact.ID.String(), Version: o.Version.Number, Title: &c.Title,
			Kind:     c.Kind,
			FileName: wire.OrNull(c.FileName), MediaType: o.Event.MediaType, SHA256: o.Event.SHA256, SizeBytes: c.SizeBytes,
			State:      o.Version.State,
			AnalysisID: o.Analysis.AnalysisID.String(), RegisteredAt: at,
			Content: wire.KeptContent{KeptUntil: wire.TimeOrNull(o.Event.RetainUntil)},
		},
		Analysis: viewAnalysis(o.Analysis),
	}
}

// ListArtifacts lists the artifacts of the organization, newest first, each with its newest version.
func (s *Artifacts) ListArtifacts(ctx context.Context, c *edge.Call, page edge.Slice) (wire.Artifacts, error) {
	artifacts, total, err := s.Store.Artifacts(ctx, c.Access, page.Limit, page.Offset)
	views := wire.Each(artifacts, func(a query.Artifact) wire.ListedArtifact {
		return wire.ListedArtifact{Artifact: viewArtifact(a), Newest: viewArtifactVersion(a.ArtifactVersion)}
	})
	return wire.Artifacts{Artifacts: views, Limit: page.Limit, Offset: page.Offset, Total: total}, err
}

// ArtifactQuestion asks for an artifact, with its newest statements or with the statements before a cursor.
type ArtifactQuestion struct {
	artifact domain.ArtifactID
	before   query.StatementsBefore
	later    bool
}

// ReadArtifactQuestion reads the artifact in the path, and the cursor of a later page of its statements.
func ReadArtifactQuestion(o *strictjson.Object) (asked ArtifactQuestion) {
	asked.artifact, asked.before = edge.ReadID(o, "id", domain.ParseID[domain.ArtifactID]), query.NewestStatements()
	asked.later = edge.Cursor(o, func(text string) bool {
		review, approval, _ := strings.Cut(text, " ")
		var wrong [2]error
		asked.before.Review, wrong[0] = domain.ParseID[domain.ReviewID](review)
		asked.before.Approval, wrong[1] = domain.ParseID[domain.ApprovalID](approval)
		return wrong == [2]error{}
	}) != ""
	return asked
}

// Artifact answers an artifact with its statements. A later page has only the versions that its statements are about.
func (s *Artifacts) Artifact(ctx context.Context, c *edge.Call, asked ArtifactQuestion) (wire.ArtifactHistory, error) {
	artifact, versions, next, err := s.Store.Artifact(ctx, c.Access, asked.artifact, asked.before)
	if asked.later {
		versions = slices.DeleteFunc(versions, func(v query.ArtifactVersion) bool {
			return len(v.Reviews) == 0 && v.Approval == nil
		})
	}
	return wire.ArtifactHistory{
		Artifact: viewArtifact(artifact), Versions: wire.Each(versions, s.viewCertifiedVersion),
		Next: edge.BoundedPage(wire.ViewOrNull(next, func(b query.StatementsBefore) string {
			return edge.FormatCursor(b.Review.String() + " " + b.Approval.String())
		})),
	}, err
}

func (s *Artifacts) viewCertifiedVersion(v query.ArtifactVersion) wire.CertifiedVersion {
	return wire.CertifiedVersion{
		ArtifactVersion: viewArtifactVersion(v), Reviews: wire.Each(v.Reviews, viewReview),
		Approval: wire.ViewOrNull(v.Approval, viewApproval), Certificate: wire.ViewOrNull(v.Certificate, s.viewCertificate),
	}
}

// ReadAnalysisID reads the analysis in the path.
func ReadAnalysisID(o *strictjson.Object) domain.AnalysisID {
	return edge.ReadID(o, "id", domain.ParseID[domain.AnalysisID])
}

// Analysis shows what the detectors found in a version.
func (s *Artifacts) Analysis(ctx context.Context, c *edge.Call, id domain.AnalysisID) (*wire.Analysis, error) {
	found, err := s.Store.Analysis(ctx, c.Access, id)
	return wire.ViewOrNull(found, viewAnalysis), err
}

// ValidateManifest validates a manifest without storing it. It takes the request itself because the manifest is the
// whole body, with warnings that no other body has.
func (s *Artifacts) ValidateManifest(r *http.Request) (wire.Manifest, error) {
	c := edge.CallOf(r)
	m, warnings, err := domain.ReadManifest(&c.Meter, c.Body)
	if errors.Is(err, strictjson.ErrStopped) {
		return wire.Manifest{}, edge.Gone(r.Context())
	}
	if err != nil {
		return wire.Manifest{}, err
	}
	if warnings == nil {
		warnings = []domain.FieldError{}
	}
	sum := m.SHA256()
	return wire.Manifest{
		Valid: true, Files: len(m.Files), TotalBytes: m.Total(), SHA256: hex.EncodeToString(sum[:]), Warnings: warnings,
	}, nil
}

func viewReview(r query.Review) wire.Review {
	return wire.Review{
		ID: r.ID.String(), VersionID: r.VersionID.String(), Outcome: r.Outcome, Statement: r.Statement,
		Reviewer:   wire.Actor{KeyID: r.By.String(), MemberID: r.Member.String()},
		DeclaredAt: evidence.FormatTime(r.DeclaredAt),
	}
}

func viewApproval(p query.Approval) wire.Approval {
	return wire.Approval{
		ID: p.ID.String(), VersionID: p.VersionID.String(), Statement: p.Statement,
		Approver:   wire.Actor{KeyID: p.By.String(), MemberID: p.Member.String()},
		ApprovedAt: evidence.FormatTime(p.ApprovedAt),
	}
}

func viewState(v domain.ArtifactVersion) wire.ArtifactVersionState {
	return wire.ArtifactVersionState{
		ID: v.ID.String(), ArtifactID: v.Artifact.ID.String(), Version: v.Number, State: v.State,
	}
}

// DeclareReview declares a review of the uploaded file. It takes the request itself because the body is streamed.
func (s *Artifacts) DeclareReview(r *http.Request) (edge.Response, error) {
	command, err := s.ReadReview(r)
	if err != nil {
		return edge.Response{}, err
	}
	return s.Review(r.Context(), edge.CallOf(r), command, func() any {
		declared := command.Answer
		return wire.DeclaredReview{
			Review: viewReview(query.Review{
				ID: declared.Body.ReviewID, VersionID: declared.Body.VersionID, By: command.Actor, Member: declared.Body.MemberID,
				Outcome: declared.Body.Outcome, Statement: &command.Statement, DeclaredAt: declared.At,
			}),
			Version: viewState(declared.Version),
		}
	})
}

// ReadReview reads the reviewed file and the member's statement about it. It takes the request itself because the body
// is streamed: the bytes are hashed as they arrive and not stored. A manifest is compared in its canonical form.
func (s *Artifacts) ReadReview(r *http.Request) (*domain.DeclareReview, error) {
	u, err := s.readUpload(r, false)
	if err != nil {
		return nil, err
	}
	o := edge.CallOf(r).Meter.Decode(u.metadata)
	command := &domain.DeclareReview{
		Origin: edge.Origin(r), Artifact: ArtifactID(r), Member: edge.CallOf(r).Access.Member, SHA256: u.SHA256,
		Version:   edge.ReadID(o, "versionId", domain.ParseID[domain.ArtifactVersionID]),
		Outcome:   domain.ReviewOutcome(o.String("outcome", strictjson.Required)),
		Statement: domain.ReadStatement(o, "statement", domain.MaxStatement),
	}
	if o.OK("outcome") && command.Outcome != domain.ReviewAccepted && command.Outcome != domain.ReviewRequested {
		o.Problem("outcome", strictjson.CodeFormat, "must be accepted or changes_requested")
	}
	domain.ReadConsent(o, "acceptResponsibility")
	if err := edge.Invalid(o.Problems()); err != nil {
		return nil, err
	}
	switch m, _, err := domain.ReadManifest(&edge.CallOf(r).Meter, u.text); {
	case errors.Is(err, strictjson.ErrStopped):
		return nil, edge.Gone(r.Context())
	case err == nil:
		command.Manifest = new(m.SHA256())
	}
	return command, nil
}

// Review declares a review and answers it with status 201.
func (s *Artifacts) Review(
	ctx context.Context, c *edge.Call, command *domain.DeclareReview, show func() any,
) (edge.Response, error) {
	content := []any{command.Version, command.Outcome, command.Statement, command.SHA256}
	return s.once(ctx, c, content, func() (domain.Command, func() edge.Response, error) {
		return command, func() edge.Response { return edge.Response{Status: http.StatusCreated, Data: show()} }, nil
	})
}

func readVersionID(o *strictjson.Object) domain.ArtifactVersionID {
	return edge.ReadID(o, "id", domain.ParseID[domain.ArtifactVersionID])
}

// ReadApproval reads a statement about the version in the path. It requires acceptResponsibility.
func ReadApproval(o *strictjson.Object) domain.ApproveArtifactVersion {
	approve := domain.ApproveArtifactVersion{
		Version: readVersionID(o), Statement: domain.ReadStatement(o, "statement", domain.MaxStatement),
	}
	domain.ReadConsent(o, "acceptResponsibility")
	return approve
}

// Approve approves a version whose latest review accepts it.
func (s *Artifacts) Approve(
	ctx context.Context, c *edge.Call, approve domain.ApproveArtifactVersion,
) (edge.Response, error) {
	return s.once(ctx, c, approve.Statement, func() (domain.Command, func() edge.Response, error) {
		approve.Origin, approve.Member = c.Origin(), c.Access.Member
		return &approve, func() edge.Response {
			approved := approve.Answer
			return edge.Response{Status: http.StatusCreated, Data: wire.ApprovedVersion{
				Approval: viewApproval(query.Approval{
					ID: approved.Body.ApprovalID, VersionID: approved.Body.VersionID, By: approve.Actor,
					Member:    approved.Body.MemberID,
					Statement: &approve.Statement, ApprovedAt: approved.At,
				}),
				Version: viewState(approved.Version),
			}}
		}, nil
	})
}
