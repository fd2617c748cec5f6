package bench

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/transparency"
)

const (
	comparisons = "public comparison"
	evidences   = "evidence, a signature each"

	readConcurrency = 64
	readRecords     = 8192 // that readers choose from
)

// readable is a record that readers ask for.
type readable struct {
	publicID, sha256 string
	owner            int // of the sixteen
}

// readables are records of the sixteen, from all over the ledger.
func (l *lab) readables(ctx context.Context) ([]readable, error) {
	const query = `SELECT public_id, sha256 FROM versions WHERE shard = $1 AND organization_id = $2 ORDER BY public_id LIMIT $3`
	var list []readable
	for i, o := range l.many {
		rows, err := l.read.Query(ctx, query, o.id.Shard(), [16]byte(o.id), readRecords/len(l.many))
		if err != nil {
			return nil, err
		}
		some, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (readable, error) {
			var id domain.PublicID
			var sum []byte
			err := row.Scan((*[16]byte)(&id), &sum)
			return readable{id.String(), hex.EncodeToString(sum), i}, err
		})
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

// comparison is what anyone asks: does my file match?
func (r *run) comparison(ctx context.Context) (*contender, error) {
	list, err := r.lab.readables(ctx)
	if err != nil {
		return nil, err
	}
	c, err := newClient(r.service.base, readConcurrency)
	if err != nil {
		return nil, err
	}
	h := header("")
	return &contender{name: comparisons, workers: readConcurrency, unit: "requests", served: r.service, call: func(ctx context.Context, worker int) (int, error) {
		one := &list[rand.IntN(len(list))] //nolint:gosec // any record will do
		answer, err := c.send(ctx, worker, http.MethodGet, "/api/public/integrity/"+one.publicID, "sha256="+one.sha256, h, nil, http.StatusOK)
		if err == nil && !bytes.Contains(answer, []byte(`"MATCH_CURRENT"`)) {
			err = fmt.Errorf("comparison: no match: %.300s", answer)
		}
		return 1, err
	}}, nil
}

// evidence is the private export, with a freshly signed observation and the proof of inclusion in the transparency log.
func (r *run) evidence(ctx context.Context) (*contender, error) {
	if err := r.published(ctx); err != nil {
		return nil, err
	}
	list, err := r.lab.readables(ctx)
	if err != nil {
		return nil, err
	}
	c, err := newClient(r.service.base, readConcurrency)
	if err != nil {
		return nil, err
	}
	headers := r.lab.headers()
	return &contender{
		name: evidences, workers: readConcurrency, organizations: len(r.lab.many), unit: "requests", served: r.service,
		call: func(ctx context.Context, worker int) (int, error) {
			one := &list[rand.IntN(len(list))] //nolint:gosec // any record will do
			answer, err := c.send(ctx, worker, http.MethodGet, recordsPath+"/"+one.publicID+"/evidence", "", headers[one.owner], nil, http.StatusOK)
			if err == nil && !bytes.Contains(answer, []byte(`"statusObservation":{`)) {
				err = fmt.Errorf("evidence without an observation: %.300s", answer)
			}
			r.exports.Add(1)
			if bytes.Contains(answer, []byte(`"inclusion":{`)) {
				r.proofs.Add(1)
			}
			return 1, err
		},
	}, nil
}

// published waits until the transparency log holds everything that there is.
func (r *run) published(ctx context.Context) error {
	r.Progress("waiting for the transparency log")
	for {
		status, err := transparency.ReadStatus(ctx, r.lab.read)
		if err != nil || status.Published == status.Events {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
