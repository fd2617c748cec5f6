package handlers

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"
)

// router answers every path as gorilla/mux would. Most paths have no variable, or one that is their last segment or the
// last but one: those are looked up, where mux would try one template after another.
type router struct {
	all   *mux.Router
	exact map[string]http.Handler // by path
	one   map[template]oneVariable
}

// template is what stands before and after the one variable of a path.
type template struct{ before, after string }

type oneVariable struct {
	name    string
	handler http.Handler
}

func newRouter(unknown http.Handler) *router {
	rt := &router{all: mux.NewRouter().SkipClean(true), exact: map[string]http.Handler{}, one: map[template]oneVariable{}}
	rt.all.NotFoundHandler = unknown
	return rt
}

// handle adds a template after those that it may share paths with: the first that matches answers.
func (rt *router) handle(path string, h http.Handler) {
	rt.all.Handle(path, h)
	before, rest, variable := strings.Cut(path, "{")
	name, after, _ := strings.Cut(rest, "}")
	switch {
	case !variable:
		rt.exact[path] = h
	case strings.HasSuffix(before, "/") && !strings.ContainsAny(name, ":/") && !strings.ContainsAny(after, "{}") &&
		(after == "" || after[0] == '/' && strings.LastIndexByte(after, '/') == 0):
		rt.one[template{before, after}] = oneVariable{name, h}
	}
}

func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h, name, value := rt.find(r.URL.Path); h != nil {
		if name != "" {
			r.SetPathValue(name, value)
		}
		h.ServeHTTP(w, r)
		return
	}
	rt.all.ServeHTTP(w, r)
}

// find looks a path up. It finds nothing where mux is to be asked.
func (rt *router) find(path string) (h http.Handler, name, value string) {
	if h, ok := rt.exact[path]; ok {
		return h, "", ""
	}
	end, after := len(path), ""
	for range 2 {
		start := strings.LastIndexByte(path[:end], '/') + 1
		if start == 0 {
			break
		}
		if one, ok := rt.one[template{path[:start], after}]; ok && start < end {
			return one.handler, one.name, path[start:end]
		}
		end, after = start-1, path[start-1:]
	}
	return nil, "", ""
}

// variable is that of the path's template.
func variable(r *http.Request, name string) string {
	if value := r.PathValue(name); value != "" {
		return value
	}
	return mux.Vars(r)[name]
}
