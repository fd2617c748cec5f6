package site

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/developers"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/web/reference"
	"integrityledger/schemas"
)

const schemaType = "application/schema+json"

// contract serves an OpenAPI document with this service's address and the operator's disclosure of its relationship
// with an origin system.
func (s *Site) contract(file string) edge.Handler {
	var disclosed []string
	for _, language := range []evidence.Language{evidence.English, evidence.Spanish} {
		general, own := evidence.Limits(language, ""), evidence.Limits(language, s.Relationship[language])
		disclosed = append(disclosed, general[len(general)-1], own[len(own)-1])
	}
	document := sync.OnceValues(func() ([]byte, error) { return schemas.OpenAPI(file, s.BaseURL, disclosed...) })
	return func(r *http.Request) (any, error) {
		raw, err := document()
		if err != nil {
			return nil, err
		}
		return s.document(r, raw, edge.JSONType)
	}
}

// schema serves a JSON Schema, test vectors or the releases.
func (s *Site) schema(r *http.Request) (any, error) {
	raw, err := schemas.Schema(edge.Variable(r, "name"), s.BaseURL)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return nil, domain.Refuse(domain.NotFound, "There is no schema of that name.")
	}
	if err != nil {
		return nil, err
	}
	if schemas.IsSchema(edge.Variable(r, "name")) {
		return s.document(r, raw, schemaType)
	}
	return s.document(r, raw, edge.JSONType)
}

// trustedKeys publishes the operator's trusted-keys file as the service has loaded it. Before relying on a key, a
// verifier must pin it through a channel it already trusts.
func (s *Site) trustedKeys(*http.Request) (any, error) {
	raw, err := s.PublishedKeys()
	return edge.Cacheable(raw, edge.JSONType), err
}

// developerFile serves a file that developers download.
func (s *Site) developerFile(r *http.Request) (any, error) {
	i := slices.IndexFunc(s.downloads, func(d developers.Download) bool { return d.Name == edge.Variable(r, "file") })
	if i < 0 {
		return s.program(r)
	}
	file := s.downloads[i]
	resp := edge.Cacheable(file.Body, file.ContentType)
	if strings.HasPrefix(file.ContentType, "text/") { // packages are served without compression
		var err error
		if resp, err = s.document(r, file.Body, file.ContentType); err != nil {
			return nil, err
		}
	}
	resp.Header.Set("Content-Disposition", `attachment; filename="`+file.Name+`"`)
	return resp, nil
}

// A download of the program takes a place, because it is large: a few in a process, two of a network (IPv6: /64).
const (
	programsAtOnce  = 8
	programPatience = 30 * time.Second
)

// openProgram opens the running program and makes the places of its downloads. Without a program that can be read,
// there are no downloads of it.
func (s *Site) openProgram() {
	s.programs = fair.NewSemaphore[netip.Prefix](fair.Limits{
		Most: programsAtOnce, Each: 2, Line: 2, Patience: programPatience, Closing: s.Closing,
	})
	var err error
	if s.running, err = developers.Running(); err != nil {
		s.running = developers.Program{}
		s.Log.Warn("the program cannot be downloaded from this process", "error", err)
	}
}

// program serves the running program, under its name.
func (s *Site) program(r *http.Request) (any, error) {
	p := s.running
	if p.Name == "" || edge.Variable(r, "file") != p.Name {
		return nil, domain.Refuse(domain.NotFound, "There is no download of that name.")
	}
	answer := edge.Response{
		ContentType: "application/octet-stream", Cache: edge.PublicMinutes, Tag: p.SHA256[:22], Header: http.Header{
			"Content-Disposition": {`attachment; filename="` + p.Name + `"`}, "Content-Length": {strconv.FormatInt(p.Size, 10)},
		},
	}
	if r.Method == http.MethodHead || answer.StatusFor(r) == http.StatusNotModified {
		answer.Empty = true
		return answer, nil
	}
	release, err := s.programs.Acquire(r.Context(), s.ClientNetwork(r), 1)
	if err != nil {
		return nil, domain.Unavailable("Other downloads of the program are in progress; send the request again later.")
	}
	edge.CallOf(r).Written = release
	answer.Pieces = p.Pieces()
	return answer, nil
}

// developerPage serves a page that is the same for every reader and does not change while the process runs.
func (s *Site) developerPage(r *http.Request) (any, error) {
	guides, err := s.guides()
	if err != nil {
		return nil, err
	}
	body, ok := guides.Pages[r.URL.Path]
	if !ok {
		return nil, domain.Refuse(domain.NotFound, "There is no such page.")
	}
	resp, err := s.document(r, body, edge.HTMLType)
	maps.Copy(resp.Header, web.PageHeader())
	return resp, err
}

// searchPage answers a search in the pages for developers, without a script.
func (s *Site) searchPage(r *http.Request) (any, error) {
	guides, err := s.guides()
	if err != nil {
		return nil, err
	}
	return publicPage(guides.Search(edge.Language(r), r.URL.Query().Get("q")))
}

// renderGuides renders the pages for developers from the contracts, downloads and plans of this service.
func (s *Site) renderGuides() (*web.Guides, error) {
	d := web.Developers{
		Version: developers.Version, Releases: edge.Must(schemas.Releases()), Manual: s.Manual,
		Codes: edge.Must(edge.ErrorCodes()),
	}
	for _, contract := range []struct{ address, file string }{
		{"/api/integrity-openapi", schemas.OpenAPIFile}, {"/api/openapi", schemas.CertificationOpenAPIFile},
	} {
		text, err := schemas.OpenAPI(contract.file, s.BaseURL)
		if err != nil {
			return nil, err
		}
		document, err := reference.Parse(text)
		if err != nil {
			return nil, err
		}
		d.Contracts = append(d.Contracts, web.Contract{Document: document, Address: contract.address})
	}
	d.Program = web.Download{Name: s.running.Name, Size: int(s.running.Size), SHA256: s.running.SHA256}
	for _, file := range s.downloads {
		if !file.Earlier {
			d.Downloads = append(
				d.Downloads, web.Download{Name: file.Name, Kind: file.Kind, Size: len(file.Body), SHA256: file.SHA256},
			)
		}
	}
	for _, name := range s.Store.Plans.Names() {
		if plan := s.Store.Plans[name]; name != domain.InternalPlan {
			d.Plans = append(d.Plans, web.Plan{Name: name, Plan: plan})
		}
	}
	slices.SortStableFunc(d.Plans, func(a, b web.Plan) int { return cmp.Compare(a.PerMinute, b.PerMinute) })
	return s.site.Developers(d)
}
