package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func timeOrNull(t *time.Time) *string { return viewOrNull(t, evidence.FormatTime) }

func viewArtifact(a query.Artifact) wire.Artifact {
	return wire.Artifact{
		ID: a.ID.String(), Title: a.Title, LatestVersion: a.Latest,
		CreatedAt: evidence.FormatTime(a.CreatedAt), UpdatedAt: evidence.FormatTime(a.UpdatedAt),
	}
}

func viewArtifactVersion(v query.ArtifactVersion) wire.ArtifactVersion {
	return wire.ArtifactVersion{
		ID: v.ID.String(), ArtifactID: v.ArtifactID.String(), Version: v.Version, Title: v.Title, Kind: v.Kind, FileName: v.FileName,
		MediaType: v.MediaType, SHA256: v.SHA256, SizeBytes: v.SizeBytes, State: v.State, AnalysisID: v.AnalysisID.String(),
		RegisteredAt: evidence.FormatTime(v.RegisteredAt), Content: wire.KeptContent{KeptUntil: timeOrNull(v.RetainUntil), ErasedAt: timeOrNull(v.ContentErased)},
	}
}

func viewAnalysis(b domain.AnalysisCompletedBody) wire.Analysis {
	return wire.Analysis{
		ID: b.AnalysisID.String(), VersionID: b.VersionID.String(), Status: b.Status, Detectors: b.Detectors, Limitations: b.Limitations, DurationMs: b.DurationMillis,
	}
}

// registeredContent is what a request registers; its file is the spool's.
type registeredContent struct {
	domain.Content
	file *os.File
}

