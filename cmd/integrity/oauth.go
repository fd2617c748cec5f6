package main

import (
	"net/url"

	"integrityledger/handlers"
	"integrityledger/handlers/oauth"
)

// oauth is the adapter of the ordinary MCP endpoint, or nil where none is configured. Nothing is asked of the provider yet.
func (s *service) oauth() *oauth.Provider {
	if s.cfg.OAuthIssuer == "" {
		return nil
	}
	return oauth.New(oauth.Config{
		Issuer: s.cfg.OAuthIssuer, Audience: handlers.OAuthAudience(s.cfg.BaseURL), ClientID: s.cfg.OAuthClientID,
		ClientSecret: s.cfg.OAuthClientSecret, RedirectURL: handlers.OAuthRedirect(s.cfg.BaseURL), Now: s.now,
	})
}

// isIssuer judges the address of an identity provider (OpenID Connect Discovery, section 3). Keys that came over plain http
// could be anybody's.
func isIssuer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http" && isLoopbackHost(u.Hostname())) && u.Hostname() != "" &&
		u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}
