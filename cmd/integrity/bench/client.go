package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// client is the load generator's side of HTTP: net/http with connections that
// stay open, and as little else as possible. One for each contender.
type client struct {
	transport *http.Transport
	host      string
	callers   []caller
}

// caller belongs to one worker.
type caller struct {
	body   []byte // of the request
	reader bytes.Reader
	answer []byte
}

func newClient(base string, workers int) (*client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	return &client{
		transport: &http.Transport{MaxIdleConns: 2 * workers, MaxIdleConnsPerHost: 2 * workers, DisableCompression: true, IdleConnTimeout: time.Minute},
		host:      u.Host, callers: make([]caller, workers),
	}, nil
}

// header of requests with a key; it is shared by requests and never written to.
func header(key string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
	return h
}

// send makes a request of a worker and returns the answer's body, which is good
// until the worker's next call. Any other status than the wanted is an error.
func (c *client) send(ctx context.Context, worker int, method, path, query string, h http.Header, body []byte, want int) ([]byte, error) {
	status, err := c.exchange(ctx, worker, method, path, query, h, body)
	answer := c.callers[worker].answer
	if err == nil && status != want {
		err = fmt.Errorf("%s %s answered %d, not %d: %.300s", method, path, status, want, answer)
	}
	return answer, err
}

// exchange makes a request of a worker, whose answer it leaves there.
func (c *client) exchange(ctx context.Context, worker int, method, path, query string, h http.Header, body []byte) (status int, err error) {
	w := &c.callers[worker]
	r := &http.Request{
		Method: method, URL: &url.URL{Scheme: "http", Host: c.host, Path: path, RawQuery: query}, Host: c.host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if body != nil {
		w.reader.Reset(body)
		r.Body, r.ContentLength = io.NopCloser(&w.reader), int64(len(body))
	}
	resp, err := c.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	w.answer, err = readAll(resp.Body, w.answer[:0])
	return resp.StatusCode, err
}

// readAll is io.ReadAll into a buffer that is used again.
func readAll(r io.Reader, into []byte) ([]byte, error) {
	for {
		if len(into) == cap(into) {
			into = append(into, 0)[:len(into)]
		}
		n, err := r.Read(into[len(into):cap(into)])
		into = into[:len(into)+n]
		if err == io.EOF {
			return into, nil
		}
		if err != nil {
			return into, err
		}
	}
}
