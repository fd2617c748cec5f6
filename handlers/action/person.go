package action

import (
	"context"

	"integrityledger/domain"
	"integrityledger/handlers/edge"
	"integrityledger/projections/query"
)

// AddPasskey adds a passkey to the signed-in member.
func (s *People) AddPasskey(
	ctx context.Context, c *edge.Call, name string, credential domain.Credential,
) (domain.Passkey, error) {
	command := &domain.AddPasskey{Origin: c.Origin(), Member: c.Access.Member, Name: name, Credential: credential}
	if err := s.execute(ctx, command); err != nil {
		return domain.Passkey{}, err
	}
	return command.Outcome, nil
}

// RemovePasskey removes a passkey of the signed-in member.
func (s *People) RemovePasskey(ctx context.Context, c *edge.Call, id domain.PasskeyID) error {
	return s.execute(ctx, &domain.RemovePasskey{Origin: c.Origin(), Member: c.Access.Member, Passkey: id})
}

// Invitation is an invitation that a person may accept.
type Invitation struct {
	domain.Member
	OrganizationName string
	secretSHA256     [32]byte
}

// Invitation finds the invitation of a code. It refuses with NOT_FOUND if the invitation is unknown, was accepted or
// has ended.
func (s *People) Invitation(ctx context.Context, c *edge.Call, code string) (found Invitation, err error) {
	organization, secret, ok := domain.ParseInvitationCode(code)
	if !ok {
		return found, query.UnknownInvitation()
	}
	found.secretSHA256 = secret
	if found.Member, err = s.Store.Invitation(ctx, organization, secret); err != nil {
		return found, err
	}
	if found.Status != domain.MemberInvited || !c.Start.Before(*found.InvitedUntil) {
		return found, query.UnknownInvitation()
	}
	named, err := s.Store.Organization(ctx, organization)
	found.OrganizationName = named.Name
	return found, err
}

// AcceptInvitation makes an invited person an active member of an organization. The actor is the service, because the
// person is not an active member before.
func (s *People) AcceptInvitation(ctx context.Context, c *edge.Call, i Invitation) error {
	return s.execute(ctx, &domain.AcceptInvitation{Origin: ownOrigin(c, i.Organization), SecretSHA256: i.secretSHA256})
}

// FoundOrganization creates an organization on the free plan and its owner, in one command. The actor is the service,
// because the person is not a member yet. id comes from query.Store.NewOrganizationID.
func (s *People) FoundOrganization(
	ctx context.Context, c *edge.Call, id domain.OrganizationID, name, owner string,
) (domain.MemberID, error) {
	create := &domain.CreateOrganization{Origin: ownOrigin(c, id), Name: name, Plan: domain.FreePlan, Owner: owner}
	if err := s.execute(ctx, create); err != nil {
		return domain.MemberID{}, err
	}
	return create.Outcome.ID, nil
}

// ownOrigin is the origin of a command whose actor is the service itself.
func ownOrigin(c *edge.Call, organization domain.OrganizationID) domain.Origin {
	return domain.Origin{Organization: organization, Actor: domain.SystemActor, RequestID: c.RequestID}
}
