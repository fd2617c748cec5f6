package handlers

import (
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/handlers/developers"
)

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
