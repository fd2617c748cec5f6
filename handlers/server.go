package handlers

import (
	"net/http"
	"slices"

	"integrityledger/eventstore"
	"integrityledger/handlers/action"
	"integrityledger/handlers/api"
	"integrityledger/handlers/console"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/mcp"
	"integrityledger/handlers/site"
	"integrityledger/handlers/web"
)

// Config configures the service, room by room.
type Config struct {
	Ledger *eventstore.Ledger
	Edge
	Action
	Console
	Site
}

// The parts of a Config.
type (
	Edge    = edge.Config
	Action  = action.Config
	Parties = action.Parties
	Console = console.Config
	Site    = site.Config
)

// New makes the handler of all routes. It panics only if the program itself is broken: an embedded file does not parse.
func New(c Config) http.Handler {
	s := assemble(c)
	return s.edge.Router(s.endpoints, edge.Faces{
		Onward: s.console.Onward,
		FailurePage: func(r *http.Request, failed edge.Response, err error) edge.Response {
			if page := s.console.FailurePage(r, failed, err); page != nil {
				return *page
			}
			return s.site.FailurePage(r, failed, err)
		},
	})
}

// NewStarting makes the handler of a process that cannot serve yet. /healthz answers; everything else is refused with
// the error that why returns, before a body is read.
func NewStarting(c Edge, why func() error) http.Handler {
	refused := edge.Policy{Caller: edge.Anyone, Answer: edge.AsFile,
		Enter: func(*http.Request, edge.Policy) (*http.Request, *edge.Response, error) { return nil, nil, why() }}
	endpoints := []edge.Endpoint{site.Health(), edge.Get("/readyz", nil, refused)}
	for _, method := range []edge.Method{edge.Get, edge.Post, edge.Patch, edge.Delete} {
		endpoints = append(endpoints, method("/{path:.*}", nil, refused))
	}
	return edge.New(c).Router(endpoints, edge.Faces{
		Onward: func(*http.Request, edge.Policy, error) *edge.Response { return nil },
	})
}

// service holds the rooms that New connects.
type service struct {
	edge      *edge.Edge
	console   *console.Console
	site      *site.Site
	endpoints []edge.Endpoint // if two match a path, the first one answers
}

func assemble(c Config) service {
	e := edge.New(c.Edge)
	pages := edge.Must(web.New(web.Config{
		BaseURL: e.BaseURL, Relationship: c.Relationship, Console: console.Offered(e.BaseURL), Demo: c.Demo,
		OperatorName: c.OperatorName,
	}))
	c.Pages = pages
	actions := action.New(e, c.Ledger, c.Action)
	s := service{edge: e, console: console.New(actions, pages, c.Console), site: site.New(actions, pages, c.Site)}
	s.endpoints = slices.Concat(
		api.API{Actions: actions}.Endpoints(), mcp.Face{Actions: actions}.Endpoints(), s.console.Endpoints(),
		s.site.Endpoints())
	return s
}
