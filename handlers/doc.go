// Package handlers is the service as HTTP shows it: it decodes a request into a command or a question, and renders what
// the ledger or a projection answers. It decides nothing about records and never speaks to the database itself.
//
// Every handler is a func(*http.Request) (any, error): it answers data, or a response where there is more to say. What a
// request and a tool of MCP have done alike is one function of the input that either has read (posted, called). One
// wrapper, serve, surrounds all handlers: it takes the checks in the order of contract section 2, writes every answer and
// logs one line a request. Logs carry route templates, codes and request ids only; a query string holds hashes, so it is
// never logged.
package handlers