// readContent takes a file, a text or a manifest in. The caller closes the file.
func (s *server) readContent(r *http.Request) (registeredContent, error) {
	if callOf(r).body == nil {
		return s.readFileContent(r)
	}
	var c registeredContent
	var text string
	var manifest domain.Manifest
	err := decode(r, func(o *strictjson.Object) {
		c.Title = domain.ReadTitle(o, "title")
		switch c.Kind = domain.ContentKind(o.String("kind", strictjson.Required)); c.Kind {
		case domain.TextContent:
			c.MediaType = "text/plain"
			text = o.String("text", strictjson.Required)
			if o.OK("text") && (len(text) < 1 || len(text) > domain.MaxTextBytes) {
				o.Problem("text", strictjson.CodeLength, "must be 1 to 1048576 bytes of UTF-8")
			}
		case domain.ManifestContent:
			c.MediaType = jsonType
			manifest = domain.ReadManifestMember(o, "manifest")
		default:
			if o.OK("kind") {
				o.Problem("kind", strictjson.CodeFormat, "must be text or manifest; a file is sent as multipart/form-data")
			}
		}
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

func (s *server) readFileContent(r *http.Request) (registeredContent, error) {
	u, err := s.readUpload(r, true)
	if err != nil {
		return registeredContent{}, err
	}
	o := callOf(r).meter.Decode(u.metadata)
	u.Title = domain.ReadTitle(o, "title")
	if err = invalid(o.Problems()); err != nil {
		u.file.Close()
	}
	return u.registeredContent, err
}

func artifactID(r *http.Request) domain.ArtifactID {
	return pathID(r, "id", domain.ParseID[domain.ArtifactID])
}

func (s *server) registerVersion(r *http.Request) (any, error) {
	content, err := s.readContent(r)
	if err != nil {
		return nil, err
	}
	return s.registerContent(r, content, func(o domain.ArtifactVersionRegistration) any { return viewVersionRegistration(content.Content, o) })
}

// registerContent registers the first version of a new artifact, or a later one of the artifact in the path, and shows it
// with status 201. What would be refused anyway is not analysed. It closes the file.
func (s *server) registerContent(r *http.Request, content registeredContent, show func(domain.ArtifactVersionRegistration) any) (any, error) {
	defer content.file.Close()
	return s.once(r, content.Content, func() (domain.Command, func() response, error) {
		id := artifactID(r)
		if id.IsZero() && variable(r, "id") != "" { // a new artifact has no id in its path
			return nil, nil, domain.ErrUnknownArtifact
		}
		ctx, cancel := context.WithTimeout(r.Context(), analysisPatience)
		defer cancel()
		days, err := s.mayRegister(ctx, r, id)
		if err != nil {
			return nil, nil, err
		}
		report, err := s.analyse(ctx, callOf(r).access.Organization, content)
		if err != nil {
			return nil, nil, err
		}
		command := domain.NewRegisterArtifactVersion(domain.RegisterArtifactVersion{
			Origin: origin(r), Artifact: id, Content: content.Content, Analysis: report, Stored: days > 0,
		}, s.Now())
		if days > 0 {
			keeping, cancel := context.WithTimeout(ctx, keepPatience)
			defer cancel()
			err = s.Keep(keeping, callOf(r).access.Organization, command.Artifact, command.Version, content.file, content.SizeBytes)
		}
		return command, func() response {
			return response{status: http.StatusCreated, data: show(command.Outcome)}
		}, err
	})
}

// mayRegister refuses early what Decide would refuse: an unknown artifact, a month without any registration left. It
// answers for how many days bytes are kept.
func (s *server) mayRegister(ctx context.Context, r *http.Request, id domain.ArtifactID) (days int32, err error) {
	access := callOf(r).access
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
	_, err = domain.RegistrationRoom(access.Plan, s.Store.Plans.Of(access.Plan, access.Internal).RegistrationsPerMonth, has.Used, has.Credits, period, now)
	if s.Keep == nil {
		has.RetentionDays = 0
	}
	return has.RetentionDays, err
}

// analyse looks at the bytes, in a process of their own.
func (s *server) analyse(ctx context.Context, o domain.OrganizationID, c registeredContent) (domain.AnalysisReport, error) {
	start := s.Now()
	report, err := s.Analyze(ctx, o, c.file, c.SizeBytes, c.MediaType, c.FileName)
	if err != nil {
		if ctx.Err() != nil {
			err = domain.Unavailable("The analysis did not begin in time; send the request again.")
		}
		return domain.AnalysisReport{}, err
	}
	result := domain.AnalysisReport{Duration: s.Now().Sub(start), Elapsed: report.Elapsed, Limitations: analysis.Limitations()}
	for _, r := range report.Results {
		d := domain.DetectorResult{
			ID: r.ID, Version: r.Version, Outcome: string(r.Outcome), Severity: string(r.Severity), Summary: r.Summary,
			Evidence: make([]domain.DetectorEvidence, len(r.Evidence)), Limitations: r.Limitations,
		}
		for i, e := range r.Evidence {
			d.Evidence[i] = domain.DetectorEvidence{Structure: e.Structure, Count: e.Count, Unit: string(e.Unit), Positions: e.Positions}
		}
		result.Results = append(result.Results, d)
	}
	return result, nil
}

func viewVersionRegistration(c domain.Content, o domain.ArtifactVersionRegistration) wire.ArtifactRegistration {
	at := evidence.FormatTime(o.At)
	return wire.ArtifactRegistration{
		Artifact: wire.Artifact{
			ID: o.Artifact.ID.String(), Title: &c.Title, LatestVersion: o.Artifact.Latest, CreatedAt: evidence.FormatTime(o.Artifact.CreatedAt), UpdatedAt: at,
		},
		Version: wire.ArtifactVersion{
			ID: o.Version.ID.String(), ArtifactID: o.Artifact.ID.String(), Version: o.Version.Number, Title: &c.Title, Kind: c.Kind,
			FileName: orNull(c.FileName), MediaType: o.Event.MediaType, SHA256: o.Event.SHA256, SizeBytes: c.SizeBytes, State: o.Version.State,
			AnalysisID: o.Analysis.AnalysisID.String(), RegisteredAt: at, Content: wire.KeptContent{KeptUntil: timeOrNull(o.Event.RetainUntil)},
		},
		Analysis: viewAnalysis(o.Analysis),
	}
}

// Bounds of a page of a list (contract section 7).
const (
	maxPageLimit  = 200
	pageLimit     = 50
	maxPageOffset = 10_000
)

// readPage reads which page of a list is asked for.
func readPage(o *strictjson.Object) (limit, offset int) {
	return int(integer(o, "limit", 1, maxPageLimit, pageLimit)), int(integer(o, "offset", 0, maxPageOffset, 0))
}

func (s *server) listArtifacts(r *http.Request) (any, error) {
	q := newQuery(r)
	limit, offset := readPage(q)
	if err := invalid(q.Problems()); err != nil {
		return nil, err
	}
	return s.artifactsOf(r.Context(), callOf(r), limit, offset)
}

func (s *server) artifactsOf(ctx context.Context, c *call, limit, offset int) (wire.Artifacts, error) {
	artifacts, total, err := s.Store.Artifacts(ctx, c.access, limit, offset)
	views := each(artifacts, func(a query.Artifact) wire.ListedArtifact {
		return wire.ListedArtifact{Artifact: viewArtifact(a), Newest: viewArtifactVersion(a.ArtifactVersion)}
	})
	return wire.Artifacts{Artifacts: views, Limit: limit, Offset: offset, Total: total}, err
}

// artifact answers an artifact with its newest statements. A later page has the versions alone that its statements are about.
func (s *server) artifact(r *http.Request) (any, error) {
	q, from := newQuery(r), query.NewestStatements()
	later := cursor(q, func(text string) bool {
		review, approval, _ := strings.Cut(text, " ")
		var wrong [2]error
		from.Review, wrong[0] = domain.ParseID[domain.ReviewID](review)
		from.Approval, wrong[1] = domain.ParseID[domain.ApprovalID](approval)
		return wrong == [2]error{}
	}) != ""
	if err := invalid(q.Problems()); err != nil {
		return nil, err
	}
	artifact, versions, next, err := s.Store.Artifact(r.Context(), callOf(r).access, artifactID(r), from)
	if later {
		versions = slices.DeleteFunc(versions, func(v query.ArtifactVersion) bool { return len(v.Reviews) == 0 && v.Approval == nil })
	}
	return wire.ArtifactHistory{
		Artifact: viewArtifact(artifact), Versions: each(versions, s.viewCertifiedVersion),
		Next: boundedPage(viewOrNull(next, func(b query.StatementsBefore) string {
			return formatCursor(b.Review.String() + " " + b.Approval.String())
		})),
	}, err
}

func (s *server) viewCertifiedVersion(v query.ArtifactVersion) wire.CertifiedVersion {
	return wire.CertifiedVersion{
		ArtifactVersion: viewArtifactVersion(v), Reviews: each(v.Reviews, viewReview),
		Approval: viewOrNull(v.Approval, viewApproval), Certificate: viewOrNull(v.Certificate, s.viewCertificate),
	}
}

func (s *server) analysis(r *http.Request) (any, error) {
	found, err := s.Store.Analysis(r.Context(), callOf(r).access, pathID(r, "id", domain.ParseID[domain.AnalysisID]))
	return viewOrNull(found, viewAnalysis), err
}

// validateManifest judges a manifest and stores nothing.
func (s *server) validateManifest(r *http.Request) (any, error) {
	c := callOf(r)
	m, warnings, err := domain.ReadManifest(&c.meter, c.body)
	if errors.Is(err, strictjson.ErrStopped) {
		return nil, gone(r.Context())
	}
	if err != nil {
		return nil, err
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
		Reviewer: wire.Actor{KeyID: r.By.String(), MemberID: r.Member.String()}, DeclaredAt: evidence.FormatTime(r.DeclaredAt),
	}
}

func viewApproval(p query.Approval) wire.Approval {
	return wire.Approval{
		ID: p.ID.String(), VersionID: p.VersionID.String(), Statement: p.Statement,
		Approver: wire.Actor{KeyID: p.By.String(), MemberID: p.Member.String()}, ApprovedAt: evidence.FormatTime(p.ApprovedAt),
	}
}

func viewState(v domain.ArtifactVersion) wire.ArtifactVersionState {
	return wire.ArtifactVersionState{ID: v.ID.String(), ArtifactID: v.Artifact.ID.String(), Version: v.Number, State: v.State}
}

func (s *server) declareReview(r *http.Request) (any, error) {
	return s.reviewUpload(r, func(command *domain.DeclareReview) any {
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

// reviewUpload takes the exact file and a member's word about it, and shows the review with status 201. The bytes are
// hashed as they arrive and not stored; a manifest is compared by what it says.
func (s *server) reviewUpload(r *http.Request, show func(*domain.DeclareReview) any) (any, error) {
	u, err := s.readUpload(r, false)
	if err != nil {
		return nil, err
	}
	o := callOf(r).meter.Decode(u.metadata)
	command := &domain.DeclareReview{
		Origin: origin(r), Artifact: artifactID(r), Member: callOf(r).access.Member, SHA256: u.SHA256,
		Version: readID(o, "versionId", domain.ParseID[domain.ArtifactVersionID]), Outcome: domain.ReviewOutcome(o.String("outcome", strictjson.Required)),
		Statement: domain.ReadStatement(o, "statement", domain.MaxStatement),
	}
	if o.OK("outcome") && command.Outcome != domain.ReviewAccepted && command.Outcome != domain.ReviewRequested {
		o.Problem("outcome", strictjson.CodeFormat, "must be accepted or changes_requested")
	}
	domain.ReadConsent(o, "acceptResponsibility")
	if err := invalid(o.Problems()); err != nil {
		return nil, err
	}
	switch m, _, err := domain.ReadManifest(&callOf(r).meter, u.text); {
	case errors.Is(err, strictjson.ErrStopped):
		return nil, gone(r.Context())
	case err == nil:
		command.Manifest = new(m.SHA256())
	}
	content := []any{command.Version, command.Outcome, command.Statement, command.SHA256}
	return s.once(r, content, func() (domain.Command, func() response, error) {
		return command, func() response {
			return response{status: http.StatusCreated, data: show(command)}
		}, nil
	})
}

func versionID(r *http.Request) domain.ArtifactVersionID {
	return pathID(r, "id", domain.ParseID[domain.ArtifactVersionID])
}

// approve approves a version whose latest review accepts it.
func (s *server) approve(r *http.Request) (any, error) {
	return taken(r, readApproval, s.approveVersion)
}

func readApproval(o *strictjson.Object) (statement string) {
	statement = domain.ReadStatement(o, "statement", domain.MaxStatement)
	domain.ReadConsent(o, "acceptResponsibility")
	return statement
}

func (s *server) approveVersion(r *http.Request, statement string) (any, error) {
	return s.once(r, statement, func() (domain.Command, func() response, error) {
		command := &domain.ApproveArtifactVersion{Origin: origin(r), Version: versionID(r), Member: callOf(r).access.Member, Statement: statement}
		return command, func() response {
			approved := command.Answer
			return response{status: http.StatusCreated, data: wire.ApprovedVersion{
				Approval: viewApproval(query.Approval{
					ID: approved.Body.ApprovalID, VersionID: approved.Body.VersionID, By: command.Actor, Member: approved.Body.MemberID,
					Statement: &command.Statement, ApprovedAt: approved.At,
				}),
				Version: viewState(approved.Version),
			}}
		}, nil
	})
}
