package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// endpoints adds the pages of certification. Scripts send the uploads, so that they can show the progress.
func (s documentPages) endpoints(both addition) {
	page := func(scope domain.Scope, body edge.BodyRule) edge.Policy {
		return edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: scope, Body: body}
	}
	upload := func(scope domain.Scope) edge.Policy {
		return edge.Policy{Caller: edge.WithSession, Bucket: edge.Minute, Scope: scope, Body: edge.BodyFile}
	}
	both(edge.Get, "/documents", s.documentsPage, page(domain.ArtifactsRead, edge.BodyNone))
	both(edge.Post, "/documents/uploads", s.uploadByHand, upload(domain.ArtifactsWrite))
	both(edge.Get, "/documents/new", s.newDocumentPage, page(domain.ArtifactsWrite, edge.BodyNone))
	both(edge.Get, "/documents/{id}", s.documentPage, page(domain.ArtifactsRead, edge.BodyNone))
	both(edge.Get, "/documents/{id}/new", s.newVersionPage, page(domain.ArtifactsWrite, edge.BodyNone))
	both(edge.Post, "/documents/{id}/versions", s.uploadByHand, upload(domain.ArtifactsWrite))
	both(edge.Post, "/documents/{id}/reviews", s.reviewByHand, upload(domain.ReviewsWrite))
	both(edge.Get, "/documents/versions/{id}", s.versionPage, page(domain.ArtifactsRead, edge.BodyNone))
	both(edge.Get, "/documents/versions/{id}/review", s.stepPage(reviewStep), page(domain.ReviewsWrite, edge.BodyNone))
	both(edge.Get, "/documents/versions/{id}/approve", s.stepPage(approveStep), page(domain.ApprovalsWrite, edge.BodyNone))
	both(edge.Post, "/documents/versions/{id}/approve", s.approveByHand, page(domain.ApprovalsWrite, edge.BodyLongForm))
	both(
		edge.Get, "/documents/versions/{id}/certify", s.proven(s.stepPage(certifyStep)),
		page(domain.CertificatesWrite, edge.BodyNone),
	)
	both(edge.Post, "/documents/versions/{id}/certify", s.certifyByHand, page(domain.CertificatesWrite, edge.BodyForm))
	both(
		edge.Get, "/documents/certificates/{id}/revoke", s.proven(s.stepPage(revokeStep)),
		page(domain.CertificatesWrite, edge.BodyNone),
	)
	both(
		edge.Post, "/documents/certificates/{id}/revoke", s.revokeCertificateByHand,
		page(domain.CertificatesWrite, edge.BodyLongForm),
	)
	both(
		edge.Get, "/documents/certificates/{id}/download", edge.Do(action.ReadCertificateID, s.Download),
		page(domain.CertificatesRead, edge.BodyNone),
	)
}

// Steps that a member may take with a version. Each has a page of its own.
const (
	reviewStep  = "review"
	approveStep = "approve"
	certifyStep = "certify"
	revokeStep  = "revoke"
)

// steps returns the steps that a role may take with a version in its state. later says that a later version has a
// certificate. The server refuses all other steps too.
func steps(role domain.Role, v query.ArtifactVersion, later bool) (possible []string) {
	accepted := v.LastOutcome != nil && *v.LastOutcome == domain.ReviewAccepted
	for _, step := range []struct {
		name     string
		scope    domain.Scope
		possible bool
	}{
		{reviewStep, domain.ReviewsWrite, v.State == domain.VersionAnalyzed || v.State == domain.VersionReviewed},
		{approveStep, domain.ApprovalsWrite, v.State == domain.VersionReviewed && accepted},
		{certifyStep, domain.CertificatesWrite, v.State == domain.VersionApproved && !later},
		{revokeStep, domain.CertificatesWrite, v.Certificate != nil && v.Certificate.RevokedAt == nil},
	} {
		if step.possible && role.Allows(step.scope) {
			possible = append(possible, step.name)
		}
	}
	return possible
}

// proven asks for a recent proof of identity before a form is shown, so that no input is lost.
func (s documentPages) proven(handle edge.Handler) edge.Handler {
	return func(r *http.Request) (any, error) {
		if err := s.recentlyProved(r); err != nil {
			return nil, err
		}
		return handle(r)
	}
}

