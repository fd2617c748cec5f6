// Package handlers is the service as HTTP shows it: it decodes a request into a command or a question, and renders what
// the ledger or a projection answers. It decides nothing about records and never speaks to the database itself.
//
// Every handler is a func(*http.Request) (response, error). One wrapper, serve, surrounds all of them: it takes the
// checks in the order of contract section 2, writes every answer and logs one line a request. Logs carry route
// templates, codes and request ids only; a query string holds hashes, so it is never logged.
package handlers
