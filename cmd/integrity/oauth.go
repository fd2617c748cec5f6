package main

import (
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
		ClientSecret: s.cfg.OAuthClientSecret, RedirectURL: handlers.OAuthRedirect(s.cfg.BaseURL), Now: s.Now,
	})
}
