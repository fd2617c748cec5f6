package site

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// frontPage describes the service and asks for the link of a file.
func (s *Site) frontPage(r *http.Request) (any, error) {
	return forReader(r, func() ([]byte, error) { return s.site.Front(web.Front{Language: edge.Language(r)}) })
}

// find leads from the front page to the page that a person names by a link or a code. It compares a hash only if the
// person has given it in a step of its own: a message with a link and its hash would bring its own good result. Records
// are not searched by their hash, so a hash alone does not lead anywhere yet.
func (s *Site) find(r *http.Request) (any, error) {
	front := web.Front{Language: edge.Language(r)}
	if edge.FromElsewhere(r) {
		return edge.Page(s.site.Front(front))
	}
	front.Text = edge.Form(r).Get("text")
	mention := web.ReadMention(front.Text)
	if mention.PublicID == nil || mention.Several || s.foreign(r, mention.Host) {
		return s.stillWanted(front, mention)
	}
	apart := mention.Hashes > 0
	mention.SHA256 = web.ReadMention(edge.Form(r).Get("sha256")).SHA256
	if mention.Kind == "" {
		var err error
		if mention.Kind, err = s.kindOf(r.Context(), *mention.PublicID); err != nil {
			return nil, err
		}
	}
	if mention.SHA256 != nil {
		return s.compared(r, *mention.PublicID, mention.SHA256, web.Comparison{Kind: mention.Kind})
	}
	var query []string
	if front.Language == evidence.Spanish { // even if the browser prefers English
		query = append(query, web.Chosen)
	}
	if apart {
		query = append(query, web.HashApart)
	}
	path := web.Path(front.Language, mention.Kind.Path(mention.PublicID.String()))
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	return edge.Redirect(path), nil
}

// foreign reports whether a link leads to another service, which knows what the link means. This service has an address
// of its own, and the one at which the person reached it.
func (s *Site) foreign(r *http.Request, host string) bool {
	own, err := url.Parse(s.BaseURL)
	return err == nil && host != "" && host != own.Host && host != own.Hostname() && host != strings.ToLower(r.Host)
}

// stillWanted asks for a link, keeping the hash if the person has given one. If the link leads to another service, the
// person may ask here for the same code.
func (s *Site) stillWanted(front web.Front, mention web.Mention) (edge.Response, error) {
	front.Wanted = web.WantsAny
	switch {
	case mention.Several:
		front.Wanted = web.WantsOne
	case mention.PublicID != nil:
		front.Wanted, front.Host, front.Text = web.WantsHere, mention.Host, mention.PublicID.String()
	case mention.Broken:
		front.Wanted = web.WantsCode
	case mention.Hashes > 1:
		front.Wanted = web.WantsHash
	case mention.SHA256 != nil:
		front.Wanted, front.Text, front.SHA256 = web.WantsLink, "", hex.EncodeToString(mention.SHA256[:])
	}
	resp, err := edge.Page(s.site.Front(front))
	if front.Nothing() {
		resp.Status, resp.Code = http.StatusUnprocessableEntity, domain.InvalidData
	}
	return resp, err
}

// kindOf returns the kind of a public id, which is a record's unless there is a certificate.
func (s *Site) kindOf(ctx context.Context, id domain.PublicID) (web.Kind, error) {
	_, err := s.Store.AnyCertificate(ctx, id)
	switch refused := edge.Refusal(err); {
	case err == nil:
		return web.Certificate, nil
	case refused != nil && refused.Code == domain.CertificateNotFound:
		return web.Record, nil
	default:
		return "", err
	}
}

// verifyPage verifies evidence offline, in the browser.
func (s *Site) verifyPage(r *http.Request) (any, error) {
	return forReader(r, func() ([]byte, error) { return s.site.Verify(edge.Language(r)) })
}

// comparisonPage is the page behind a public link. It compares nothing that a query or a form of another site names, so
// that no link can lead a person to a prepared result. It compares a hash only if a person pasted it into the form, and
// then the result does not claim that a file was compared.
func (s *Site) comparisonPage(kind web.Kind) edge.Handler {
	return func(r *http.Request) (any, error) {
		if resp, other := inReadersLanguage(r); other {
			return resp, nil
		}
		id, err := pageID(r, kind)
		if err != nil {
			return edge.Elsewhere(r, err)
		}
		shown := web.Comparison{Kind: kind, Apart: asks(r, web.HashApart)}
		var hash *[32]byte
		if r.Method == http.MethodPost && !edge.FromElsewhere(r) {
			var text string
			if hash, text = pasted(edge.Form(r)); hash == nil {
				shown.HashInvalid, shown.HashText, shown.Several = true, text, web.ReadMention(text).Hashes > 1
			}
		}
		return s.compared(r, id, hash, shown)
	}
}