// documentsPage lists the documents, newest first.
func (s documentPages) documentsPage(r *http.Request) (any, error) {
	offset, err := strconv.Atoi(r.URL.Query().Get("offset"))
	if err != nil || offset < 0 || offset > edge.MaxPageOffset {
		offset = 0
	}
	c := edge.CallOf(r)
	list, total, err := s.Store.Artifacts(r.Context(), c.Access, edge.PageLimit, offset)
	if err != nil {
		return nil, err
	}
	shown := web.Documents{
		Console: s.frameOf(r, "documents"), MayAdd: c.Session.Role.Allows(domain.ArtifactsWrite),
		Documents: wire.Each(list, func(a query.Artifact) web.DocumentVersion {
			return viewDocumentVersion(a.ArtifactVersion)
		}),
	}
	if next := offset + edge.PageLimit; int64(next) < total && next <= edge.MaxPageOffset {
		shown.Older = s.consoleQuery(r, url.Values{"offset": {strconv.Itoa(next)}})
	}
	return consolePageOf(s.site.Documents(shown))
}

func viewDocumentVersion(v query.ArtifactVersion) web.DocumentVersion {
	return web.DocumentVersion{
		ID: v.ID.String(), Document: v.ArtifactID.String(), Number: v.Version, Kind: v.Kind, Title: v.Title,
		FileName: v.FileName, MediaType: v.MediaType,
		SHA256: v.SHA256, SizeBytes: v.SizeBytes, Stage: stageOf(v), RegisteredAt: v.RegisteredAt, KeptUntil: v.RetainUntil,
		ErasedAt: v.ContentErased,
	}
}

// stageOf returns the stage of a version: its state, changes_requested, replaced or revoked.
func stageOf(v query.ArtifactVersion) string {
	certificate := query.Certificate{RevokedAt: v.RevokedAt, ReplacedBy: v.ReplacedBy}.Status()
	switch {
	case certificate != domain.CertificateValid:
		return string(certificate)
	case v.State == domain.VersionReviewed && v.LastOutcome != nil && *v.LastOutcome == domain.ReviewRequested:
		return string(domain.ReviewRequested)
	default:
		return string(v.State)
	}
}

// newDocumentPage asks for the file and the title of a new document.
func (s documentPages) newDocumentPage(r *http.Request) (any, error) {
	return consolePageOf(s.site.Upload(web.Upload{
		Console: s.frameOf(r, "document-new"), To: "/documents/uploads", MaxFile: domain.MaxFileBytes,
		MaxTitle: domain.MaxTitle,
	}))
}

// newVersionPage asks for the file and the title of a later version. The newest version's title is the default.
func (s documentPages) newVersionPage(r *http.Request) (any, error) {
	versions, at, err := s.Store.ArtifactVersions(
		r.Context(), edge.CallOf(r).Access, action.ArtifactID(r), domain.ArtifactVersionID{},
	)
	if err != nil {
		return nil, err
	}
	newest := viewDocumentVersion(versions[at])
	return consolePageOf(s.site.Upload(web.Upload{
		Console: s.frameOf(r, "document-version"), To: "/documents/" + newest.Document + "/versions",
		MaxFile: domain.MaxFileBytes, MaxTitle: domain.MaxTitle, Newest: &newest,
	}))
}

// to is the page to which a script continues after an upload. A repetition of the request gets the same envelope.
type to struct {
	Location string `json:"location"`
}

func toVersion(r *http.Request, id domain.ArtifactVersionID) to {
	return to{web.Path(edge.Language(r), web.ConsoleRoot+versionPath(id))}
}

func versionPath(id domain.ArtifactVersionID) string { return "/documents/versions/" + id.String() }

// uploadByHand registers a file as a new document, or as a version of the document in the path.
func (s documentPages) uploadByHand(r *http.Request) (any, error) {
	content, err := s.ReadFileContent(r)
	if err != nil {
		return nil, err
	}
	return s.RegisterContent(r.Context(), edge.CallOf(r), content, func(o domain.ArtifactVersionRegistration) any {
		return toVersion(r, o.Version.ID)
	})
}

