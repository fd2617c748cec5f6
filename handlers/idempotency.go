package handlers

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gorilla/mux"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// idempotencyHeader is that of draft-ietf-httpapi-idempotency-key-header.
const idempotencyHeader = "Idempotency-Key"

// execution is how an older write executes its command; render makes the answer of the command's outcome.
type execution func(command domain.Command, render func() response) (response, error)

// once runs do under the request's Idempotency-Key, where it has one: a repetition of a finished request gets its
// answer, and the answer of this one is stored in the transaction of its events. content is what was parsed of the
// request; other content under the same key is refused.
func (s *server) once(r *http.Request, content any, do func(execution) (response, error)) (response, error) {
	key, err := idempotencyKey(r)
	if err != nil {
		return response{}, err
	}
	if key == "" {
		return do(func(command domain.Command, render func() response) (response, error) {
			if err := s.execute(r.Context(), command); err != nil {
				return response{}, err
			}
			return render(), nil
		})
	}
	claim := domain.Claim{Organization: callOf(r).access.Organization, Key: key}
	if claim.Route, err = routeOf(r); err != nil {
		return response{}, err
	}
	rand.Read(claim.Token[:])
	fingerprint, err := fingerprintOf(r, content)
	if err != nil {
		return response{}, err
	}
	known, err := s.Store.Claim(r.Context(), claim, fingerprint, s.Now())
	if err != nil {
		return response{}, err
	}
	if known != nil {
		if err := s.judgeAgain(r); err != nil {
			return response{}, err
		}
		return replayed(known.Status, known.Body)
	}
	stored := false
	resp, err := do(func(command domain.Command, render func() response) (response, error) {
		var resp response
		rendered := false
		wrapped := &domain.Idempotent{Command: command, Claim: claim, Render: func() (int, []byte, error) {
			resp, rendered = render(), true
			body, err := encode(resp.data)
			return resp.statusCode(), body, err
		}}
		if err := s.execute(r.Context(), wrapped); err != nil {
			return response{}, err // nothing of resp may be read: the command may still be under way
		}
		if stored = rendered; !rendered {
			resp = render()
		}
		return resp, nil
	})
	if stored {
		return resp, err
	}
	return resp, s.finishIdempotent(r, claim, resp, err)
}

// finishIdempotent ends a claim whose request made no event: the answer is stored where the same request would get it again, else
// the claim is given up.
func (s *server) finishIdempotent(r *http.Request, claim domain.Claim, resp response, failed error) error {
	answer := domain.StoredAnswer{Claim: claim, Status: resp.statusCode()}
	body := resp.data
	if failed != nil {
		refused, _, explained := s.explain(failed)
		if explained.Status != http.StatusNotFound && explained.Status != http.StatusConflict || refused.Code == domain.RequestInProgress {
			if err := s.Store.Release(r.Context(), claim); err != nil {
				s.Log.WarnContext(r.Context(), "an idempotency key stays claimed until its lease ends", "requestId", callOf(r).requestID, "error", err)
			}
			return failed
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
	return failed
}

// statusCode is the status that will be answered.
func (r response) statusCode() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

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
	good := len(values) == 1 && len(key) >= 1 && len(key) <= 255
	for i := range len(key) {
		good = good && key[i] > ' ' && key[i] < 0x7f
	}
	if !good {
		return "", domain.Invalid([]domain.FieldError{{Pointer: "", Code: strictjson.CodeFormat, Message: idempotencyHeader + " must be one value of 1 to 255 visible ASCII characters"}})
	}
	return key, nil
}

func routeOf(r *http.Request) (string, error) {
	template, err := mux.CurrentRoute(r).GetPathTemplate()
	if err != nil {
		return "", fmt.Errorf("template of a route: %w", err)
	}
	return r.Method + " " + template, nil
}

// fingerprintOf hashes what was parsed: the path, and the content in one encoding.
func fingerprintOf(r *http.Request, content any) ([]byte, error) {
	text, err := json.Marshal([]any{r.URL.Path, content})
	if err != nil {
		return nil, fmt.Errorf("fingerprint of a request: %w", err)
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}
