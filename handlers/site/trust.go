package site

import (
	"net/http"

	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

// trustPage shows what witnesses and timestamp authorities have signed. It needs no database for the keys and the
// operator's disclosure.
func (s *Site) trustPage(r *http.Request) (any, error) {
	var state wire.LogState
	var unknown bool
	resp, err := forReader(r, func() ([]byte, error) {
		view, err := s.Independence(r.Context(), edge.CallOf(r), struct{}{})
		if err != nil {
			return nil, err
		}
		state, unknown = view.State, view.KeySetState == wire.KeySetUnknown
		return s.site.Trust(edge.Language(r), view)
	})
	switch {
	case unknown:
		resp.Cache = edge.NoStore
	case state != "":
		resp.Cache = edge.PublicSeconds
	}
	return resp, err
}