// compared completes a page and compares the hash, if a person has pasted one.
func (s *Site) compared(
	r *http.Request, id domain.PublicID, hash *[32]byte, shown web.Comparison,
) (edge.Response, error) {
	shown.Language, shown.PublicID, shown.Pasted = edge.Language(r), id.String(), hash != nil
	shown.URL = s.BaseURL + shown.Kind.Path(shown.PublicID)
	show := s.showRecord
	if shown.Kind == web.Certificate {
		show = s.showCertificate
	}
	if err := show(r.Context(), id, hash, &shown); err != nil {
		return edge.Response{}, err
	}
	resp, err := edge.Page(s.site.Comparison(shown))
	resp.Header.Set("Vary", "Accept-Language")
	if shown.HashInvalid {
		resp.Status, resp.Code = http.StatusUnprocessableEntity, domain.InvalidData
	}
	return resp, err
}

func pageID(r *http.Request, kind web.Kind) (domain.PublicID, error) {
	id, ok := domain.ParsePublicID(edge.Variable(r, "publicId"))
	switch {
	case ok:
		return id, nil
	case kind == web.Certificate:
		return id, domain.ErrUnknownCertificate
	default:
		return id, query.ErrUnknownPublicID
	}
}

// showRecord adds the comparison with a record, and the details of a validated record.
func (s *Site) showRecord(ctx context.Context, id domain.PublicID, sum *[32]byte, shown *web.Comparison) error {
	view, err := s.Compare(ctx, edge.CallIn(ctx), action.ComparisonQuestion{PublicID: id, SHA256: sum})
	if err != nil {
		return err
	}
	if view.Checks.Signature != nil {
		shown.Values.Signature = string(*view.Checks.Signature)
	}
	if view.Checks.VersionState != nil {
		shown.Values.State = string(*view.Checks.VersionState)
	}
	shown.Result, shown.Released = string(view.Result), view.Released
	if view.Alias != nil {
		shown.AliasOf = view.Alias.PublicID
	}
	pastedResult(shown, view.Checks.FileMatch)
	if p := view.Publisher; p != nil {
		for _, d := range p.Domains {
			at, _ := time.Parse(time.RFC3339, d.CheckedAt) // the service wrote it, so it is valid
			shown.Publisher.Domains = append(shown.Publisher.Domains, web.PublisherDomain{Domain: d.Domain, CheckedAt: at})
		}
		if p.Name != nil {
			shown.Publisher.Name = *p.Name
		}
	}
	if view.ReceivedAt == nil {
		return nil
	}
	shown.Vouching, shown.Log = web.Vouching(s.Vouchers(ctx, id)), s.Transparency != nil
	return s.showSigned(shown, *view.ReceivedAt, *view.KeyID)
}

// certificateResults are the results that a page shows for the reasons of a certificate's comparison, if the names
// differ.
var certificateResults = map[wire.VerificationReason]string{
	wire.ReasonMatch: web.MatchCurrent, wire.ReasonReplaced: web.MatchHistorical, wire.ReasonRevoked: web.RecordRevoked,
}

// showCertificate adds the comparison with a certificate, and the published texts of a validated certificate. It does
// not show the state of a certificate whose signature is invalid.
func (s *Site) showCertificate(ctx context.Context, id domain.PublicID, sum *[32]byte, shown *web.Comparison) error {
	stored, err := s.Store.AnyCertificate(ctx, id)
	if err != nil {
		return err
	}
	view, payload := s.Certify(stored, sum)
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
	return s.showSigned(shown, evidence.FormatTime(payload.IssuedAt), stored.KeyID)
}

// pastedResult shows the comparison of a pasted hash, if there was one. The server has seen no file, so the result must
// not look like the comparison of a file.
func pastedResult(shown *web.Comparison, match *bool) {
	switch {
	case match == nil:
	case *match:
		shown.Values.File = "hash-match"
	default:
		shown.Values.File = "hash-mismatch"
	}
}

