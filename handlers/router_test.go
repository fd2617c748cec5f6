package handlers

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/mux"

	"integrityledger/handlers/edge"
	"integrityledger/handlers/oauth"
)

var pathVariable = regexp.MustCompile(`\{(\w+)[^/}]*\}`)

// For any path, the router of its group finds the first matching template of all, with the same values of its
// variables.
func TestGroupsOfPaths(t *testing.T) {
	s := assemble(Config{Edge: Edge{OAuth: oauth.New(oauth.Config{ClientID: "client"})}})
	var answered string
	handler := func(rt edge.Route) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			answered = rt.Template
			for _, v := range pathVariable.FindAllStringSubmatch(rt.Template, -1) {
				answered += " " + v[1] + "=" + edge.Variable(r, v[1])
			}
		})
	}
	values := map[string]bool{}
	for _, odd := range []string{"", "x", "a b", "a\nb", "é", "{publicId}", "%2F", ".", ".."} {
		values[odd] = true
	}
	routes := edge.RoutesOf(s.endpoints)
	grouped, flat := edge.NewRouter(routes, handler), mux.NewRouter().SkipClean(true)
	flat.NotFoundHandler = handler(edge.Route{Template: edge.UnknownRoute})
	for _, rt := range routes {
		flat.Handle(rt.Template, handler(rt))
		for segment := range strings.SplitSeq(rt.Template, "/") {
			values[segment] = true
		}
	}
	for _, r := range routes {
		for _, value := range slices.Sorted(maps.Keys(values)) {
			filled := pathVariable.ReplaceAllLiteralString(r.Template, value)
			for _, path := range []string{
				filled, filled + "/", filled + "/" + value, "/" + filled, strings.TrimPrefix(filled, "/"),
			} {
				find := func(h http.Handler) string {
					r := httptest.NewRequest(http.MethodGet, "/", nil)
					r.URL = &url.URL{Path: path}
					h.ServeHTTP(httptest.NewRecorder(), r)
					return answered
				}
				if got, want := find(grouped), find(flat); got != want {
					t.Fatalf("%q: %s answers, must be %s", path, got, want)
				}
			}
		}
	}
}

func BenchmarkRouter(b *testing.B) {
	s := assemble(Config{Edge: Edge{OAuth: oauth.New(oauth.Config{ClientID: "client"})}})
	router := edge.NewRouter(edge.RoutesOf(s.endpoints), func(edge.Route) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	})
	for _, path := range []string{
		"/api/v1/integrity/records", "/api/v1/integrity/lookup", "/api/public/integrity/aaaaaaaaaaaaaaaaaaaaaaaaaa",
		"/integrity/aaaaaaaaaaaaaaaaaaaaaaaaaa",
	} {
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				router.ServeHTTP(w, r)
			}
		})
	}
}
