package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"integrityledger/eventstore/outbound"
	"integrityledger/eventstore/outbound/peertest"
)

// TestEveryExchangeEnds: whatever a peer sends, it never holds a client beyond the timeout. The answer 101 ends it at
// once.
func TestEveryExchangeEnds(t *testing.T) {
	for name, shape := range peertest.Shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := outbound.New(outbound.Config{Timeout: 2 * time.Second, Answer: 64 << 10})
			defer client.CloseIdleConnections()
			_, err := exchange(t.Context(), client, peertest.Serve(t, shape))
			if err == nil {
				t.Error("it is taken for an answer")
			}
			if strings.HasPrefix(name, "101") != errors.Is(err, outbound.ErrSwitched) {
				t.Error(err)
			}
		})
	}
}

// TestContextEndsExchange: the caller's context ends an exchange earlier.
func TestContextEndsExchange(t *testing.T) {
	client := outbound.New(outbound.Config{Timeout: time.Hour})
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := exchange(ctx, client, peertest.Serve(t, func(conn io.Writer) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
		cancel()
	}))
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestBodyIsBounded: a body of the maximum length is read, and one byte more is an error.
func TestBodyIsBounded(t *testing.T) {
	const most = 100_000
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", most)+strings.TrimPrefix(r.URL.Path, "/"))
	}))
	defer server.Close()
	client := outbound.New(outbound.Config{Answer: most})
	defer client.CloseIdleConnections()
	if body, err := exchange(t.Context(), client, server.URL); err != nil || len(body) != most {
		t.Errorf("%d bytes: %v", len(body), err)
	}
	body, err := exchange(t.Context(), client, server.URL+"/x")
	if !errors.Is(err, outbound.ErrTooLong) || len(body) != most {
		t.Errorf("%d bytes: %v", len(body), err)
	}
}

// TestAddressesAreJudged: an address is checked before anything is sent to it.
func TestAddressesAreJudged(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer server.Close()
	var judged []netip.Addr
	client := outbound.New(outbound.Config{Allows: func(a netip.Addr) bool { judged = append(judged, a); return false }})
	if _, err := exchange(t.Context(), client, server.URL); !errors.Is(err, outbound.ErrBlocked) || len(judged) != 1 {
		t.Errorf("%v: %v", judged, err)
	}
}

// exchange sends a request and reads an answer 200 to its end.
func exchange(ctx context.Context, client *outbound.Client, address string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return body, err
}
