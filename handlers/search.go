package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// search lists the records of a hash, newest first, of companies granted to the key.
func (s *server) search(r *http.Request) (any, error) {
	q := newQuery(r)
	sum, limit, before := q.digest("sha256", strictjson.Required), q.limit(), cursorID(q, "after", domain.ParseID[domain.RecordID])
	if err := q.refusal(); err != nil {
		return nil, err
	}
	records, more, err := s.Store.Search(r.Context(), callOf(r).access, *sum, before, limit)
	next := nextCursor(q, records, func(record domain.Record) string { return record.ID.String() })
	return wire.Records{Records: each(records, s.viewRecord), NextCursor: next, HasMore: more}, err
}