// showSigned adds the time and the key of the signature.
func (s *Site) showSigned(shown *web.Comparison, at, keyID string) (err error) {
	key, _ := s.Keys().Trusted.Lookup(keyID)
	shown.KeyID, shown.FingerprintSHA256 = key.KeyID, key.FingerprintSHA256
	shown.At, err = time.Parse(time.RFC3339, at)
	return err
}

// pasted reads the form: the hash, or the text if it has none.
func pasted(values url.Values) (sum *[32]byte, text string) {
	if len(values["sha256"]) != 1 {
		return nil, ""
	}
	text = values.Get("sha256")
	return web.ReadMention(text).SHA256, text
}

// qrCode draws the link of a page, whether or not the page exists.
func (s *Site) qrCode(kind web.Kind) edge.Handler {
	return func(r *http.Request) (any, error) {
		id, err := pageID(r, kind)
		if err != nil {
			return nil, err
		}
		code, err := web.DrawQR(s.BaseURL + kind.Path(id.String()))
		if err != nil {
			return nil, err
		}
		return edge.Cacheable(code.SVG(), "image/svg+xml"), nil
	}
}

// asset serves a file that pages load. It may be cached for good: its name changes with its bytes.
func (s *Site) asset(r *http.Request) (any, error) {
	asset, ok := s.site.Asset(edge.Variable(r, "name"))
	if !ok {
		return nil, domain.Refuse(domain.NotFound, "There is no such file.")
	}
	return edge.Response{
		Raw: asset.Body, ContentType: asset.ContentType, Cache: edge.PublicForever,
		Header: http.Header{"Content-Security-Policy": {asset.Policy}},
	}, nil
}

// FailurePage shows a failure to a person. Status, code and headers of resp remain. A failure to show a record must
// never look like a mismatch.
func (s *Site) FailurePage(r *http.Request, resp edge.Response, err error) edge.Response {
	f := web.Failure{
		Language: edge.Language(r), Code: resp.Code, Path: r.URL.EscapedPath(),
		RetryAfter: resp.Header.Get("Retry-After"), NotFound: resp.Status == http.StatusNotFound,
	}
	if f.NotFound && f.Language == evidence.Spanish && !chosen(r) { // a missing page has no language of its own
		f.Language = edge.PreferredLanguage(r.Header.Values("Accept-Language"), f.Language)
		resp.Header.Set("Vary", "Accept-Language")
	}
	for _, kind := range []web.Kind{web.Record, web.Certificate} {
		if path := strings.TrimPrefix(f.Path, "/en"); strings.HasPrefix(path, kind.Path("")) {
			f.Kind, f.Translation = kind, web.Path(web.Other(f.Language), path)
			if f.Language == evidence.Spanish { // even if the browser prefers English
				f.Path += "?" + web.Chosen
			} else {
				f.Translation += "?" + web.Chosen
			}
		}
	}
	switch {
	case resp.Status == http.StatusTooManyRequests || resp.Status == http.StatusServiceUnavailable ||
		edge.Refusal(err) == nil:
		f.Result = web.Unavailable
	case resp.Code == domain.RecordNotFound || resp.Code == domain.CertificateNotFound:
		f.Result = web.NotFound
	}
	body, renderErr := s.site.Failure(f)
	if renderErr != nil {
		return resp
	}
	resp.Failure, resp.Raw, resp.ContentType = nil, body, edge.HTMLType
	maps.Copy(resp.Header, web.PageHeader())
	return resp
}

// publicPage answers a page that is the same for every reader. Anyone may cache it for five minutes.
func publicPage(body []byte, err error) (edge.Response, error) {
	resp, err := edge.Page(body, err)
	resp.Cache = edge.PublicMinutes
	return resp, err
}

// inBothLanguages answers a public page with both languages, starting with the one that the browser prefers.
func inBothLanguages(body []byte, err error) (edge.Response, error) {
	resp, err := publicPage(body, err)
	resp.Header.Set("Vary", "Accept-Language")
	return resp, err
}

