package handlers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	xlanguage "golang.org/x/text/language"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// language is what a path says: Spanish has no prefix.
func language(r *http.Request) evidence.Language {
	if r.URL.Path == "/en" || strings.HasPrefix(r.URL.Path, "/en/") {
		return evidence.English
	}
	return evidence.Spanish
}

// frontPage says what the service is.
func (s *server) frontPage(r *http.Request) (any, error) {
	return publicPage(s.site.Front(language(r)))
}

// verifyPage verifies evidence offline, in the browser.
func (s *server) verifyPage(r *http.Request) (any, error) {
	return publicPage(s.site.Verify(language(r)))
}

// comparisonPage is the page behind a public link. It ignores the query and the forms of other sites, so that nobody
// can lead a person to a result; a hash is compared only where somebody has pasted it into the form, and then no file
// was.
func (s *server) comparisonPage(kind web.Kind) handler {
	show := s.showRecord
	if kind == web.Certificate {
		show = s.showCertificate
	}
	return func(r *http.Request) (any, error) {
		if resp, other := inReadersLanguage(r); other {
			return resp, nil
		}
		id, err := pageID(r, kind)
		if err != nil {
			return elsewhere(r, err)
		}
		shown := web.Comparison{Kind: kind, Language: language(r), PublicID: id.String(), URL: s.BaseURL + kind.Path(id.String())}
		var hash *[32]byte
		if r.Method == http.MethodPost && !fromElsewhere(r) {
			if sum, text, ok := pasted(form(r)); ok {
				hash, shown.Pasted = &sum, true
			} else {
				shown.HashInvalid, shown.HashText = true, text
			}
		}
		if err := show(r.Context(), id, hash, &shown); err != nil {
			return response{}, err
		}
		resp, err := page(s.site.Comparison(shown))
		resp.header.Set("Vary", "Accept-Language")
		if shown.HashInvalid {
			resp.status, resp.code = http.StatusUnprocessableEntity, domain.InvalidData
		}
		return resp, err
	}
}

// elsewhere leads from a link as it was typed, scanned or mailed to the page of that public id. Any other path is refused
// with err.
func elsewhere(r *http.Request, err error) (response, error) {
	path := domain.StraightenLink(r.URL.Path)
	for _, kind := range []web.Kind{web.Record, web.Certificate} {
		for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
			id, found := strings.CutPrefix(path, web.Path(language, kind.Path("")))
			if _, ok := domain.ParsePublicID(id); found && ok && path != r.URL.Path && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
				return moved(r, path), nil
			}
		}
	}
	return response{}, err
}

func pageID(r *http.Request, kind web.Kind) (domain.PublicID, error) {
	id, ok := domain.ParsePublicID(variable(r, "publicId"))
	switch {
	case ok:
		return id, nil
	case kind == web.Certificate:
		return id, domain.ErrUnknownCertificate
	default:
		return id, query.ErrUnknownPublicID
	}
}

// fromElsewhere is true of requests which a page of another site has made, as the browser says (Fetch Metadata). Origin
// cannot tell: with the policy no-referrer it is "null" on our own form.
func fromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// showRecord adds the comparison with a record, and what is shown of a validated one.
func (s *server) showRecord(ctx context.Context, id domain.PublicID, sum *[32]byte, shown *web.Comparison) error {
	view, err := s.comparison(ctx, id, sum)
	if err != nil {
		return err
	}
	if view.Checks.Signature != nil {
		shown.Values.Signature = string(*view.Checks.Signature)
	}
	if view.Checks.VersionState != nil {
		shown.Values.State = string(*view.Checks.VersionState)
	}
	shown.Result = string(view.Result)
	pastedResult(shown, view.Checks.FileMatch)
	if view.ReceivedAt == nil {
		return nil
	}
	return s.showSigned(shown, *view.ReceivedAt, *view.KeyID)
}

