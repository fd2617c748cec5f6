package handlers

import (
	"net/http"

	"integrityledger/domain"
)

// developerFile serves a file for developers, to be saved and not shown.
func (s *server) developerFile(r *http.Request) (response, error) {
	file, ok := s.downloads.Find(variable(r, "file"))
	if !ok {
		return response{}, domain.Refuse(domain.NotFound, "There is no download of that name.")
	}
	resp := cacheable(r, file.Body)
	resp.contentType = file.ContentType
	resp.header.Set("Content-Disposition", `attachment; filename="`+file.Name+`"`)
	return resp, nil
}