// errorPage explains an error code. The type of an error is the address of this page.
func (s *Site) errorPage(r *http.Request) (any, error) {
	code, ok := s.Codes[domain.Code(strings.ReplaceAll(strings.ToUpper(edge.Variable(r, "code")), "-", "_"))]
	switch {
	case !ok:
		return nil, domain.Refuse(domain.NotFound, "There is no error with that name.")
	case code.Address() != r.URL.Path: // the canonical spelling of the code
		return edge.Moved(r, code.Address()), nil
	}
	return inBothLanguages(s.site.Code(code, edge.PreferredLanguage(r.Header.Values("Accept-Language"), evidence.English)))
}

// inReadersLanguage redirects a reader from a link, which is in Spanish, to the English page if the browser prefers
// English. A reader who has chosen Spanish there stays.
func inReadersLanguage(r *http.Request) (resp edge.Response, elsewhere bool) {
	if r.Method == http.MethodPost || edge.Language(r) == evidence.English || chosen(r) {
		return resp, false
	}
	elsewhere = edge.PreferredLanguage(r.Header.Values("Accept-Language"), evidence.Spanish) == evidence.English
	to := web.Path(evidence.English, strings.TrimSuffix(r.URL.EscapedPath(), "/"))
	return edge.Response{
		Status: http.StatusFound, Empty: true, Header: http.Header{"Location": {to}, "Vary": {"Accept-Language"}},
	}, elsewhere
}

// forReader answers a public page, or redirects to it in the reader's language. A reader who comes from another page of
// this site has its language.
func forReader(r *http.Request, render func() ([]byte, error)) (edge.Response, error) {
	resp, elsewhere := inReadersLanguage(r)
	var err error
	if !elsewhere || r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		resp, err = publicPage(render())
	}
	resp.Header.Set("Vary", "Accept-Language, Sec-Fetch-Site")
	return resp, err
}

// chosen reports whether the reader has chosen Spanish.
func chosen(r *http.Request) bool { return asks(r, web.Chosen) }

// asks reports whether the query has this part.
func asks(r *http.Request, part string) bool {
	return slices.Contains(strings.Split(r.URL.RawQuery, "&"), part)
}

// robots excludes the API and personal pages from search engines.
const robots = "User-agent: *\nAllow: /api/integrity-openapi\nAllow: /api/openapi\nDisallow: /api/\nDisallow: " +
	"/console\nDisallow: /en/console\nDisallow: /oauth/\nDisallow: /en/oauth/\n"

// plainText answers a text that anyone may cache for five minutes.
func plainText(text string) edge.Response {
	return edge.Cacheable([]byte(text), "text/plain; charset=utf-8")
}

func (s *Site) robots(*http.Request) (any, error) { return plainText(robots), nil }

// securityText publishes the contact for reports of vulnerabilities (RFC 9116), if the operator has set one.
func (s *Site) securityText(*http.Request) (any, error) {
	if s.SecurityContact == "" {
		return nil, domain.Refuse(
			domain.NotFound, "The operator of this service has not published a contact for security reports.",
		)
	}
	var b strings.Builder
	for contact := range strings.SplitSeq(s.SecurityContact, ",") {
		fmt.Fprintf(&b, "Contact: %s\n", strings.TrimSpace(contact))
	}
	expires := s.Now().UTC().Truncate(24*time.Hour).AddDate(0, 6, 0) // the text is as current as the service's settings
	fmt.Fprintf(
		&b, "Expires: %s\nPreferred-Languages: es, en\nCanonical: %s%s\n", expires.Format(time.RFC3339), s.BaseURL,
		securityRoute,
	)
	return plainText(b.String()), nil
}

// favicon serves the icon for clients that read no page.
func (s *Site) favicon(*http.Request) (any, error) {
	picture, err := web.Icon()
	return edge.Cacheable(picture, "image/x-icon"), err
}

// limitsPage shows the fixed text on the limits of the evidence (contract section 10).
func (s *Site) limitsPage(r *http.Request) (any, error) {
	return inBothLanguages(s.site.Limits(edge.PreferredLanguage(r.Header.Values("Accept-Language"), evidence.English)))
}

// securityRoute is the path that RFC 9116 defines.
const securityRoute = "/.well-known/security.txt"

// readiness reports whether the service can take registrations.
func (s *Site) readiness(r *http.Request) (any, error) {
	return wire.Health{Status: "ready"}, s.Readiness(r.Context())
}
