package handlers

import (
	"integrityledger/handlers/edge"
)

// Endpoint is an endpoint of the router, for tests that must cover all of them.
type Endpoint struct {
	Method, Template string
	Session          bool // a page of the console
	Form, File       bool // the body is a form, or contains a file
}

// Endpoints returns all endpoints of a service.
func Endpoints(c Config) (list []Endpoint) {
	for _, e := range assemble(c).endpoints {
		list = append(
			list, Endpoint{e.Method, e.Template, e.Caller == edge.WithSession, e.Body.IsForm(), e.Body.ReadByHandler()},
		)
	}
	return list
}
