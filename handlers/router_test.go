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

	"integrityledger/handlers/oauth"
)

var pathVariable = regexp.MustCompile(`\{(\w+)[^/}]*\}`)

// TestLookedUpPathsAreTheRouters: whatever stands in a path, what the look-up finds is the template that gorilla/mux
// finds, with the same value of each variable.
func TestLookedUpPathsAreTheRouters(t *testing.T) {
	s := &server{Config: Config{OAuth: oauth.New(oauth.Config{ClientID: "client"})}}
	var answered string
	handler := func(template string) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			answered = template
			for _, v := range pathVariable.FindAllStringSubmatch(template, -1) {
				answered += " " + v[1] + "=" + variable(r, v[1])
			}
		})
	}
	rt := newRouter(handler(unknownRoute))
	values := map[string]bool{}
	for _, odd := range []string{"", "x", "a b", "a\nb", "é", "{publicId}", "%2F", ".", ".."} {
		values[odd] = true
	}
	routes := routesOf(s.endpoints())
	for _, r := range routes {
		rt.handle(r.template, handler(r.template))
		for segment := range strings.SplitSeq(r.template, "/") {
			values[segment] = true
		}
	}
	looked := map[string]bool{}
	for _, r := range routes {
		for _, value := range slices.Sorted(maps.Keys(values)) {
			filled := pathVariable.ReplaceAllLiteralString(r.template, value)
			for _, path := range []string{filled, filled + "/", filled + "/" + value, "/" + filled, strings.TrimPrefix(filled, "/")} {
				request := func() *http.Request {
					r := httptest.NewRequest(http.MethodGet, "/", nil)
					r.URL = &url.URL{Path: path}
					return r
				}
				rt.all.ServeHTTP(httptest.NewRecorder(), request())
				want := answered
				rt.ServeHTTP(httptest.NewRecorder(), request())
				if answered != want {
					t.Fatalf("%q: %s answers, must be %s", path, answered, want)
				}
				if h, _, _ := rt.find(path); h != nil {
					looked[strings.Fields(want)[0]] = true
				}
			}
		}
	}
	for _, busy := range []string{"/api/v1/integrity/records", "/api/public/integrity/{publicId}", "/api/v1/integrity/records/{publicId}/evidence", feedRoute} {
		if !looked[busy] {
			t.Errorf("%s is not looked up", busy)
		}
	}
}

func BenchmarkRouter(b *testing.B) {
	s := &server{Config: Config{OAuth: oauth.New(oauth.Config{ClientID: "client"})}}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	rt := newRouter(nothing)
	for _, r := range routesOf(s.endpoints()) {
		rt.handle(r.template, nothing)
	}
	for _, path := range []string{"/api/v1/integrity/records", "/api/public/integrity/aaaaaaaaaaaaaaaaaaaaaaaaaa"} {
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		for name, h := range map[string]http.Handler{"mux": rt.all, "look-up": rt} {
			b.Run(name+path, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					h.ServeHTTP(w, r)
				}
			})
		}
	}
}
