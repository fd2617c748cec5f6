package handlers

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// idempotencyHeader is that of draft-ietf-httpapi-idempotency-key-header.
const idempotencyHeader = "Idempotency-Key"

// prepared is a command that is ready to be executed, and what makes the answer of its outcome.
type prepared func() (command domain.Command, render func() response, err error)

// once executes what prepare makes under the request's Idempotency-Key, where it has one: a repetition of a finished
// request gets its answer, and the answer of this one is stored in the transaction of its events. content is what was
// parsed of the request; other content under the same key is refused.
func (s *server) once(r *http.Request, content any, prepare prepared) (any, error) {
	claim, known, err := s.claim(r, content)
	if err != nil {
		return nil, err
	}
	if known != nil {
		if err := s.judgeAgain(r); err != nil {
			return nil, err
		}
		return replayed(known.Status, known.Body)
	}
	command, render, err := prepare()
	var resp response
	stored := false
	if err == nil && claim != nil {
		command = &domain.Idempotent{Command: command, Claim: *claim, Render: func() (int, []byte, error) {
			resp, stored = render(), true
			body, err := encode(resp.data)
			return resp.statusCode(), body, err
		}}
	}
	if err == nil {
		err = s.execute(r.Context(), command)
	}
	if err != nil { // nothing of resp may be read: the command may still be under way
		if claim != nil {
			s.finishIdempotent(r, *claim, response{}, err)
		}
		return nil, err
	}
	if !stored {
		if resp = render(); claim != nil {
			s.finishIdempotent(r, *claim, resp, nil)
		}
	}
	return resp, nil
}

// claim takes the request's Idempotency-Key, nil without one, or finds the answer of a finished request under it.
func (s *server) claim(r *http.Request, content any) (*domain.Claim, *query.KnownAnswer, error) {
	key, err := idempotencyKey(r)
	if err != nil || key == "" {
		return nil, nil, err
	}
	c := callOf(r)
	claim := domain.Claim{Organization: c.access.Organization, Caller: c.access.Actor(), Key: key,
		Route: r.Method + " " + c.template}
	rand.Read(claim.Token[:])
	parsed, err := json.Marshal([]any{r.URL.Path, content}) // the path, and the content in one encoding
	if err != nil {
		return nil, nil, fmt.Errorf("fingerprint of a request: %w", err)
	}
	fingerprint := sha256.Sum256(parsed)
	known, err := s.Store.Claim(r.Context(), claim, fingerprint[:], s.Now())
	return &claim, known, err
}

// finishIdempotent ends a claim whose request made no event: the answer is stored where the same request would get it
// again, else the claim is given up.
func (s *server) finishIdempotent(r *http.Request, claim domain.Claim, resp response, failed error) {
	answer := domain.StoredAnswer{Claim: claim, Status: resp.statusCode()}
	body := resp.data
	if failed != nil {
		refused, _, explained := s.explain(failed)
		if explained.Status != http.StatusNotFound && explained.Status != http.StatusConflict || refused.Code == domain.RequestInProgress {
			if err := s.Store.Release(r.Context(), claim); err != nil {
				s.Log.WarnContext(r.Context(), "an idempotency key stays claimed until its lease ends", "requestId", callOf(r).requestID, "error", err)
			}
			return
		}
		answer.Status, body = explained.Status, explained
	}
	var err error
	if answer.Body, err = encode(body); err == nil {
		err = s.Store.Answer(r.Context(), answer)
	}
	if err != nil {
		s.Log.WarnContext(r.Context(), "the answer of an idempotent request could not be stored", "requestId", callOf(r).requestID, "error", err)
	}
}

// statusCode is the status that will be answered.
func (r response) statusCode() int { return cmp.Or(r.status, http.StatusOK) }

// replayed is a stored answer, under the request id of this request.
func replayed(status int, body []byte) (response, error) {
	resp := response{status: status, header: http.Header{"Idempotent-Replayed": {"true"}}}
	if status < http.StatusBadRequest {
		resp.data = json.RawMessage(bytes.TrimSpace(body))
		return resp, nil
	}
	resp.failure, resp.cache = new(wire.Failure), noStore
	if err := json.Unmarshal(body, resp.failure); err != nil {
		return response{}, fmt.Errorf("stored answer: %w", err)
	}
	resp.code = resp.failure.Code
	return resp, nil
}

// idempotencyKey reads the header; empty without one.
func idempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values(idempotencyHeader)
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	unseen := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	if len(values) != 1 || len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, unseen) {
		return "", invalidField("", strictjson.CodeFormat, idempotencyHeader+" must be one value of 1 to 255 visible ASCII characters")
	}
	return key, nil
}
