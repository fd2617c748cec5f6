package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// client is the load generator's side of HTTP: net/http with connections that
// stay open, and as little else as possible. One for each contender.
type client struct {
	transport *http.Transport
	host      string
	callers   []caller
}

// caller belongs to one worker: its next request, and the answer to its last one.
type caller struct {
	owner       *organization // whose key is sent; nil: none
	path, query string
	body        []byte
	reader      bytes.Reader
	answer      bytes.Buffer
}

func newClient(service *child, workers int) *client {
	return &client{
		transport: &http.Transport{MaxIdleConns: 2 * workers, MaxIdleConnsPerHost: 2 * workers, DisableCompression: true, IdleConnTimeout: time.Minute},
		host:      strings.TrimPrefix(service.base, "http://"), callers: make([]caller, workers),
	}
}

// header of requests with a key; it is shared by requests and never written to.
func header(key string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
	return h
}

var withoutKey = header("")

// exchange makes a worker's request, and leaves the answer there.
func (c *client) exchange(ctx context.Context, worker int, method string) (status int, err error) {
	w := &c.callers[worker]
	r := &http.Request{
		Method: method, URL: &url.URL{Scheme: "http", Host: c.host, Path: w.path, RawQuery: w.query}, Host: c.host, Header: withoutKey,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if w.owner != nil {
		r.Header = w.owner.header
	}
	if method == http.MethodPost {
		w.reader.Reset(w.body)
		r.Body, r.ContentLength = io.NopCloser(&w.reader), int64(len(w.body))
	}
	resp, err := c.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	w.answer.Reset()
	_, err = w.answer.ReadFrom(resp.Body)
	return resp.StatusCode, err
}

// send is exchange where any other status than the wanted is an error.
func (c *client) send(ctx context.Context, worker int, method string, want int) ([]byte, error) {
	status, err := c.exchange(ctx, worker, method)
	w := &c.callers[worker]
	if err == nil && status != want {
		err = fmt.Errorf("%s %s answered %d, not %d: %.300s", method, w.path, status, want, w.answer.Bytes())
	}
	return w.answer.Bytes(), err
}
