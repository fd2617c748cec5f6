package edge

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"integrityledger/handlers/web"
)

// wantsPage is true of requests which a person's browser has made for a page.
func (rt Route) wantsPage(r *http.Request) bool {
	page := rt.Policy.Answer == AsPage && rt.Methods != nil || rt.Methods == nil && !strings.HasPrefix(r.URL.Path, "/api/")
	return page && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// UnknownRoute stands in the log for paths that nothing answers.
const UnknownRoute = "unknown"

// Route is all the endpoints of a path.
type Route struct {
	Template string
	Policy   Policy // of one of them; Caller, Answer and AnyOrigin are those of all
	Methods  map[string]Endpoint
}

// RoutesOf puts the endpoints of the same path together, in the order in which paths come first.
func RoutesOf(endpoints []Endpoint) (routes []Route) {
	for _, e := range endpoints {
		i := slices.IndexFunc(routes, func(rt Route) bool { return rt.Template == e.Template })
		if i < 0 {
			i, routes = len(routes), append(routes, Route{e.Template, e.Policy, map[string]Endpoint{}})
		}
		routes[i].Methods[e.Method] = e
	}
	return routes
}

// pathGroups are the beginnings of paths that have a router of their own. The first that a template begins with is its.
var pathGroups = []string{
	"/api/v1/integrity", "/api/v1", "/api/public", web.DeveloperRoot, "/en" + web.DeveloperRoot, web.ConsoleRoot,
	"/en" + web.ConsoleRoot,
}

// NewRouter mounts all routes. gorilla/mux tries one template after another, so a request is compared with the
// templates of its group alone.
func NewRouter(routes []Route, serve func(Route) http.Handler) *mux.Router {
	router := mux.NewRouter().SkipClean(true)
	router.NotFoundHandler = serve(Route{Template: UnknownRoute})
	groups := map[string]*mux.Router{"": router}
	for _, rt := range routes {
		prefix := ""
		for _, p := range pathGroups {
			if prefix == "" && (rt.Template == p || strings.HasPrefix(rt.Template, p+"/")) {
				prefix = p
			}
		}
		if groups[prefix] == nil {
			groups[prefix] = router.PathPrefix(prefix).Subrouter()
		}
		groups[prefix].Handle(strings.TrimPrefix(rt.Template, prefix), serve(rt))
	}
	return router
}

// Variable returns the value of a variable in the path's template.
func Variable(r *http.Request, name string) string { return mux.Vars(r)[name] }

// timeout is how long a request of the route may take.
func (rt Route) timeout() time.Duration {
	most := RequestTimeout
	for _, e := range rt.Methods {
		most = max(most, e.timeout())
	}
	return most
}

// allow lists the methods of a route for the Allow header.
func (rt Route) allow() string {
	methods := slices.Collect(maps.Keys(rt.Methods))
	if _, ok := rt.Methods[http.MethodGet]; ok {
		methods = append(methods, http.MethodHead)
	}
	if rt.Policy.AnyOrigin {
		methods = append(methods, http.MethodOptions)
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}
