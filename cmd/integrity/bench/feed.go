package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"

	"integrityledger/projections/query"
)

const (
	feedHTTP = "feed over HTTP, pages of 1,000"
	feedSQL  = "the same pages by SQL"

	pageSize        = 1000
	feedConcurrency = 8
)

// pages are whole pages of the feeds of the sixteen: the owner, and the sequence
// after which a page of 1,000 events stands.
func (l *lab) pages(ctx context.Context) ([]page, error) {
	var list []page
	for i, o := range l.many {
		var events, first int64
		if err := l.read.QueryRow(ctx, `SELECT count(*), coalesce(min(sequence), 1) FROM feed WHERE shard = $1 AND company_id = $2`,
			o.id.Shard(), [16]byte(o.company)).Scan(&events, &first); err != nil {
			return nil, err
		}
		// From its first registration on, an organization has no other events.
		for k := range events / pageSize {
			list = append(list, page{i, first - 1 + k*pageSize})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no feed has %d events", pageSize)
	}
	return list, nil
}

type page struct {
	owner int
	after int64
}

func (r *run) feedHTTP(ctx context.Context) (*contender, error) {
	list, err := r.lab.pages(ctx)
	if err != nil {
		return nil, err
	}
	c, err := newClient(r.service.base, feedConcurrency)
	if err != nil {
		return nil, err
	}
	headers := r.lab.headers()
	return &contender{
		name: feedHTTP, workers: feedConcurrency, organizations: len(r.lab.many), unit: "events", served: r.service,
		call: func(ctx context.Context, worker int) (int, error) {
			p := list[rand.IntN(len(list))] //nolint:gosec // any page will do
			query := "companyReference=" + company + "&limit=" + strconv.Itoa(pageSize) + "&after=" + strconv.FormatInt(p.after, 10)
			answer, err := c.send(ctx, worker, http.MethodGet, "/api/v1/integrity/changes", query, headers[p.owner], nil, http.StatusOK)
			if err != nil {
				return 0, err
			}
			if n := bytes.Count(answer, []byte(`"evt_`)); n != pageSize {
				return 0, fmt.Errorf("feed: %d events in a page of %d", n, pageSize)
			}
			return pageSize, nil
		},
	}, nil
}

// feedSQL runs the statement behind the feed, and reads its rows without looking at them.
func (r *run) feedSQL(ctx context.Context) (*contender, error) {
	list, err := r.lab.pages(ctx)
	if err != nil {
		return nil, err
	}
	return &contender{
		name: feedSQL, workers: feedConcurrency, organizations: len(r.lab.many), unit: "events",
		call: func(ctx context.Context, _ int) (int, error) {
			p := list[rand.IntN(len(list))] //nolint:gosec // any page will do
			o := r.lab.many[p.owner]
			rows, err := r.lab.read.Query(ctx, query.ChangesQuery, o.id.Shard(), [16]byte(o.company), p.after, pageSize)
			if err != nil {
				return 0, err
			}
			defer rows.Close()
			n := 0
			for rows.Next() {
				n++
			}
			if err := rows.Err(); err != nil {
				return 0, err
			}
			if n != pageSize {
				return 0, fmt.Errorf("feed: %d rows in a page of %d", n, pageSize)
			}
			return pageSize, nil
		},
	}, nil
}