// reviewByHand declares a review of the uploaded file.
func (s documentPages) reviewByHand(r *http.Request) (any, error) {
	command, err := s.ReadReview(r)
	if err != nil {
		return nil, err
	}
	return s.Review(r.Context(), edge.CallOf(r), command, func() any { return toVersion(r, command.Version) })
}

// documentPage shows a document with its newest version.
func (s documentPages) documentPage(r *http.Request) (any, error) {
	return s.showDocument(r, action.ArtifactID(r), domain.ArtifactVersionID{})
}

func versionID(r *http.Request) domain.ArtifactVersionID {
	return edge.PathID(r, "id", domain.ParseID[domain.ArtifactVersionID])
}

// versionPage shows a document with one of its versions.
func (s documentPages) versionPage(r *http.Request) (any, error) {
	version, err := s.Store.ArtifactVersion(r.Context(), edge.CallOf(r).Access, versionID(r))
	if err != nil {
		return nil, err
	}
	return s.showDocument(r, version.ArtifactID, version.ID)
}

func (s documentPages) showDocument(
	r *http.Request, document domain.ArtifactID, version domain.ArtifactVersionID,
) (any, error) {
	shown, analysis, err := s.documentOf(r, "document", document, version)
	if err != nil {
		return nil, err
	}
	if shown.Report, err = s.Store.Analysis(r.Context(), edge.CallOf(r).Access, analysis); err != nil {
		return nil, err
	}
	return consolePageOf(s.site.Document(shown))
}

// documentOf reads a document with one of its versions, the newest if the id is zero, and with the steps that the
// member may take with it.
func (s documentPages) documentOf(
	r *http.Request, name string, document domain.ArtifactID, version domain.ArtifactVersionID,
) (shown web.DocumentPage, analysis domain.AnalysisID, err error) {
	ctx, c := r.Context(), edge.CallOf(r)
	versions, at, err := s.Store.ArtifactVersions(ctx, c.Access, document, version)
	if err != nil {
		return shown, analysis, err
	}
	said := wire.Each(versions[at].Reviews, func(r query.Review) domain.MemberID { return r.Member })
	if approval := versions[at].Approval; approval != nil {
		said = append(said, approval.Member)
	}
	names, err := s.memberAddresses(ctx, c, said)
	if err != nil {
		return shown, analysis, err
	}
	later := slices.ContainsFunc(versions[:at], func(v query.ArtifactVersion) bool {
		return v.State == domain.VersionCertified
	})
	role := c.Session.Role
	shown = web.DocumentPage{
		Console: s.frameOf(r, name), MayAdd: role.Allows(domain.ArtifactsWrite) &&
			versions[0].Version < domain.MaxArtifactVersions, Later: later,
		Version: viewCertifiedDocument(versions[at], names), Versions: wire.Each(versions, viewDocumentVersion),
		Steps: steps(role, versions[at], later), Issuer: s.Installation.Issuer, BaseURL: s.BaseURL,
		MaxFile: domain.MaxFileBytes, MaxManifest: domain.MaxManifestBytes, MaxStatement: domain.MaxStatement,
		MaxReason: domain.MaxReason,
	}
	return shown, versions[at].AnalysisID, nil
}

func viewCertifiedDocument(v query.ArtifactVersion, names map[domain.MemberID]string) web.DocumentVersion {
	shown := viewDocumentVersion(v)
	by := func(member domain.MemberID, at time.Time, text *string) web.Statement {
		return web.Statement{By: cmp.Or(names[member], member.String()), At: at, Text: text}
	}
	shown.Reviews = wire.Each(v.Reviews, func(r query.Review) web.Statement {
		said := by(r.Member, r.DeclaredAt, r.Statement)
		said.Outcome = string(r.Outcome)
		return said
	})
	shown.Approval = wire.ViewOrNull(v.Approval, func(a query.Approval) web.Statement {
		return by(a.Member, a.ApprovedAt, a.Statement)
	})
	shown.Certificate = wire.ViewOrNull(v.Certificate, func(c query.Certificate) web.DocumentCertificate {
		return web.DocumentCertificate{
			PublicID: c.PublicID.String(), Status: string(c.Status()), IssuedAt: c.IssuedAt, RevokedAt: c.RevokedAt,
			ReplacedAt: c.ReplacedAt, PublicFields: c.PublicFields,
		}
	})
	return shown
}

