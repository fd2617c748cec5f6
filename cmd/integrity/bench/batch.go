package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
)

const (
	batches          = "batch endpoint, 500 a call"
	batchSize        = 500
	batchConcurrency = 16
)

// batch registers 500 declarations a call, each caller for one organization.
func (r *run) batch(context.Context) (*contender, error) {
	c, err := newClient(r.service.base, batchConcurrency)
	if err != nil {
		return nil, err
	}
	headers := r.lab.headers()
	return &contender{
		name: batches, workers: batchConcurrency, organizations: len(r.lab.many), unit: "registrations", served: r.service,
		call: func(ctx context.Context, worker int) (int, error) {
			w := &c.callers[worker]
			w.body = append(w.body[:0], `{"declarations":[`...)
			for i := range batchSize {
				if i > 0 {
					w.body = append(w.body, ',')
				}
				d := r.lab.declaration()
				w.body = appendJSON(w.body, &d)
			}
			w.body = append(w.body, "]}"...)
			i := worker % len(r.lab.many)
			answer, err := c.send(ctx, worker, http.MethodPost, recordsPath+"/batch", "", headers[i], w.body, http.StatusOK)
			if err != nil {
				return 0, fmt.Errorf("batch: %w", err)
			}
			if n := bytes.Count(answer, []byte(`{"status":201,`)); n != batchSize {
				return 0, fmt.Errorf("batch: %d of %d declarations were registered: %.300s", n, batchSize, answer)
			}
			r.lab.many[i].acknowledged.Add(batchSize)
			return batchSize, nil
		},
	}, nil
}
