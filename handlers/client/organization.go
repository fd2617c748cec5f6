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

// Organization returns the key's organization with its remaining monthly limits. Any key may call it. All other methods
// about keys and members need organization:admin.
func (c *Client) Organization(ctx context.Context) (wire.FullOrganization, error) {
	return get[wire.FullOrganization](ctx, c, organizationPath, nil)
}

// APIKeys reads a page of the organization's keys, oldest first, including ended ones. after is the NextCursor of the
// previous page, or empty.
func (c *Client) APIKeys(ctx context.Context, after string) (wire.APIKeys, error) {
	return get[wire.APIKeys](ctx, c, apikeysPath, page(after))
}

// APIKey finds a key by its id.
func (c *Client) APIKey(ctx context.Context, keyID string) (wire.APIKey, error) {
	return c.apikey(ctx, askAPIKey(http.MethodGet, keyID, ""), keyID)
}

// CreateAPIKey creates another key of the member that the calling key acts for, with each call. Only this answer
// contains its text. A key cannot grant more than it has: scopes, end and limits.
func (c *Client) CreateAPIKey(ctx context.Context, k wire.APIKeyRequest) (wire.CreatedAPIKey, error) {
	answer, err := post[wire.CreatedAPIKey](ctx, c, apikeysPath, k)
	return about(answer, err, answer.ID != "" && answer.Key != "")
}

// UpdateAPIKey renames a key or makes it end earlier.
func (c *Client) UpdateAPIKey(ctx context.Context, keyID string, change wire.APIKeyChange) (wire.APIKey, error) {
	a := askAPIKey(http.MethodPatch, keyID, "")
	a.document = change
	return c.apikey(ctx, a, keyID)
}

// RevokeAPIKey revokes a key for good.
func (c *Client) RevokeAPIKey(ctx context.Context, keyID string) (wire.APIKey, error) {
	return c.apikey(ctx, askAPIKey(http.MethodDelete, keyID, ""), keyID)
}

// RotateAPIKey creates a successor with the same member, scopes and limits. Only this answer contains its text.
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

// Members reads a page of the organization's members, oldest first, including ended memberships. after is the
// NextCursor of the previous page, or empty.
func (c *Client) Members(ctx context.Context, after string) (wire.Members, error) {
	return get[wire.Members](ctx, c, membersPath, page(after))
}

// InviteMember invites an address. Inviting it again makes a new link, and the former link no longer works. If the
// service sends no mail, only this answer contains the link.
func (c *Client) InviteMember(ctx context.Context, email string, role domain.Role) (wire.InvitedMember, error) {
	answer, err := post[wire.InvitedMember](ctx, c, membersPath, wire.Invitation{Email: email, Role: role})
	return about(answer, err, answer.ID != "")
}

// UpdateMember changes the role of a member, or disables or enables the member.
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