// stepPage asks for the input of a step and explains its effect.
func (s documentPages) stepPage(step string) edge.Handler {
	return func(r *http.Request) (any, error) { return s.showStep(r, step, web.StepForm{}, nil) }
}

// showStep shows the page of a step, also after its input was refused. If the step is no longer possible, for example
// after a second click, it redirects to the version.
func (s documentPages) showStep(r *http.Request, step string, typed web.StepForm, refused error) (any, error) {
	problem, status, err := s.problem(r, refused)
	if err != nil {
		return nil, err
	}
	document, version, err := s.steppedOn(r, step)
	if err != nil {
		return nil, err
	}
	shown, _, err := s.documentOf(r, "document-"+step, document, version)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(shown.Steps, step) {
		return onward(r, versionPath(version)), nil
	}
	shown.Form, shown.Problem = typed, problem
	resp, err := consolePageOf(s.site.DocumentStep(shown))
	return afterForm(resp, status, edge.Refusal(refused)), err
}

// steppedOn returns the version that a step is about, with its document: the version in the path, or the version of the
// path's certificate.
func (s documentPages) steppedOn(r *http.Request, step string) (domain.ArtifactID, domain.ArtifactVersionID, error) {
	if step == revokeStep {
		certificate, err := s.Store.Certificate(r.Context(), edge.CallOf(r).Access, edge.PublicID(edge.Variable(r, "id")))
		return certificate.ArtifactID, certificate.VersionID, err
	}
	version, err := s.Store.ArtifactVersion(r.Context(), edge.CallOf(r).Access, versionID(r))
	return version.ArtifactID, version.ID, err
}

// stepByHand takes a step with the members that the API has, and redirects to the page of the version. A step that
// makes or revokes a certificate needs a recent proof of identity.
func stepByHand[Input any](
	s documentPages, r *http.Request, step string, typed web.StepForm, members url.Values,
	read func(*strictjson.Object) Input, do edge.Action[Input, edge.Response],
) (any, error) {
	_, version, err := s.steppedOn(r, step)
	if err != nil {
		return nil, err
	}
	if step == certifyStep || step == revokeStep {
		err = s.recentlyProved(r)
	}
	if err == nil {
		_, err = edge.Submit(r, strictjson.Fields(members), read, do)
	}
	if err != nil {
		return s.showStep(r, step, typed, err)
	}
	return onward(r, versionPath(version)), nil
}

// approveByHand approves a version.
func (s documentPages) approveByHand(r *http.Request) (any, error) {
	values := edge.Form(r)
	typed := web.StepForm{Statement: textOf(values, "statement"), Consent: values.Has("consent")}
	members := url.Values{"statement": values["statement"], "acceptResponsibility": {strconv.FormatBool(typed.Consent)}}
	return stepByHand(s, r, approveStep, typed, members, action.ReadApproval, s.Approve)
}

// certifyByHand issues the certificate of a version, with the ticked texts.
func (s documentPages) certifyByHand(r *http.Request) (any, error) {
	values, fields := edge.Form(r), []string{}
	typed := web.StepForm{
		Title: values.Has("title-public"), Organization: values.Has("organization-public"), Consent: values.Has("consent"),
	}
	if typed.Title {
		fields = append(fields, domain.PublicTitle)
	}
	if typed.Organization {
		fields = append(fields, domain.PublicOrganizationName)
	}
	members := url.Values{"publicationAuthorized": {strconv.FormatBool(typed.Consent)}, "publicFields": fields}
	return stepByHand(s, r, certifyStep, typed, members, action.ReadPublication, s.IssueCertificate)
}

// revokeCertificateByHand revokes a certificate for good.
func (s documentPages) revokeCertificateByHand(r *http.Request) (any, error) {
	typed := web.StepForm{Statement: textOf(edge.Form(r), "reason")}
	return stepByHand(s, r, revokeStep, typed, edge.Form(r), action.ReadRevocation, s.RevokeCertificate)
}
