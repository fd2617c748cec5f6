package handlers

import (
	"errors"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/projections/query"
)

// actorView is who declared something: the key, and the member responsible.
type actorView struct {
	KeyID    string `json:"keyId"`
	MemberID string `json:"memberId"`
}

type reviewView struct {
	ID         string               `json:"id"`
	VersionID  string               `json:"versionId"`
	Outcome    domain.ReviewOutcome `json:"outcome"`
	Statement  *string              `json:"statement"`
	Reviewer   actorView            `json:"reviewer"`
	DeclaredAt string               `json:"declaredAt"`
}

func viewReview(r query.Review) reviewView {
	return reviewView{
		r.ID.String(), r.VersionID.String(), r.Outcome, r.Statement, actorView{r.Key, r.Member.String()}, evidence.FormatTime(r.DeclaredAt),
	}
}

type approvalView struct {
	ID         string    `json:"id"`
	VersionID  string    `json:"versionId"`
	Statement  *string   `json:"statement"`
	Approver   actorView `json:"approver"`
	ApprovedAt string    `json:"approvedAt"`
}

func viewApproval(p query.Approval) approvalView {
	return approvalView{p.ID.String(), p.VersionID.String(), p.Statement, actorView{p.Key, p.Member.String()}, evidence.FormatTime(p.ApprovedAt)}
}

// stateView is how far a version has come.
type stateView struct {
	ID         string              `json:"id"`
	ArtifactID string              `json:"artifactId"`
	Version    int32               `json:"version"`
	State      domain.VersionState `json:"state"`
}

func viewState(v domain.ArtifactVersion) stateView {
	return stateView{v.ID.String(), v.Artifact.ID.String(), v.Number, v.State}
}

// declareReview takes the exact file and a member's word about it. The bytes are
// hashed as they arrive and not stored; a manifest is compared by what it says.
func (s *server) declareReview(r *http.Request) (response, error) {
	artifact, err := domain.ParseID[domain.ArtifactID](variable(r, "id"))
	if err != nil {
		artifact = domain.ArtifactID{} // names none: answers as an unknown one
	}
	u, err := s.readUpload(r, false)
	if err != nil {
		return response{}, err
	}
	o := callOf(r).meter.Decode(u.metadata)
	review := domain.DeclareReview{
		Origin: origin(r), Artifact: artifact, Member: callOf(r).access.Member, SHA256: u.sha256,
		Version: readVersionID(o, "versionId"), Outcome: domain.ReviewOutcome(o.String("outcome", strictjson.Required)),
		Statement: domain.ReadStatement(o, "statement", domain.MaxStatement),
	}
	if o.OK("outcome") && review.Outcome != domain.ReviewAccepted && review.Outcome != domain.ReviewRequested {
		o.Problem("outcome", strictjson.CodeFormat, "must be accepted or changes_requested")
	}
	domain.ReadConsent(o, "acceptResponsibility")
	if problems := o.Problems(); len(problems) > 0 {
		return response{}, domain.Invalid(problems)
	}
	switch m, _, err := domain.ReadManifest(&callOf(r).meter, u.text); {
	case errors.Is(err, strictjson.ErrStopped):
		return response{}, gone(r.Context())
	case err == nil:
		sum := m.SHA256()
		review.Manifest = &sum
	}
	content := []any{review.Version, review.Outcome, review.Statement, review.SHA256}
	return s.once(r, content, func(execute execution) (response, error) {
		command, err := domain.NewDeclareReview(review, s.Now(), s.Random)
		if err != nil {
			return response{}, err
		}
		return execute(command, func() response {
			declared := command.Answer
			return response{status: http.StatusCreated, data: struct {
				Review  reviewView `json:"review"`
				Version stateView  `json:"version"`
			}{
				viewReview(query.Review{
					ID: declared.Body.ReviewID, VersionID: declared.Body.VersionID, Key: command.Actor, Member: declared.Body.MemberID,
					Outcome: declared.Body.Outcome, Statement: &command.Statement, DeclaredAt: declared.At,
				}),
				viewState(declared.Version),
			}}
		})
	})
}

func readVersionID(o *strictjson.Object, name string) domain.ArtifactVersionID {
	text := o.String(name, strictjson.Required)
	if !o.OK(name) {
		return domain.ArtifactVersionID{}
	}
	id, err := domain.ParseID[domain.ArtifactVersionID](text)
	if err != nil {
		o.Problem(name, strictjson.CodeFormat, err.Error())
	}
	return id
}

// versionID reads the path. What is no id of a version is an unknown one.
func versionID(r *http.Request) (domain.ArtifactVersionID, error) {
	id, err := domain.ParseID[domain.ArtifactVersionID](variable(r, "id"))
	if err != nil {
		return id, domain.UnknownArtifactVersion()
	}
	return id, nil
}

// approve approves a version whose latest review accepts it.
func (s *server) approve(r *http.Request) (response, error) {
	var statement string
	err := decode(r, func(o *strictjson.Object) {
		statement = domain.ReadStatement(o, "statement", domain.MaxStatement)
		domain.ReadConsent(o, "acceptResponsibility")
	})
	if err != nil {
		return response{}, err
	}
	return s.once(r, statement, func(execute execution) (response, error) {
		id, err := versionID(r)
		if err != nil {
			return response{}, err
		}
		command, err := domain.NewApproveArtifactVersion(domain.ApproveArtifactVersion{
			Origin: origin(r), Version: id, Member: callOf(r).access.Member, Statement: statement,
		}, s.Now(), s.Random)
		if err != nil {
			return response{}, err
		}
		return execute(command, func() response {
			approved := command.Answer
			return response{status: http.StatusCreated, data: struct {
				Approval approvalView `json:"approval"`
				Version  stateView    `json:"version"`
			}{
				viewApproval(query.Approval{
					ID: approved.Body.ApprovalID, VersionID: approved.Body.VersionID, Key: command.Actor, Member: approved.Body.MemberID,
					Statement: &command.Statement, ApprovedAt: approved.At,
				}),
				viewState(approved.Version),
			}}
		})
	})
}
