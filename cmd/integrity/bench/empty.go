package bench

import (
	"context"
	"net/http"
)

const (
	emptyPOST = "empty JSON POST"
	emptyGET  = "empty JSON GET"

	// EmptyCommand is the hidden subcommand of bench that serves them.
	EmptyCommand = "empty"
)

// emptyPOST answers {} to {}: the same router and server settings as the service, and nothing behind them.
func (r *run) emptyPOST(ctx context.Context) (*contender, error) {
	var err error
	if r.empty, err = r.start(ctx, EmptyCommand, nil, "bench", EmptyCommand); err != nil {
		return nil, err
	}
	return r.emptyRequest(emptyPOST, http.MethodPost, []byte("{}"), busyConcurrency)
}

func (r *run) emptyGET(context.Context) (*contender, error) {
	return r.emptyRequest(emptyGET, http.MethodGet, nil, readConcurrency)
}

func (r *run) emptyRequest(name, method string, body []byte, workers int) (*contender, error) {
	c, err := newClient(r.empty.base, workers)
	if err != nil {
		return nil, err
	}
	h := header("")
	return &contender{name: name, workers: workers, unit: "requests", served: r.empty, call: func(ctx context.Context, worker int) (int, error) {
		_, err := c.send(ctx, worker, method, "/empty", "", h, body, http.StatusOK)
		return 1, err
	}}, nil
}
