package handlers

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/web"
	"integrityledger/projections"
)

// language is what a path says: Spanish has no prefix.
func language(r *http.Request) evidence.Language {
	if r.URL.Path == "/en" || strings.HasPrefix(r.URL.Path, "/en/") {
		return evidence.English
	}
	return evidence.Spanish
}

// frontPage says what the service is. It is the same for everybody.
func (s *server) frontPage(r *http.Request) (response, error) {
	resp, err := page(s.site.Front(language(r)))
	resp.cache = publicMinutes
	return resp, err
}

// verifyPage verifies evidence offline, in the browser. It is the same for everybody.
func (s *server) verifyPage(r *http.Request) (response, error) {
	resp, err := page(s.site.Verify(language(r)))
	resp.cache = publicMinutes
	return resp, err
}

// recordPage is the page behind a verification link. It ignores the query and the
// forms of other sites, so that nobody can lead a person to a result; a hash is
// compared only where somebody has pasted it into the form, and then no file was.
func (s *server) recordPage(r *http.Request) (response, error) {
	id, ok := publicID(r)
	if !ok {
		return response{}, projections.UnknownPublicID()
	}
	shown := web.Record{Language: language(r), PublicID: id.String(), URL: s.BaseURL + "/integrity/" + id.String()}
	var hash *[32]byte
	if r.Method == http.MethodPost && !fromElsewhere(r) {
		if sum, text, ok := pasted(callOf(r).body); ok {
			hash, shown.Pasted = &sum, true
		} else {
			shown.HashInvalid, shown.HashText = true, text
		}
	}
	view, err := s.comparison(r.Context(), id, hash)
	if err != nil {
		return response{}, err
	}
	shown.Result, shown.Values = pageResult(view)
	if err := s.showRegistration(&shown, view); err != nil {
		return response{}, err
	}
	resp, err := page(s.site.Record(shown))
	if shown.HashInvalid {
		resp.status, resp.code = http.StatusUnprocessableEntity, domain.InvalidData
	}
	return resp, err
}

// fromElsewhere is true of requests which a page of another site has made, as the
// browser says (Fetch Metadata). Origin cannot tell: with the policy no-referrer
// it is "null" on our own form.
func fromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// showRegistration adds what is shown of a validated registration.
func (s *server) showRegistration(shown *web.Record, view comparisonView) error {
	if view.ReceivedAt == nil {
		return nil
	}
	at, err := time.Parse(time.RFC3339, *view.ReceivedAt)
	if err != nil {
		return err
	}
	key, _ := s.Keys().Trusted.Lookup(*view.KeyID)
	shown.ReceivedAt, shown.KeyID, shown.FingerprintSHA256 = at, key.KeyID, key.FingerprintSHA256
	return nil
}

// pasted reads the form. Spaces round a hash come from copying.
func pasted(body []byte) (sum [32]byte, text string, ok bool) {
	values, err := url.ParseQuery(string(body))
	if err != nil || len(values["sha256"]) != 1 {
		return sum, "", false
	}
	text = strings.TrimSpace(values.Get("sha256"))
	sum, ok = domain.ParseSHA256(text)
	return sum, text, ok
}

// pageResult is how the server shows a comparison: it has seen a hash at most,
// so nothing it shows is the result of a file.
func pageResult(view comparisonView) (result string, v web.Values) {
	if view.Checks.Signature != nil {
		v.Signature = string(*view.Checks.Signature)
	}
	if view.Checks.VersionState != nil {
		v.State = string(*view.Checks.VersionState)
	}
	switch match := view.Checks.FileMatch; {
	case match == nil:
		return string(view.Result), v
	case *match:
		v.File = "hash-match"
		return web.HashMatch, v
	default:
		v.File = "hash-mismatch"
		return web.HashDiffers, v
	}
}

// qrCode draws the verification link. It says nothing about whether there is a record.
func (s *server) qrCode(r *http.Request) (response, error) {
	id, ok := publicID(r)
	if !ok {
		return response{}, projections.UnknownPublicID()
	}
	image, err := web.QR(s.BaseURL + "/integrity/" + id.String())
	if err != nil {
		return response{}, err
	}
	resp := cacheable(r, image)
	resp.contentType = "image/svg+xml"
	return resp, nil
}

// asset serves what pages load, for ever: its name changes with its bytes.
func (s *server) asset(r *http.Request) (response, error) {
	asset, ok := s.site.Asset(variable(r, "name"))
	if !ok {
		return response{}, domain.Refuse(domain.NotFound, "There is no such file.")
	}
	return response{
		raw: asset.Body, contentType: asset.ContentType, cache: "public, max-age=31536000, immutable",
		header: http.Header{"Content-Security-Policy": {asset.Policy}},
	}, nil
}

// wantsPage is true of requests which a person's browser has made for a page.
func (rt route) wantsPage(r *http.Request) bool {
	page := rt.kind == pageRoute && rt.methods != nil || rt.methods == nil && !strings.HasPrefix(r.URL.Path, "/api/")
	return page && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// failurePage shows a failure to a person; status, code and headers stay those of
// resp. What keeps a record from being shown is never the look of a mismatch.
func (s *server) failurePage(r *http.Request, resp response, err error) response {
	f := web.Failure{
		Language: language(r), Code: string(resp.code), CodePath: "/errors/" + kebab(resp.code), Path: r.URL.EscapedPath(),
		RetryAfter: resp.header.Get("Retry-After"), NotFound: resp.status == http.StatusNotFound,
	}
	if spanish, ok := strings.CutPrefix(f.Path, "/en/integrity/"); ok {
		f.Translation = "/integrity/" + spanish
	} else if strings.HasPrefix(f.Path, "/integrity/") {
		f.Translation = "/en" + f.Path
	}
	var refused *domain.Error
	switch known := errors.As(err, &refused); {
	case resp.status == http.StatusTooManyRequests || resp.status == http.StatusServiceUnavailable || !known:
		f.Result = web.Unavailable
	case resp.code == domain.RecordNotFound:
		f.Result = web.NotFound
	}
	body, renderErr := s.site.Failure(f)
	if renderErr != nil {
		return resp
	}
	resp.failure, resp.raw, resp.contentType = nil, body, htmlType
	for name, values := range web.PageHeader() {
		resp.header[name] = values
	}
	return resp
}
