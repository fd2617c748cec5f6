// Package outbound creates the product's HTTP clients for external services: witnesses, time-stamping authorities,
// OpenID providers, webhook receivers, object stores, and the service itself. A linter forbids every other client.
//
// A peer may be hostile or broken. Each exchange ends within its timeout, from dialling to the last byte of the answer.
// Headers and body are bounded. Redirects are returned to the caller, never followed. The answer 101 Switching
// Protocols is an error, because net/http then obeys neither timeout nor context (golang/go#44988).
//
// The package knows nothing about the requests and imports only the standard library, so that every other package can
// use it.
package outbound

import (
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"integrityledger/domain/say"
)

// Client is an http.Client within the bounds of its Config. Create it with New; the zero value is unusable.
type Client struct{ *http.Client }

// Config bounds a client. Its zero value is safe.
type Config struct {
	Timeout time.Duration // of an exchange, including the body of the answer; 0 means a minute
	Connect time.Duration // of dialling, and again of the TLS handshake; 0 means 10 s
	Answer  int64         // maximum bytes of an unpacked body; 0 means 1 MiB
	Header  int64         // maximum bytes of all headers, including interim answers (1xx); 0 means 64 KiB
	Idle    int           // idle connections to keep per host; 0 means 2
	Proxy   bool          // use the proxy in the environment
	Plain   bool          // neither request nor unpack compressed answers
	// Allows decides whether a resolved address may be dialled; nil allows all. A refusal is ErrBlocked.
	Allows   func(netip.Addr) bool
	Resolver *net.Resolver // nil means the system's
	// TLS sets the trusted authorities and the client's certificate. Nil means the system's authorities.
	TLS *tls.Config
}

var (
	// ErrBlocked means that Config.Allows has refused an address.
	ErrBlocked = say.Errorf("the address is not allowed")
	// ErrSwitched means that the peer has answered 101 Switching Protocols without a request to switch.
	ErrSwitched = say.Errorf("it answers 101 Switching Protocols without a request to switch")
	// ErrTooLong means that a body is longer than Config.Answer.
	ErrTooLong = say.Errorf("the answer is longer")
)

// New returns a client, which is safe for concurrent use. Its transport retries only idempotent requests and requests
// that it has not begun to send.
func New(c Config) *Client {
	dialer := &net.Dialer{Timeout: cmp.Or(c.Connect, 10*time.Second), Resolver: c.Resolver}
	if c.Allows != nil {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || !c.Allows(to.Addr()) {
				return ErrBlocked
			}
			return nil
		}
	}
	next := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        c.TLS,
		TLSHandshakeTimeout:    dialer.Timeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     c.Plain,
		MaxIdleConns:           max(1024, c.Idle),
		MaxIdleConnsPerHost:    c.Idle,
		IdleConnTimeout:        30 * time.Second, // before the usual minute after which a peer closes
		MaxResponseHeaderBytes: cmp.Or(c.Header, 64<<10),
	}
	if c.Proxy {
		next.Proxy = http.ProxyFromEnvironment
	}
	return &Client{&http.Client{
		Timeout:       cmp.Or(c.Timeout, time.Minute),
		Transport:     &transport{next, cmp.Or(c.Answer, 1<<20)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// transport enforces the bounds that a caller cannot.
type transport struct {
	*http.Transport
	most int64
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close() // closes the connection; nothing of the body is read
		return nil, ErrSwitched
	}
	response.Body = &body{response.Body, t.most, t.most}
	return response, nil
}

// body fails with ErrTooLong if it is longer than allowed.
type body struct {
	io.ReadCloser
	most, left int64 // left is -1 once too much has come
}

func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, say.Errorf("%w than %d bytes", ErrTooLong, b.most)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, say.Errorf("%w than %d bytes", ErrTooLong, b.most)
	}
	return n, err
}
