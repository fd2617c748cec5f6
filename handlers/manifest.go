package handlers

import (
	"encoding/hex"
	"errors"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// validateManifest judges a manifest and stores nothing.
func (s *server) validateManifest(r *http.Request) (any, error) {
	c := callOf(r)
	m, warnings, err := domain.ReadManifest(&c.meter, c.body)
	if errors.Is(err, strictjson.ErrStopped) {
		return nil, gone(r.Context())
	}
	if err != nil {
		return nil, err
	}
	if warnings == nil {
		warnings = []domain.FieldError{}
	}
	sum := m.SHA256()
	return wire.Manifest{
		Valid: true, Files: len(m.Files), TotalBytes: m.Total(), SHA256: hex.EncodeToString(sum[:]), Warnings: warnings,
	}, nil
}
