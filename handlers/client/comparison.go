package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// Compare asks publicly, without the key, how a hash relates to a record. Every result of the specification is an
// answer, RecordNotFound included; an error means that it could not be checked, which is not a mismatch. Without a hash
// the result is FileNotCompared at best. Accept a file on Verified alone.
func (c *Client) Compare(ctx context.Context, publicID, sha256 string) (wire.Comparison, error) {
	a := ask{method: http.MethodGet, path: "/api/public/integrity/" + publicID, public: true, wrong: checkPublicID(publicID)}
	if sha256 != "" {
		a.query = url.Values{"sha256": {sha256}}
	}
	answer, err := read[wire.Comparison](ctx, c, a)
	var refused *Error
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound && refused.Code == domain.RecordNotFound:
		return wire.Comparison{PublicID: publicID, Result: wire.RecordNotFound}, nil
	case err != nil:
		return wire.Comparison{}, err
	case answer.PublicID != publicID:
		return wire.Comparison{}, errOther
	case !slices.Contains([]wire.ComparisonResult{
		wire.MatchCurrent, wire.MatchHistorical, wire.HashMismatch, wire.RecordRevoked, wire.FileNotCompared, wire.SignatureInvalid, wire.RegistrationPending,
	}, answer.Result):
		return wire.Comparison{}, fmt.Errorf("the result %q is not known to this program", answer.Result)
	}
	answer.Verified = answer.Verified && answer.Result == wire.MatchCurrent
	return answer, nil
}
