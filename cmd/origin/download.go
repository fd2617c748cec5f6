package origin

import (
	"bytes"
	"database/sql"
	"errors"
	"net/http"
)

// downloadPath leads to a document by its random token, which whoever has the
// document has too. The service's verification link is no such authorization.
const downloadPath = "/documents/"

// Handler serves the final bytes: a direct download, with no page in between.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+downloadPath+"{token}", func(w http.ResponseWriter, r *http.Request) {
		d, err := s.store.file(r.Context(), "d.token", r.PathValue("token"))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			http.NotFound(w, r)
			return
		case err != nil:
			http.Error(w, "The document cannot be given out.", http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/pdf")
		h.Set("Content-Disposition", `attachment; filename="`+d.reference+`.pdf"`)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "private, no-store")
		http.ServeContent(w, r, "", d.finalizedAt, bytes.NewReader(d.pdf))
	})
	return mux
}
