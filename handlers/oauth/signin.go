package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Attempt is one sign-in under way, known to the person's browser alone.
type Attempt struct {
	State, Nonce string
	Verifier     string // of PKCE (RFC 7636)
}

// CanSignIn tells whether this service is registered at the provider.
func (p *Provider) CanSignIn() bool { return p.ClientID != "" }

// SignIn is where the browser is sent.
func (p *Provider) SignIn(ctx context.Context, a Attempt) (string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return p.flow(found).AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// SignedIn exchanges the code that the browser came back with, and answers the subject that has signed in. What the
// provider does not confirm is INVALID_KEY.
func (p *Provider) SignedIn(ctx context.Context, a Attempt, code string) (subject string, err error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	answer, err := p.flow(found).Exchange(oidc.ClientContext(ctx, p.client), code, oauth2.VerifierOption(a.Verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused):
		why := fmt.Errorf("it answers %s %q", refused.Response.Status, refused.ErrorCode) // its page is for nobody's log
		if refused.Response.StatusCode >= http.StatusInternalServerError {
			return "", unavailable(why)
		}
		return "", refuse("the provider does not confirm the sign-in", why)
	case err != nil:
		return "", unavailable(err)
	}
	raw, _ := answer.Extra("id_token").(string)
	token, err := p.verify(ctx, raw, p.ClientID)
	if err != nil {
		return "", err
	}
	if token.Nonce != a.Nonce {
		return "", refuse("it answers another sign-in", errors.New("claim nonce"))
	}
	return token.Subject, nil
}

func (p *Provider) flow(found *discovered) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, RedirectURL: p.RedirectURL,
		Endpoint: found.provider.Endpoint(), Scopes: []string{oidc.ScopeOpenID},
	}
}
