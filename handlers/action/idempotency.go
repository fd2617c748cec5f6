package action

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// idempotencyHeader is that of draft-ietf-httpapi-idempotency-key-header.
const idempotencyHeader = "Idempotency-Key"

// prepared is a command that is ready to be executed, and what makes the answer of its outcome.
type prepared func() (command domain.Command, render func() edge.Response, err error)

// once executes what prepare makes under the request's Idempotency-Key, where it has one: a repetition of a finished
// request gets its answer, and the answer of this one is stored in the transaction of its events. content is what was
// parsed of the request; other content under the same key is refused.
func (s *Service) once(r *http.Request, content any, prepare prepared) (any, error) {
	claim, known, err := s.claim(r, content)
	if err != nil {
		return nil, err
	}
	if known != nil {
		if err := s.JudgeAgain(r.Context()); err != nil {
			return nil, err
		}
		return replayed(known.Status, known.Body)
	}
	command, render, err := prepare()
	var resp edge.Response
	stored := false
	if err == nil && claim != nil {
		command = &domain.Idempotent{Command: command, Claim: *claim, Render: func() (int, []byte, error) {
			resp, stored = render(), true
			body, err := edge.Encode(resp.Data)
			return resp.StatusCode(), body, err
		}}
	}
	if err == nil {
		err = s.Execute(r.Context(), command)
	}
	if err != nil { // nothing of resp may be read: the command may still be under way
		if claim != nil {
			s.finishIdempotent(r, *claim, edge.Response{}, err)
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
func (s *Service) claim(r *http.Request, content any) (*domain.Claim, *query.KnownAnswer, error) {
	key, err := idempotencyKey(r)
	if err != nil || key == "" {
		return nil, nil, err
	}
	c := edge.CallOf(r)
	claim := domain.Claim{Organization: c.Access.Organization, Caller: c.Access.Actor(), Key: key,
		Route: r.Method + " " + c.Template}
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
func (s *Service) finishIdempotent(r *http.Request, claim domain.Claim, resp edge.Response, failed error) {
	answer := domain.StoredAnswer{Claim: claim, Status: resp.StatusCode()}
	body := resp.Data
	if failed != nil {
		refused, _, explained := s.Explain(failed)
		if explained.Status != http.StatusNotFound && explained.Status != http.StatusConflict || refused.Code == domain.RequestInProgress {
			if err := s.Store.Release(r.Context(), claim); err != nil {
				s.Log.WarnContext(r.Context(), "an idempotency key stays claimed until its lease ends", "requestId", edge.CallOf(r).RequestID, "error", err)
			}
			return
		}
		answer.Status, body = explained.Status, explained
	}
	var err error
	if answer.Body, err = edge.Encode(body); err == nil {
		err = s.Store.Answer(r.Context(), answer)
	}
	if err != nil {
		s.Log.WarnContext(r.Context(), "the answer of an idempotent request could not be stored", "requestId", edge.CallOf(r).RequestID, "error", err)
	}
}

// replayed is a stored answer, under the request id of this request.
func replayed(status int, body []byte) (edge.Response, error) {
	resp := edge.Response{Status: status, Header: http.Header{"Idempotent-Replayed": {"true"}}}
	if status < http.StatusBadRequest {
		resp.Data = json.RawMessage(bytes.TrimSpace(body))
		return resp, nil
	}
	resp.Failure, resp.Cache = new(wire.Failure), edge.NoStore
	if err := json.Unmarshal(body, resp.Failure); err != nil {
		return edge.Response{}, fmt.Errorf("stored answer: %w", err)
	}
	resp.Code = resp.Failure.Code
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
		return "", edge.InvalidField("", strictjson.CodeFormat, idempotencyHeader+" must be one value of 1 to 255 visible ASCII characters")
	}
	return key, nil
}
