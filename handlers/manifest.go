package handlers

import (
	"encoding/hex"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

// readManifest judges a manifest that stands in a body, as it was written there.
func readManifest(v strictjson.Value, pointer string) (domain.Manifest, []domain.FieldError, error) {
	m, warnings, err := domain.ReadManifest(v.AppendJSON(nil))
	if refused := refusal(err); refused != nil && refused.Fields != nil {
		moved := *refused
		moved.Fields = within(pointer, refused.Fields)
		err = &moved
	}
	return m, within(pointer, warnings), err
}

// within puts the problems of a member that was read by itself where they belong.
func within(pointer string, problems []domain.FieldError) []domain.FieldError {
	moved := make([]domain.FieldError, len(problems))
	for i, p := range problems {
		p.Pointer = pointer + p.Pointer
		moved[i] = p
	}
	return moved
}

// validateManifest judges a manifest and stores nothing.
func (s *server) validateManifest(r *http.Request) (response, error) {
	if err := newQuery(r).refusal(); err != nil {
		return response{}, err
	}
	m, warnings, err := domain.ReadManifest(callOf(r).body)
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
