package handlers

import (
	"errors"
	"io/fs"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
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
