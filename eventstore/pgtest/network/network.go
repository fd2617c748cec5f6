// Package network provides disturbable network links between the processes of a test.
package network

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Address is an address to listen on: a network of package net, and a host with a port or the path of a socket.
type Address struct{ Network, Name string }

// Link listens in front of an address and forwards bytes under the current weather. It is safe for concurrent use.
type Link struct {
	At Address // the address it listens on

	to       Address
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	changed  chan struct{} // closed when the weather changes
	up, down Weather
	pairs    map[*pair]bool
	commits  Commits
	onCommit func()
	arrived  int // number of connections
	refuse   int // number of the connection to refuse
}

// pair is one connection through the link.
type pair struct {
	client, server net.Conn
	stranded, deaf atomic.Bool
}

// Weather describes the treatment of bytes in one direction. The zero value is fair weather.
type Weather struct {
	Latency time.Duration // before every piece
	Piece   int           // maximum bytes forwarded at once; 0 means no limit
	Hole    bool          // nothing is forwarded and neither end notices: connections are half open
	Away    bool          // new connections are closed at once, if set in either direction
}

// Commits is the treatment of the next COMMIT that a PostgreSQL client sends.
type Commits int

// A cut ends the connection before the server has the COMMIT, or after it has all of it but before the client gets the
// answer.
const (
	CommitsPass Commits = iota
	CutBeforeCommit
	CutAfterCommit
)

// Listen starts a link that ends with the test. A TCP address may have port 0.
func Listen(t testing.TB, at, to Address) *Link {
	t.Helper()
	listener, err := net.Listen(at.Network, at.Name) //nolint:noctx // it listens until the test ends
	if err == nil && at.Network == "unix" {
		err = os.Chmod(at.Name, 0o777) // servers of other users connect; the directory restricts access
	}
	if err != nil {
		t.Fatal("network:", err)
	}
	l := &Link{
		At: Address{at.Network, listener.Addr().String()}, to: to, listener: listener, changed: make(chan struct{}),
		pairs: map[*pair]bool{},
	}
	l.serving.Go(func() {
		for {
			client, err := listener.Accept()
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ECONNABORTED) {
				continue
			}
			if err != nil {
				return
			}
			l.serving.Go(func() { l.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.Set(Weather{Away: true})
		l.Cut()
		l.serving.Wait()
	})
	return l
}

// Set changes the weather of both directions, for existing connections, too.
func (l *Link) Set(w Weather) { l.SetEach(w, w) }

// SetEach changes the weather from clients to the server (up) and back (down).
func (l *Link) SetEach(up, down Weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = up, down
	close(l.changed)
	l.changed = make(chan struct{})
}

// Cut ends every connection.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		p.close()
	}
}

// Strand leaves every existing connection half open: bytes vanish, and neither end notices. New connections are not
// affected.
func (l *Link) Strand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		p.stranded.Store(true)
	}
}

// AtCommit cuts the connection of the next COMMIT, once, and then calls done if it is not nil.
func (l *Link) AtCommit(how Commits, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commits, l.onCommit = how, done
}

// takeCommit returns and clears the setting of AtCommit.
func (l *Link) takeCommit() Commits {
	l.mu.Lock()
	defer l.mu.Unlock()
	how, done := l.commits, l.onCommit
	l.commits, l.onCommit = CommitsPass, nil
	if done != nil {
		go done()
	}
	return how
}

// RefuseNext restarts counting connections from 0. When the nth arrives, it and all existing ones are closed; later
// ones pass. It returns the previous count. RefuseNext(0) refuses no connection.
func (l *Link) RefuseNext(n int) (arrived int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	arrived = l.arrived
	l.arrived, l.refuse = 0, n
	return arrived
}

// admits counts a connection, and reports whether it may pass.
func (l *Link) admits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived++
	return l.arrived != l.refuse
}

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

func (l *Link) now(up bool) (Weather, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if up {
		return l.up, l.changed
	}
	return l.down, l.changed
}

func (l *Link) away() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up.Away || l.down.Away
}

func (l *Link) serve(client net.Conn) {
	defer client.Close()
	if !l.admits() {
		l.Cut()
		return
	}
	if l.away() {
		return
	}
	server, err := net.Dial(l.to.Network, l.to.Name) //nolint:noctx // Cut ends it
	if err != nil {
		return
	}
	p := &pair{client: client, server: server}
	defer p.close()
	l.mu.Lock()
	l.pairs[p] = true
	gone := l.up.Away || l.down.Away
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pairs, p)
	}()
	if gone { // meanwhile; Cut may not have seen it
		return
	}
	var directions sync.WaitGroup
	directions.Go(func() { l.pass(p, client, server, true) })
	directions.Go(func() { l.pass(p, server, client, false) })
	directions.Wait()
}

// pass forwards bytes until one side is closed, and then closes the other.
func (l *Link) pass(p *pair, from, to net.Conn, up bool) {
	defer p.close()
	buffer := make([]byte, 64<<10)
	var messages frontend
	for {
		n, err := from.Read(buffer)
		rest, cut := buffer[:n], false
		if up {
			rest, cut = l.watch(p, &messages, rest)
		}
		for len(rest) > 0 {
			w, changed := l.now(up)
			if p.stranded.Load() || !up && p.deaf.Load() {
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
		if err != nil || cut {
			return
		}
	}
}

// watch returns the part of a client's bytes to forward, and whether to cut the connection after it.
func (l *Link) watch(p *pair, messages *frontend, sent []byte) (pass []byte, cut bool) {
	at, ended := messages.read(sent)
	if at >= 0 && !p.deaf.Load() {
		switch l.takeCommit() {
		case CutBeforeCommit:
			return sent[:at], true
		case CutAfterCommit:
			p.deaf.Store(true)
		case CommitsPass:
		}
	}
	return sent, p.deaf.Load() && ended
}
