package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// search lists the records of a hash, newest first, of companies granted to the key.
func (s *server) search(r *http.Request) (response, error) {
	q := newQuery(r)
	text, given := q.text("sha256", strictjson.Required)
	sum, ok := domain.ParseSHA256(text)
	if given && !ok {
		q.problem("sha256", strictjson.CodeFormat, domain.SHA256Rule)
	}
	limit := int(q.integer("limit", 1, 1000, 100, strictjson.Optional))
	var before domain.RecordID
	q.cursor("after", func(text string) bool {
		var err error
		before, err = domain.ParseID[domain.RecordID](text)
		return err == nil
	})
	if err := q.refusal(); err != nil {
		return response{}, err
	}
	records, more, err := s.Store.Search(r.Context(), callOf(r).access, sum, before, limit)
	if err != nil {
		return response{}, err
	}
	var answer struct {
		Records    []wire.Record `json:"records"`
		NextCursor *string       `json:"nextCursor"`
		HasMore    bool          `json:"hasMore"`
	}
	answer.Records, answer.HasMore = make([]wire.Record, len(records)), more
	for i, record := range records {
		answer.Records[i] = s.viewRecord(record)
	}
	if len(records) > 0 {
		next := formatCursor(records[len(records)-1].ID.String())
		answer.NextCursor = &next
	} else if given := q.values.Get("after"); given != "" {
		answer.NextCursor = &given
	}
	return response{data: answer}, nil
}
