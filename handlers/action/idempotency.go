package action

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"

	"integrityledger/domain"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// prepared returns a command that is ready to be executed, and a function that renders the answer from its outcome.
type prepared func() (command domain.Command, render func() edge.Response, err error)

// once executes the command that prepare makes, under the request's Idempotency-Key if it has one. A repetition of a
// finished request gets the stored answer. The answer of a new request is stored in the transaction of its events.
// content is the parsed content of the request; other content under the same key is refused.
func (s *Service) once(ctx context.Context, c *edge.Call, content any, prepare prepared) (edge.Response, error) {
	claim, known, err := s.claim(ctx, c, content)
	if err != nil {
		return edge.Response{}, err
	}
	if known != nil {
		if err := s.JudgeAgain(ctx); err != nil {
			return edge.Response{}, err
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
		err = s.execute(ctx, command)
	}
	if err != nil { // do not read resp: the command may still be in progress
		if claim != nil {
			s.finishIdempotent(ctx, *claim, edge.Response{}, err)
		}
		return edge.Response{}, err
	}
	if !stored {
		if resp = render(); claim != nil {
			s.finishIdempotent(ctx, *claim, resp, nil)
		}
	}
	return resp, nil
}

// claim takes the request's Idempotency-Key, or finds the answer of a finished request with the same key. Both results
// are nil if the request has no key.
func (s *Service) claim(ctx context.Context, c *edge.Call, content any) (*domain.Claim, *query.KnownAnswer, error) {
	key, err := c.IdempotencyKey()
	if err != nil || key == "" {
		return nil, nil, err
	}
	claim := domain.Claim{
		Organization: c.Access.Organization, Caller: c.Access.Actor(), Key: key, Route: c.Method + " " + c.Template,
	}
	rand.Read(claim.Token[:])
	parsed, err := json.Marshal([]any{c.Path, content}) // the path, and the content in one encoding
	if err != nil {
		return nil, nil, fmt.Errorf("fingerprint of a request: %w", err)
	}
	fingerprint := sha256.Sum256(parsed)
	known, err := s.Store.Claim(ctx, claim, fingerprint[:], s.Now())
	return &claim, known, err
}

// finishIdempotent ends the claim of a request that made no event. The answer is stored if the same request would get
// it again; otherwise the claim is released.
func (s *Service) finishIdempotent(ctx context.Context, claim domain.Claim, resp edge.Response, failed error) {
	answer := domain.StoredAnswer{Claim: claim, Status: resp.StatusCode()}
	body := resp.Data
	if failed != nil {
		refused, _, explained := s.Explain(edge.CallIn(ctx), failed)
		if explained.Status != http.StatusNotFound && explained.Status != http.StatusConflict ||
			refused.Code == domain.RequestInProgress {
			if err := s.Store.Release(ctx, claim); err != nil {
				s.Log.WarnContext(
					ctx, "idempotency key not released before its lease ends", "requestId", edge.CallIn(ctx).RequestID, "error",
					err,
				)
			}
			return
		}
		answer.Status, body = explained.Status, explained
	}
	var err error
	if answer.Body, err = edge.Encode(body); err == nil {
		err = s.Store.Answer(ctx, answer)
	}
	if err != nil {
		s.Log.WarnContext(
			ctx, "answer of an idempotent request not stored", "requestId", edge.CallIn(ctx).RequestID, "error",
			err,
		)
	}
}

// replayed returns a stored answer with the id of this request.
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
