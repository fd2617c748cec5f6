package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// errOther means that an answer came, and not to the question.
var errOther = errors.New("the answer is about something else than what was asked")

// Register declares the hash of a version's final bytes. A replay is a success with Replayed. Its outcome may be
// [Unknown].
func (c *Client) Register(ctx context.Context, d wire.Declaration) (wire.Registration, error) {
	return c.register(ctx, d)
}

// RegisterSaved sends a saved declaration as its bytes stand: what replays must do.
func (c *Client) RegisterSaved(ctx context.Context, declaration []byte) (wire.Registration, error) {
	return c.register(ctx, declaration)
}

func (c *Client) register(ctx context.Context, declaration any) (wire.Registration, error) {
	var answer wire.Registration
	err := c.post(ctx, "/api/v1/integrity/records", declaration, &answer)
	if err == nil && answer.PublicID == "" {
		err = errOther
	}
	return answer, err
}

// BatchResult is what became of one declaration: exactly one of Registration and Err is set.
type BatchResult struct {
	Registration *wire.Registration
	Err          *Error
}

// RegisterBatch declares 1 to 500 versions in one request, each decided as if sent alone; the results are in the order
// of the declarations. An error of its own means that the request failed as a whole, and may be [Unknown].
func (c *Client) RegisterBatch(ctx context.Context, declarations []wire.Declaration) ([]BatchResult, error) {
	var answer wire.Batch
	if err := c.post(ctx, "/api/v1/integrity/records/batch", wire.BatchRequest{Declarations: declarations}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(declarations) {
		return nil, fmt.Errorf("%d results for %d declarations: %w", len(answer.Results), len(declarations), errOther)
	}
	results := make([]BatchResult, len(declarations))
	for i, r := range answer.Results {
		switch {
		case r.Error != nil:
			r.Error.Status = r.Status
			results[i].Err = newError(r.Error)
		case r.Data != nil:
			results[i].Registration = r.Data
		default:
			return nil, fmt.Errorf("result %d: %w", i, errOther)
		}
	}
	return results, nil
}

// Reserve gives a version its link before the bytes are final; again, it renews. A reservation is no evidence.
func (c *Client) Reserve(ctx context.Context, v wire.VersionReference) (wire.Reservation, error) {
	var answer wire.Reservation
	err := c.post(ctx, "/api/v1/integrity/reservations", v, &answer)
	if err == nil && (answer.PublicID == "" || answer.VerificationURL == "") {
		err = errOther
	}
	return answer, err
}

// Lookup finds the record of a version; RECORD_NOT_FOUND where nothing is registered.
func (c *Client) Lookup(ctx context.Context, v wire.VersionReference) (wire.Record, error) {
	var answer wire.Record
	err := c.get(ctx, "/api/v1/integrity/lookup", url.Values{
		"companyReference": {v.CompanyReference}, "source": {v.Source},
		"documentReference": {v.DocumentReference}, "version": {strconv.Itoa(int(v.Version))},
	}, &answer)
	if err == nil && (answer.DocumentReference != v.DocumentReference || answer.Version != v.Version) {
		err = errOther
	}
	return answer, err
}

// Record finds a record by its publicId.
func (c *Client) Record(ctx context.Context, publicID string) (wire.Record, error) {
	var answer wire.Record
	path, err := recordPath(publicID, "")
	if err != nil {
		return answer, err
	}
	if err = c.get(ctx, path, nil, &answer); err == nil && answer.PublicID != publicID {
		err = errOther
	}
	return answer, err
}

// Evidence is the raw signed export of a record, with references and a dated observation of its state. Keep the bytes
// as they are.
func (c *Client) Evidence(ctx context.Context, publicID string) ([]byte, error) {
	path, err := recordPath(publicID, "/evidence")
	if err != nil {
		return nil, err
	}
	return c.do(ctx, ask{method: http.MethodGet, path: path})
}

// EvidenceAsOf is Evidence with the signed state as of an earlier moment in the place of an observation: history, never
// the present state. at is an RFC 3339 time at least a minute ago, or the sequence of an event in plain digits.
func (c *Client) EvidenceAsOf(ctx context.Context, publicID, at string) ([]byte, error) {
	path, err := recordPath(publicID, "/evidence")
	if err != nil {
		return nil, err
	}
	return c.do(ctx, ask{method: http.MethodGet, path: path, query: url.Values{"at": {at}}})
}

// Revoke revokes a record for good; the key needs integrity:revoke. The reason, at most 500 characters, may be empty;
// it is kept for the organization only.
func (c *Client) Revoke(ctx context.Context, publicID, reason string) (wire.Revocation, error) {
	var answer wire.Revocation
	path, err := recordPath(publicID, "/revoke")
	if err != nil {
		return answer, err
	}
	if err = c.post(ctx, path, wire.RevokeRequest{Reason: reason}, &answer); err == nil && answer.PublicID != publicID {
		err = errOther
	}
	return answer, err
}

func recordPath(publicID, after string) (string, error) {
	if _, ok := domain.ParsePublicID(publicID); !ok {
		return "", errors.New("publicId must be 26 characters a-z and 2-7")
	}
	return "/api/v1/integrity/records/" + publicID + after, nil
}
