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

// wantsPage reports whether a browser asked for a page.
func (rt Route) wantsPage(r *http.Request) bool {
	page := rt.Policy.Answer == AsPage && rt.Methods != nil || rt.Methods == nil && !strings.HasPrefix(r.URL.Path, "/api/")
	return page && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// UnknownRoute is the route in the log for paths that no endpoint answers.
const UnknownRoute = "unknown"

// Route has all endpoints of a path.
type Route struct {
	Template string
	Policy   Policy // of one endpoint; all of them share Caller, Answer and AnyOrigin
	Methods  map[string]Endpoint
}

// RoutesOf groups endpoints by path, in the order in which the paths first appear.
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

// pathGroups are path prefixes that have a router of their own. A template belongs to the first one that it begins
// with.
var pathGroups = []string{
	"/api/v1/integrity", "/api/v1", "/api/public", web.DeveloperRoot, "/en" + web.DeveloperRoot, web.ConsoleRoot,
	"/en" + web.ConsoleRoot,
}

// NewRouter mounts all routes. gorilla/mux tries templates one after another, so each group has its own router: a
// request is compared only with the templates of its group.
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

// timeout returns how long a request of the route may take.
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
