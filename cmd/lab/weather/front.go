package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/eventstore/pgtest/network"
)

// services is the number of processes behind the front.
const services = 3

// front is the proxy in front of the processes. It polls /readyz, and sends each request once, to a process that is
// ready or, if none is, to any. It repeats nothing. Each request has a separate connection, so that net/http repeats
// none either.
type front struct {
	url    string // over TCP
	socket string // over a Unix socket, whose clients need no ports
	ready  [services]atomic.Bool
	next   atomic.Uint64
	asked  sync.Map // the service that each request went to, by X-Request-Id
	region atomic.Pointer[string]
}

func (w *world) startFront(t testing.TB) *front {
	f := &front{}
	f.region.Store(new(""))
	dir := t.TempDir()
	var proxies [services]*httputil.ReverseProxy
	var transports [services]*http.Transport
	for i := range services {
		at := filepath.Join(dir, "s"+strconv.Itoa(i))
		w.links[fmt.Sprintf("front → %s", serviceName(i))] = network.Listen(
			t, network.Address{Network: "unix", Name: at}, network.Address{Network: "tcp", Name: w.addresses[i]},
		)
		transports[i] = &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", at)
			}}
		proxies[i] = &httputil.ReverseProxy{
			Transport: transports[i],
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: w.addresses[i]})
				r.Out.Host = r.In.Host
			},
			ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
			ErrorLog:     w.quiet,
		}
	}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n := f.next.Add(1)
		chosen := int(n % services)
		for i := range uint64(services) {
			if one := int((n + i) % services); f.ready[one].Load() {
				chosen = one
				break
			}
		}
		if id := r.Header.Get("X-Request-Id"); id != "" {
			f.asked.Store(id, *f.region.Load()+serviceName(chosen))
		}
		proxies[chosen].ServeHTTP(rw, r)
	})
	f.socket = filepath.Join(dir, "front")
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	private := &http.Server{Handler: handler, ErrorLog: w.quiet}
	go func() { _ = private.Serve(listener) }() // ends with Close
	public := httptest.NewUnstartedServer(handler)
	public.Config.ErrorLog = w.quiet
	public.Start()
	f.url = public.URL
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for i := range services {
		client := &http.Client{Transport: transports[i], Timeout: 2 * time.Second}
		asking.Go(func() {
			for {
				answer, err := client.Get("http://service/readyz")
				if err == nil {
					answer.Body.Close()
				}
				f.ready[i].Store(err == nil && answer.StatusCode == http.StatusOK)
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
				}
			}
		})
	}
	t.Cleanup(func() {
		close(stop)
		asking.Wait()
		public.CloseClientConnections()
		public.Close()
		_ = private.Close()
	})
	return f
}

// took returns which service got a request, and forgets it.
func (f *front) took(requestID string) string {
	service, _ := f.asked.LoadAndDelete(requestID)
	name, _ := service.(string)
	return name
}

// client returns a client that never reuses a connection, so that net/http never repeats a request.
func (f *front) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout,
		Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", f.socket)
			}}}
}