// certificateResults are the results under whose names a page shows the reasons of a certificate's comparison, where the
// names differ.
var certificateResults = map[wire.VerificationReason]string{
	wire.ReasonMatch: web.MatchCurrent, wire.ReasonReplaced: web.MatchHistorical, wire.ReasonRevoked: web.RecordRevoked,
}

// showCertificate adds the comparison with a certificate, and what was authorized for publication in a validated one.
// The state of any other is not shown.
func (s *server) showCertificate(ctx context.Context, id domain.PublicID, sum *[32]byte, shown *web.Comparison) error {
	stored, err := s.Store.AnyCertificate(ctx, id)
	if err != nil {
		return err
	}
	view, payload := s.certify(stored, sum)
	shown.Result = cmp.Or(certificateResults[view.Reason], string(view.Reason))
	if !view.SignatureValid {
		shown.Values.Signature = string(evidence.Invalid)
		return nil
	}
	shown.Values.Signature, shown.Values.State = string(evidence.Valid), string(view.CertificateStatus)
	pastedResult(shown, view.HashMatches)
	if payload.Title != nil {
		shown.CertifiedTitle = *payload.Title
	}
	if payload.OrganizationName != nil {
		shown.OrganizationName = *payload.OrganizationName
	}
	return s.showSigned(shown, payload.IssuedAt, stored.KeyID)
}

// pastedResult says that a pasted hash was compared, where one was: the server has seen no file, so no result that it
// shows is that of one.
func pastedResult(shown *web.Comparison, match *bool) {
	switch {
	case match == nil:
	case *match:
		shown.Values.File = "hash-match"
	default:
		shown.Values.File = "hash-mismatch"
	}
}

// showSigned adds when, and with which key, what was validated was signed.
func (s *server) showSigned(shown *web.Comparison, at, keyID string) (err error) {
	key, _ := s.Keys().Trusted.Lookup(keyID)
	shown.KeyID, shown.FingerprintSHA256 = key.KeyID, key.FingerprintSHA256
	shown.At, err = time.Parse(time.RFC3339, at)
	return err
}

// pasted reads the form. Spaces round a hash come from copying.
func pasted(values url.Values) (sum [32]byte, text string, ok bool) {
	if len(values["sha256"]) != 1 {
		return sum, "", false
	}
	text = strings.TrimSpace(values.Get("sha256"))
	sum, ok = domain.ParseSHA256(text)
	return sum, text, ok
}

// qrCode draws the link of a page. It says nothing about whether there is anything under it.
func (s *server) qrCode(kind web.Kind) handler {
	return func(r *http.Request) (any, error) {
		id, err := pageID(r, kind)
		if err != nil {
			return response{}, err
		}
		image, err := web.QR(s.BaseURL + kind.Path(id.String()))
		if err != nil {
			return response{}, err
		}
		resp := cacheable(r, image)
		resp.contentType = "image/svg+xml"
		return resp, nil
	}
}

// asset serves what pages load, for ever: its name changes with its bytes.
func (s *server) asset(r *http.Request) (any, error) {
	asset, ok := s.site.Asset(variable(r, "name"))
	if !ok {
		return nil, domain.Refuse(domain.NotFound, "There is no such file.")
	}
	return response{
		raw: asset.Body, contentType: asset.ContentType, cache: publicForever,
		header: http.Header{"Content-Security-Policy": {asset.Policy}},
	}, nil
}

