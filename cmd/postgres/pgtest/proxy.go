package pgtest

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between a service and its PostgreSQL, and passes bytes on under the weather that is set. It is safe for
// concurrent use.
type Proxy struct {
	URL string // of the database, through the proxy

	target string

	mu      sync.Mutex
	changed chan struct{} // closed when the weather changes
	weather Weather
	links   map[*link]bool
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	stranded       atomic.Bool
}

// Weather is what happens to bytes of either direction. The zero value is fair.
type Weather struct {
	Latency time.Duration // before every piece
	Piece   int           // most bytes that are passed on at once; 0 means no limit
	Hole    bool          // nothing is passed on, and no end notices: connections are half open
	Away    bool          // new connections are closed at once
}

// NewProxy listens until the test ends in front of a database whose URL names a Unix socket, as New's do.
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
	p := &Proxy{target: filepath.Join(query.Get("host"), socket), changed: make(chan struct{}), links: map[*link]bool{}}
	listener, err := net.Listen("unix", filepath.Join(dir, socket)) //nolint:noctx // it listens as long as the test lives
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	query.Set("host", dir)
	parsed.RawQuery = query.Encode()
	p.URL = parsed.String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.Set(Weather{Away: true})
		p.Cut()
		serving.Wait()
	})
	return p
}

// Set changes the weather, for connections that exist too.
func (p *Proxy) Set(w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut ends every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Strand leaves every connection half open for ever: what is sent vanishes, and no end notices. New ones are not concerned.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.stranded.Store(true)
	}
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (p *Proxy) now() (Weather, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather, p.changed
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if w, _ := p.now(); w.Away {
		return
	}
	server, err := net.Dial("unix", p.target) //nolint:noctx // Cut ends it
	if err != nil {
		return
	}
	l := &link{client: client, server: server}
	defer l.close()
	p.mu.Lock()
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	var directions sync.WaitGroup
	directions.Go(func() { p.pass(l, client, server) })
	directions.Go(func() { p.pass(l, server, client) })
	directions.Wait()
}

// pass moves bytes until one side is gone, and then ends the other.
func (p *Proxy) pass(l *link, from, to net.Conn) {
	defer l.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			w, changed := p.now()
			if l.stranded.Load() {
				break
			}
			if w.Hole {
				<-changed
				continue
			}
			if w.Latency > 0 {
				select {
				case <-time.After(w.Latency):
				case <-changed:
				}
			}
			piece := len(rest)
			if w.Piece > 0 {
				piece = min(piece, w.Piece)
			}
			if _, err := to.Write(rest[:piece]); err != nil {
				return
			}
			rest = rest[piece:]
		}
		if err != nil {
			return
		}
	}
}
