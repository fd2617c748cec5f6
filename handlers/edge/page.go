package edge

import (
	"net/http"
	"net/url"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/web"
)

func Redirect(url string) Response {
	return Response{
		Status: http.StatusSeeOther, Raw: []byte{}, ContentType: HTMLType, Cache: NoStore,
		Header: http.Header{"Location": {url}},
	}
}

// Language returns the language of the page at the request's path: Spanish paths have no prefix.
func Language(r *http.Request) evidence.Language {
	if r.URL.Path == "/en" || strings.HasPrefix(r.URL.Path, "/en/") {
		return evidence.English
	}
	return evidence.Spanish
}

// Elsewhere redirects a link as it was typed, scanned or mailed to the page of its public id. It refuses any other path
// with err.
func Elsewhere(r *http.Request, err error) (Response, error) {
	path := domain.StraightenLink(r.URL.Path)
	for _, kind := range []web.Kind{web.Record, web.Certificate} {
		for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
			id, found := strings.CutPrefix(path, web.Path(language, kind.Path("")))
			if _, ok := domain.ParsePublicID(id); found && ok && path != r.URL.Path && (r.Method == http.MethodGet ||
				r.Method == http.MethodHead) {
				return Moved(r, path), nil
			}
		}
	}
	return Response{}, err
}

// FromElsewhere reports whether a page of another site made the request, according to the browser (Fetch Metadata).
// Origin would not do: under the policy no-referrer it is "null" on our own forms.
func FromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

const HTMLType = "text/html; charset=utf-8"

func Page(body []byte, err error) (Response, error) {
	return Response{Raw: body, ContentType: HTMLType, Header: web.PageHeader()}, err
}

// Moved redirects to the canonical path of a page, keeping the query of the request.
func Moved(r *http.Request, path string) Response {
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	return Response{
		Status: http.StatusPermanentRedirect, Empty: true, Cache: PublicMinutes, Header: http.Header{"Location": {path}},
	}
}

// WithoutSlash redirects the address of a page with a trailing slash, perhaps written as %2F, to the page.
func (s *Edge) WithoutSlash(r *http.Request) (any, error) {
	page := url.URL{Path: strings.TrimSuffix(r.URL.Path, "/")}
	return Moved(r, page.EscapedPath()), nil
}
