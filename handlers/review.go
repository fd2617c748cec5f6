package handlers

import (
	"errors"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func viewReview(r query.Review) wire.Review {
	return wire.Review{
		ID: r.ID.String(), VersionID: r.VersionID.String(), Outcome: r.Outcome, Statement: r.Statement,
		Reviewer: wire.Actor{KeyID: r.Key, MemberID: r.Member.String()}, DeclaredAt: evidence.FormatTime(r.DeclaredAt),
	}
}

func viewApproval(p query.Approval) wire.Approval {
	return wire.Approval{
		ID: p.ID.String(), VersionID: p.VersionID.String(), Statement: p.Statement,
		Approver: wire.Actor{KeyID: p.Key, MemberID: p.Member.String()}, ApprovedAt: evidence.FormatTime(p.ApprovedAt),
	}
}

func viewState(v domain.ArtifactVersion) wire.ArtifactVersionState {
	return wire.ArtifactVersionState{ID: v.ID.String(), ArtifactID: v.Artifact.ID.String(), Version: v.Number, State: v.State}
}

// declareReview takes the exact file and a member's word about it. The bytes are hashed as they arrive and not stored;
// a manifest is compared by what it says.
func (s *server) declareReview(r *http.Request) (any, error) {
	u, err := s.readUpload(r, false)
	if err != nil {
		return nil, err
	}
	o := callOf(r).meter.Decode(u.metadata)
	command := &domain.DeclareReview{
		Origin: origin(r), Artifact: pathID(r, "id", domain.ParseID[domain.ArtifactID]), Member: callOf(r).access.Member, SHA256: u.SHA256,
		Version: readID(o, "versionId", domain.ParseID[domain.ArtifactVersionID]), Outcome: domain.ReviewOutcome(o.String("outcome", strictjson.Required)),
		Statement: domain.ReadStatement(o, "statement", domain.MaxStatement),
	}
	if o.OK("outcome") && command.Outcome != domain.ReviewAccepted && command.Outcome != domain.ReviewRequested {
		o.Problem("outcome", strictjson.CodeFormat, "must be accepted or changes_requested")
	}
	domain.ReadConsent(o, "acceptResponsibility")
	if problems := o.Problems(); len(problems) > 0 {
		return nil, domain.Invalid(problems)
	}
	switch m, _, err := domain.ReadManifest(&callOf(r).meter, u.text); {
	case errors.Is(err, strictjson.ErrStopped):
		return nil, gone(r.Context())
	case err == nil:
		sum := m.SHA256()
		command.Manifest = &sum
	}
	content := []any{command.Version, command.Outcome, command.Statement, command.SHA256}
	return s.once(r, content, func() (domain.Command, func() response, error) {
		return command, func() response {
			declared := command.Answer
			return response{status: http.StatusCreated, data: wire.DeclaredReview{
				Review: viewReview(query.Review{
					ID: declared.Body.ReviewID, VersionID: declared.Body.VersionID, Key: command.Actor, Member: declared.Body.MemberID,
					Outcome: declared.Body.Outcome, Statement: &command.Statement, DeclaredAt: declared.At,
				}),
				Version: viewState(declared.Version),
			}}
		}, nil
	})
}

func versionID(r *http.Request) domain.ArtifactVersionID {
	return pathID(r, "id", domain.ParseID[domain.ArtifactVersionID])
}

// approve approves a version whose latest review accepts it.
func (s *server) approve(r *http.Request) (any, error) {
	var statement string
	err := decode(r, func(o *strictjson.Object) {
		statement = domain.ReadStatement(o, "statement", domain.MaxStatement)
		domain.ReadConsent(o, "acceptResponsibility")
	})
	if err != nil {
		return nil, err
	}
	return s.once(r, statement, func() (domain.Command, func() response, error) {
		command := &domain.ApproveArtifactVersion{Origin: origin(r), Version: versionID(r), Member: callOf(r).access.Member, Statement: statement}
		return command, func() response {
			approved := command.Answer
			return response{status: http.StatusCreated, data: wire.ApprovedVersion{
				Approval: viewApproval(query.Approval{
					ID: approved.Body.ApprovalID, VersionID: approved.Body.VersionID, Key: command.Actor, Member: approved.Body.MemberID,
					Statement: &command.Statement, ApprovedAt: approved.At,
				}),
				Version: viewState(approved.Version),
			}}
		}, nil
	})
}
