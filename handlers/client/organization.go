package client

import (
	"context"
	"net/http"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

const (
	organizationPath = "/api/v1/organization"
	apikeysPath      = organizationPath + "/keys"
	membersPath      = organizationPath + "/members"
)

// Organization is the key's organization, with what is left of its month. Any key may ask; everything else about keys
// and members needs organization:admin.
func (c *Client) Organization(ctx context.Context) (wire.FullOrganization, error) {
	return get[wire.FullOrganization](ctx, c, organizationPath, nil)
}

// APIKeys reads a page of the organization's keys, the oldest first, ended ones included. after is the NextCursor of
// the page before, or empty.
func (c *Client) APIKeys(ctx context.Context, after string) (wire.APIKeys, error) {
	return get[wire.APIKeys](ctx, c, apikeysPath, page(after))
}

// APIKey finds a key by its id.
func (c *Client) APIKey(ctx context.Context, keyID string) (wire.APIKey, error) {
	return c.apikey(ctx, askAPIKey(http.MethodGet, keyID, ""), keyID)
}

// CreateAPIKey makes a key of the member that the asking key acts for, another one with each call. Its text is in this
// answer only. No key gives more than it has: scopes, end and limits.
func (c *Client) CreateAPIKey(ctx context.Context, k wire.APIKeyRequest) (wire.CreatedAPIKey, error) {
	answer, err := post[wire.CreatedAPIKey](ctx, c, apikeysPath, k)
	return about(answer, err, answer.ID != "" && answer.Key != "")
}

// UpdateAPIKey renames a key, or brings its end forward.
func (c *Client) UpdateAPIKey(ctx context.Context, keyID string, change wire.APIKeyChange) (wire.APIKey, error) {
	a := askAPIKey(http.MethodPatch, keyID, "")
	a.document = change
	return c.apikey(ctx, a, keyID)
}

// RevokeAPIKey ends a key for good.
func (c *Client) RevokeAPIKey(ctx context.Context, keyID string) (wire.APIKey, error) {
	return c.apikey(ctx, askAPIKey(http.MethodDelete, keyID, ""), keyID)
}

// RotateAPIKey makes a successor with the same member, scopes and limits; its text is in this answer only.
func (c *Client) RotateAPIKey(ctx context.Context, keyID string, r wire.APIKeyRotation) (wire.RotatedAPIKey, error) {
	a := askAPIKey(http.MethodPost, keyID, "/rotate")
	a.document = r
	answer, err := read[wire.RotatedAPIKey](ctx, c, a)
	return about(answer, err, answer.FormerKey.ID == keyID && answer.Key != "")
}

func askAPIKey(method, keyID, after string) ask {
	return ask{
		method: method, path: apikeysPath + "/" + keyID + after,
		wrong: checkID("keyId", keyID, domain.ParseID[domain.KeyID]),
	}
}

func (c *Client) apikey(ctx context.Context, a ask, keyID string) (wire.APIKey, error) {
	answer, err := read[wire.APIKey](ctx, c, a)
	return about(answer, err, answer.ID == keyID)
}

// Members reads a page of the organization's members, the oldest first, ended memberships included. after is the
// NextCursor of the page before, or empty.
func (c *Client) Members(ctx context.Context, after string) (wire.Members, error) {
	return get[wire.Members](ctx, c, membersPath, page(after))
}

// InviteMember invites an address; again, it makes another link, and the former one works no more. Where the service
// sends no mail, the link is in this answer only.
func (c *Client) InviteMember(ctx context.Context, email string, role domain.Role) (wire.InvitedMember, error) {
	answer, err := post[wire.InvitedMember](ctx, c, membersPath, wire.Invitation{Email: email, Role: role})
	return about(answer, err, answer.ID != "")
}

// UpdateMember gives a member another role, or disables or enables one.
func (c *Client) UpdateMember(ctx context.Context, memberID string, change wire.MemberChange) (wire.FullMember, error) {
	a := askMember(http.MethodPatch, memberID)
	a.document = change
	return c.member(ctx, a, memberID)
}

// EndMember ends a membership for good, or withdraws an invitation.
func (c *Client) EndMember(ctx context.Context, memberID string) (wire.FullMember, error) {
	return c.member(ctx, askMember(http.MethodDelete, memberID), memberID)
}

func askMember(method, memberID string) ask {
	return ask{
		method: method, path: membersPath + "/" + memberID,
		wrong: checkID("memberId", memberID, domain.ParseID[domain.MemberID]),
	}
}

func (c *Client) member(ctx context.Context, a ask, memberID string) (wire.FullMember, error) {
	answer, err := read[wire.FullMember](ctx, c, a)
	return about(answer, err, answer.ID == memberID)
}
