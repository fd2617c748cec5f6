package main

import (
	"crypto/tls"
	"sync/atomic"

	"integrityledger/cmd/integrity/config"
)

// certificate is what the service shows of itself where it ends TLS on its own. It is replaced as a whole; connections
// that are open keep the one they began with.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

// load reads the certificate's files. After an error the one read before stays in use.
func (c *certificate) load(cfg config.Config) error {
	if !cfg.Encrypted() {
		return nil
	}
	pair, err := cfg.LoadCertificate()
	if err == nil {
		c.current.Store(pair)
	}
	return err
}

// config offers HTTP/2 and HTTP/1.1 over TLS 1.2 or newer.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}