// wantsPage is true of requests which a person's browser has made for a page.
func (rt route) wantsPage(r *http.Request) bool {
	page := rt.policy.answer == asPage && rt.methods != nil || rt.methods == nil && !strings.HasPrefix(r.URL.Path, "/api/")
	return page && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// failurePage shows a failure to a person; status, code and headers stay those of resp. What keeps a record from being
// shown is never the look of a mismatch.
func (s *server) failurePage(r *http.Request, resp response, err error) response {
	f := web.Failure{
		Language: language(r), Code: resp.code, Path: r.URL.EscapedPath(),
		RetryAfter: resp.header.Get("Retry-After"), NotFound: resp.status == http.StatusNotFound,
	}
	if f.NotFound && f.Language == evidence.Spanish && !chosen(r) { // what is not there has no language of its own
		f.Language = readersLanguage(r, f.Language)
		resp.header.Set("Vary", "Accept-Language")
	}
	for _, kind := range []web.Kind{web.Record, web.Certificate} {
		if path := strings.TrimPrefix(f.Path, "/en"); strings.HasPrefix(path, kind.Path("")) {
			f.Kind, f.Translation = kind, web.Path(web.Other(f.Language), path)
			if f.Language == evidence.Spanish { // also for a person whose browser prefers English
				f.Path += "?" + web.Chosen
			} else {
				f.Translation += "?" + web.Chosen
			}
		}
	}
	switch {
	case resp.status == http.StatusTooManyRequests || resp.status == http.StatusServiceUnavailable || refusal(err) == nil:
		f.Result = web.Unavailable
	case resp.code == domain.RecordNotFound || resp.code == domain.CertificateNotFound:
		f.Result = web.NotFound
	}
	body, renderErr := s.site.Failure(f)
	if renderErr != nil {
		return resp
	}
	resp.failure, resp.raw, resp.contentType = nil, body, htmlType
	maps.Copy(resp.header, web.PageHeader())
	return resp
}

// limitPage says in the console which limit was reached and, if time helps, until when; nil where none was.
func (s *server) limitPage(r *http.Request, resp response, err error) *response {
	refused := refusal(err)
	if refused == nil || refused.Limit == nil || callOf(r).session == nil {
		return nil
	}
	shown := web.Limit{Console: s.frameOf(r, refused.Limit.Name+"-limit"), Most: refused.Limit.Most}
	if refused.RetryAfter > 0 {
		shown.Until = new(s.Now().Add(refused.RetryAfter).Round(time.Second))
	}
	page, err := consolePageOf(s.site.Limit(shown))
	if err != nil {
		return &resp
	}
	resp.failure, resp.raw, resp.contentType = nil, page.raw, page.contentType
	maps.Copy(resp.header, page.header)
	return &resp
}

const htmlType = "text/html; charset=utf-8"

func page(body []byte, err error) (response, error) {
	return response{raw: body, contentType: htmlType, header: web.PageHeader()}, err
}

// publicPage is a page that is the same for everybody: anyone may keep it for five minutes.
func publicPage(body []byte, err error) (response, error) {
	resp, err := page(body, err)
	resp.cache = publicMinutes
	return resp, err
}

// inBothLanguages is a public page that begins in the one that the browser prefers.
func inBothLanguages(body []byte, err error) (response, error) {
	resp, err := publicPage(body, err)
	resp.header.Set("Vary", "Accept-Language")
	return resp, err
}

// errorPage explains a code: it is where the type of an error leads.
func (s *server) errorPage(r *http.Request) (any, error) {
	code, ok := s.codes[domain.Code(strings.ReplaceAll(strings.ToUpper(variable(r, "code")), "-", "_"))]
	switch {
	case !ok:
		return nil, domain.Refuse(domain.NotFound, "There is no error with that name.")
	case code.Address() != r.URL.Path: // the code as answers write it
		return moved(r, code.Address()), nil
	}
	return inBothLanguages(s.site.Code(code, readersLanguage(r, evidence.English)))
}

// moved leads to the path under which a page stands, with the query of the request.
func moved(r *http.Request, path string) response {
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	return response{status: http.StatusPermanentRedirect, empty: true, cache: publicMinutes, header: http.Header{"Location": {path}}}
}

// withoutSlash leads from the address of a page with a slash after it, written as %2F perhaps, to the page.
func (s *server) withoutSlash(r *http.Request) (any, error) {
	page := url.URL{Path: strings.TrimSuffix(r.URL.Path, "/")}
	return moved(r, page.EscapedPath()), nil
}

// inReadersLanguage leads whoever follows a link, which is in Spanish, to the page in English where their browser prefers
// that. A person who has chosen Spanish there stays.
func inReadersLanguage(r *http.Request) (resp response, elsewhere bool) {
	if r.Method == http.MethodPost || language(r) == evidence.English || chosen(r) {
		return resp, false
	}
	elsewhere = readersLanguage(r, evidence.Spanish) == evidence.English
	return response{status: http.StatusFound, empty: true, header: http.Header{"Location": {web.Path(evidence.English, r.URL.EscapedPath())}, "Vary": {"Accept-Language"}}}, elsewhere
}

// chosen is true of a reader who has chosen Spanish.
func chosen(r *http.Request) bool {
	return slices.Contains(strings.Split(r.URL.RawQuery, "&"), web.Chosen)
}

// maxLanguages bounds, in bytes, the Accept-Language that is judged; a longer one prefers nothing.
const maxLanguages = 500

// readersLanguage is the one that the browser prefers, and English for a reader of other languages only. A browser that
// names no language, as * does not, gets the other.
func readersLanguage(r *http.Request, other evidence.Language) evidence.Language {
	preferred := strings.Join(r.Header.Values("Accept-Language"), ",")
	if len(preferred) > maxLanguages {
		return other
	}
	wanted, _, _ := xlanguage.ParseAcceptLanguage(preferred)
	wanted = slices.DeleteFunc(wanted, func(tag xlanguage.Tag) bool { return tag == anyLanguage })
	switch _, i, sure := ownLanguages.Match(wanted...); {
	case len(wanted) == 0:
		return other
	case sure == xlanguage.No:
		return evidence.English
	default:
		return []evidence.Language{evidence.Spanish, evidence.English}[i]
	}
}

var anyLanguage = xlanguage.MustParse("mul") // what * is read as

var ownLanguages = xlanguage.NewMatcher([]xlanguage.Tag{xlanguage.Spanish, xlanguage.English})

// robots says what is not for those that list pages: what answers programs, and what is of one person.
const robots = "User-agent: *\nAllow: /api/integrity-openapi\nAllow: /api/openapi\nDisallow: /api/\nDisallow: /console\nDisallow: /en/console\nDisallow: /oauth/\nDisallow: /en/oauth/\n"

// plainText is a text that anyone may keep for five minutes.
func plainText(r *http.Request, text string) (any, error) {
	resp := cacheable(r, []byte(text))
	resp.contentType = "text/plain; charset=utf-8"
	return resp, nil
}

func (s *server) robots(r *http.Request) (any, error) { return plainText(r, robots) }

// securityText says where to write of a weakness (RFC 9116), where the operator has said so.
func (s *server) securityText(r *http.Request) (any, error) {
	if s.SecurityContact == "" {
		return nil, domain.Refuse(domain.NotFound, "The operator of this service has not said where to write of a weakness.")
	}
	var b strings.Builder
	for contact := range strings.SplitSeq(s.SecurityContact, ",") {
		fmt.Fprintf(&b, "Contact: %s\n", strings.TrimSpace(contact))
	}
	expires := s.Now().UTC().Truncate(24*time.Hour).AddDate(0, 6, 0) // the text is as true as the service's settings
	fmt.Fprintf(&b, "Expires: %s\nPreferred-Languages: es, en\nCanonical: %s%s\n", expires.Format(time.RFC3339), s.BaseURL, securityRoute)
	return plainText(r, b.String())
}

// favicon is the picture for those that read no page.
func (s *server) favicon(r *http.Request) (any, error) {
	picture, err := web.Icon()
	resp := cacheable(r, picture)
	resp.contentType = "image/x-icon"
	return resp, err
}

// limitsPage shows the fixed text on what is and is not proven (contract section 10).
func (s *server) limitsPage(r *http.Request) (any, error) {
	return inBothLanguages(s.site.Limits(readersLanguage(r, evidence.English)))
}
