package bench

import (
	"context"
	"fmt"
	"net/http"
)

const (
	httpAlone = "over HTTP, one caller"
	httpLight = "over HTTP, latency"
	httpBusy  = "over HTTP, throughput"

	lightConcurrency = 64
	busyConcurrency  = 256

	recordsPath = "/api/v1/integrity/records"
)

// Registrations through the service: authenticated with real keys, metered, parsed, decided, committed, answered.

func (r *run) httpAlone(context.Context) (*contender, error) {
	return r.overHTTP(r.service, httpAlone, 1)
}

func (r *run) httpLight(context.Context) (*contender, error) {
	return r.overHTTP(r.service, httpLight, lightConcurrency)
}

func (r *run) httpBusy(context.Context) (*contender, error) {
	return r.overHTTP(r.service, httpBusy, busyConcurrency)
}

func (r *run) overHTTP(service *child, name string, workers int) (*contender, error) {
	c, err := newClient(service.base, workers)
	if err != nil {
		return nil, err
	}
	headers := r.lab.headers()
	return &contender{
		name: name, workers: workers, organizations: min(workers, len(r.lab.many)), unit: "registrations", served: service,
		call: func(ctx context.Context, worker int) (int, error) {
			d := r.lab.declaration()
			w := &c.callers[worker]
			w.body = appendJSON(w.body[:0], &d)
			i := worker % len(r.lab.many)
			// 201 says that it is new; a replay would be 200.
			if _, err := c.send(ctx, worker, http.MethodPost, recordsPath, "", headers[i], w.body, http.StatusCreated); err != nil {
				return 0, fmt.Errorf("register: %w", err)
			}
			r.lab.many[i].acknowledged.Add(1)
			return 1, nil
		},
	}, nil
}

// headers of the sixteen, each with its key.
func (l *lab) headers() []http.Header {
	headers := make([]http.Header, len(l.many))
	for i, o := range l.many {
		headers[i] = header(o.secret)
	}
	return headers
}
