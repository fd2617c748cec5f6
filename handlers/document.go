package handlers

import (
	"errors"
	"io/fs"
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/developers"
	"integrityledger/schemas"
)

const schemaType = "application/schema+json"

// contract serves an OpenAPI document of this service: its own address, and the operator's words on its relationship
// with an origin system.
func (s *server) contract(file string) handler {
	var disclosed []string
	for _, language := range []evidence.Language{evidence.English, evidence.Spanish} {
		general, own := evidence.Limits(language, ""), evidence.Limits(language, s.Relationship[language])
		disclosed = append(disclosed, general[len(general)-1], own[len(own)-1])
	}
	return func(r *http.Request) (any, error) {
		raw, err := schemas.OpenAPI(file, s.BaseURL, disclosed...)
		return cacheable(r, raw), err
	}
}

// schema serves a JSON Schema, or test vectors.
func (s *server) schema(r *http.Request) (any, error) {
	raw, err := schemas.Schema(variable(r, "name"), s.BaseURL)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return nil, domain.Refuse(domain.NotFound, "There is no schema of that name.")
	}
	if err != nil {
		return nil, err
	}
	resp := cacheable(r, raw)
	if name := variable(r, "name"); name != schemas.VectorsFile && name != schemas.GeneratedAtFile {
		resp.contentType = schemaType
	}
	return resp, nil
}

// trustedKeys publishes the operator's file as the service knows it. A key from here must be pinned through a trusted
// channel before anything is believed of it.
func (s *server) trustedKeys(r *http.Request) (any, error) {
	trusted := s.Keys().Trusted
	if trusted == nil {
		return nil, domain.Unavailable("The service has no trusted-keys file at the moment; send the request again later.")
	}
	published, err := trusted.Published()
	if err != nil {
		return nil, err
	}
	raw, err := published.Marshal()
	return cacheable(r, raw), err
}

// developerFile serves a file for developers, to be saved and not shown.
func (s *server) developerFile(r *http.Request) (any, error) {
	i := slices.IndexFunc(s.downloads, func(d developers.Download) bool { return d.Name == variable(r, "file") })
	if i < 0 {
		return response{}, domain.Refuse(domain.NotFound, "There is no download of that name.")
	}
	file := s.downloads[i]
	resp := cacheable(r, file.Body)
	resp.contentType = file.ContentType
	resp.header.Set("Content-Disposition", `attachment; filename="`+file.Name+`"`)
	return resp, nil
}
