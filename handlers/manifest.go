package handlers

import (
	"encoding/hex"
	"errors"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

// validateManifest judges a manifest and stores nothing.
func (s *server) validateManifest(r *http.Request) (response, error) {
	c := callOf(r)
	m, warnings, err := domain.ReadManifest(&c.meter, c.body)
	if errors.Is(err, strictjson.ErrStopped) {
		return response{}, gone(r.Context())
	}
	if err != nil {
		return response{}, err
	}
	if warnings == nil {
		warnings = []domain.FieldError{}
	}
	sum := m.SHA256()
	return response{data: struct {
		Valid      bool                `json:"valid"`
		Files      int                 `json:"files"`
		TotalBytes int64               `json:"totalBytes"`
		SHA256     string              `json:"sha256"`
		Warnings   []domain.FieldError `json:"warnings"`
	}{true, len(m.Files), m.Total(), hex.EncodeToString(sum[:]), warnings}}, nil
}
