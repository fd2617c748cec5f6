package pgtest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"integrityledger/eventstore/pgtest/network"
)

// Proxy stands between a service and its PostgreSQL.
type Proxy struct {
	*network.Link

	URL string // of the database, through the proxy
}

// Weather describes the treatment of bytes in one direction.
type Weather = network.Weather

// NewProxy listens until the test ends in front of a database whose URL has a Unix socket, like New's.
func NewProxy(t testing.TB, database string) *Proxy {
	t.Helper()
	parsed, err := url.Parse(database)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	query := parsed.Query()
	socket := ".s.PGSQL." + query.Get("port")
	dir, err := os.MkdirTemp("", "proxy") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // a standby of another user connects too
		t.Fatal("pgtest:", err)
	}
	link := network.Listen(
		t, network.Address{Network: "unix", Name: filepath.Join(dir, socket)},
		network.Address{Network: "unix", Name: filepath.Join(query.Get("host"), socket)},
	)
	query.Set("host", dir)
	parsed.RawQuery = query.Encode()
	return &Proxy{Link: link, URL: parsed.String()}
}
