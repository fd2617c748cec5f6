package sshagent

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

const (
	// connections is how many requests an agent has at once. OpenSSH's agent works on one; the others wait in its sockets,
	// so that it never waits for us. More connections made it no faster.
	connections = 4
	// waiting limits how long a signature waits for a connection, and answering how long the agent may take for it.
	// Only the healing of a lost record is signed in a shard's transaction, which it delays for at most the sum.
	waiting   = 2 * time.Second
	answering = 2 * time.Second
	// pause is how long an agent that did not answer is not asked again. Meanwhile every signature fails at once.
	pause = time.Second
)

// Agents are the agents that a process uses. All keys of an agent share one pool of connections. The methods are safe
// for concurrent use. A nil *Agents is valid: it shares nothing.
type Agents struct {
	mutex sync.Mutex
	pools map[string]*pool // by socket
}

// Signer returns the signer for a key of an agent. If one of the known public keys has the fingerprint, the agent need
// not run yet. Otherwise the agent is asked for the public half.
func (a *Agents) Signer(at Address, known []evidence.PublicKey) (*evidence.Signer, error) {
	p := a.pool(at.Socket)
	for _, key := range known {
		if Fingerprint(key) == at.Fingerprint {
			return evidence.NewSigner(private{p, key.Ed25519(), publicKey(key), at.Fingerprint})
		}
	}
	public, err := p.find(at)
	if err != nil {
		return nil, err
	}
	key, err := evidence.NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	return evidence.NewSigner(private{p, public, publicKey(key), at.Fingerprint})
}

func (a *Agents) pool(socket string) *pool {
	if a == nil {
		return newPool(socket)
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.pools == nil {
		a.pools = map[string]*pool{}
	}
	if a.pools[socket] == nil {
		a.pools[socket] = newPool(socket)
	}
	return a.pools[socket]
}

// private is a private key that an agent keeps.
type private struct {
	pool        *pool
	public      ed25519.PublicKey
	name        ssh.PublicKey
	fingerprint string
}

// Public implements crypto.Signer.
func (k private) Public() crypto.PublicKey { return k.public }

// Sign implements crypto.Signer for whole messages. The caller verifies the signature.
func (k private) Sign(_ io.Reader, message []byte, _ crypto.SignerOpts) (signature []byte, err error) {
	err = k.pool.ask(func(a agent.Agent) error {
		signed, err := a.Sign(k.name, message)
		if err != nil {
			return say.Errorf(
				"the agent at %s does not sign with the key %s: load the key with ssh-add, or unlock the agent with ssh-add -X: %w",
				k.pool.socket, k.fingerprint, err,
			)
		}
		if signed.Format != ssh.KeyAlgoED25519 || len(signed.Rest) != 0 {
			return say.Errorf(
				"the agent at %s returned a signature of another kind than %s", k.pool.socket, ssh.KeyAlgoED25519,
			)
		}
		signature = signed.Blob
		return nil
	})
	return signature, err
}

// pool holds the connections to an agent. A connection has one request at a time. Broken ones are replaced when they
// are needed, so an agent that was restarted is used again at once.
type pool struct {
	socket string
	idle   chan *connection // a nil connection is not open

	mutex  sync.Mutex
	silent error     // why the agent is not asked before until
	until  time.Time // zero if it may be asked
}

func newPool(socket string) *pool {
	p := &pool{socket: socket, idle: make(chan *connection, connections)}
	for range connections {
		p.idle <- nil
	}
	return p
}

// connection remembers whether reading or writing failed. It has no method Close: agent.NewClient would start a
// goroutine that reads ahead.
type connection struct {
	conn   net.Conn
	failed error // why the connection cannot be used again
	agent  agent.Agent
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	if err != nil {
		c.failed = err
	}
	return n, err
}

func (c *connection) Write(b []byte) (int, error) {
	n, err := c.conn.Write(b)
	if err != nil {
		c.failed = err
	}
	return n, err
}

// ask sends one request. Requests are served in the order in which they came. If a connection from before turns out to
// be closed, the request is sent again on a new one: a signature of the same bytes is the same signature.
func (p *pool) ask(request func(agent.Agent) error) error {
	patience, cancel := context.WithTimeout(context.Background(), waiting)
	defer cancel()
	var c *connection
	select {
	case c = <-p.idle:
	case <-patience.Done():
		return say.Errorf(
			"the agent at %s is too slow: %s were not enough for the requests before this one", p.socket, waiting,
		)
	}
	defer func() { p.idle <- c }()
	if err := p.silence(); err != nil {
		return err
	}
	for {
		former := c != nil
		if c == nil {
			conn, err := p.dial()
			if err != nil {
				return err
			}
			c = &connection{conn: conn}
			c.agent = agent.NewClient(c)
		}
		err := c.conn.SetDeadline(time.Now().Add(answering))
		if err == nil {
			err = request(c.agent)
		}
		if err == nil {
			p.answered()
			return nil
		}
		failed := c.failed
		_ = c.conn.Close() // after an error, the start of the next answer is unknown
		c = nil
		timeout, ok := errors.AsType[net.Error](failed)
		switch {
		case failed == nil: // the agent has answered
			p.answered()
			return err
		case ok && timeout.Timeout():
			return p.hush(say.Errorf("the agent at %s does not answer within %s: restart it", p.socket, answering))
		case !former:
			return say.Errorf(
				"the agent at %s broke off the connection: start it as the user of this process: %w", p.socket, failed,
			)
		}
	}
}

// silence returns why the agent is not asked at the moment, or nil.
func (p *pool) silence() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if time.Now().Before(p.until) {
		return p.silent
	}
	return nil
}

func (p *pool) hush(why error) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.silent, p.until = why, time.Now().Add(pause)
	return why
}

func (p *pool) answered() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.until = time.Time{}
}

func (p *pool) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answering)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.socket)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, say.Errorf("there is no agent at %s: start it, or correct the path", p.socket)
	case errors.Is(err, fs.ErrPermission):
		return nil, say.Errorf("the socket of the agent at %s may not be used: give it to the user of this process", p.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, say.Errorf("no agent listens at %s any more: start it", p.socket)
	}
	return nil, say.Errorf("the agent at %s cannot be reached: %w", p.socket, err)
}

// find asks the agent for the public half of a key.
func (p *pool) find(at Address) (public ed25519.PublicKey, err error) {
	var keys []*agent.Key
	if err := p.ask(func(a agent.Agent) (err error) {
		if keys, err = a.List(); err != nil {
			err = say.Errorf("the agent at %s does not list its keys: %w", p.socket, err)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, say.Errorf(
			"the agent at %s shows no keys: load the key %s with ssh-add, or unlock the agent with ssh-add -X", p.socket,
			at.Fingerprint,
		)
	}
	i := slices.IndexFunc(keys, func(k *agent.Key) bool { return ssh.FingerprintSHA256(k) == at.Fingerprint })
	if i < 0 {
		var names []string
		for _, k := range keys[:min(len(keys), 10)] {
			names = append(names, ssh.FingerprintSHA256(k))
		}
		return nil, say.Errorf(
			"the agent at %s has no key %s: load it with ssh-add, or name one that it has (%s)", p.socket, at.Fingerprint,
			strings.Join(names, ", "),
		)
	}
	if keys[i].Format != ssh.KeyAlgoED25519 {
		return nil, say.Errorf(
			"the key %s has type %s, and receipt verifiers refuse its signatures: create one with ssh-keygen -t ed25519",
			at.Fingerprint, sanitized(keys[i].Format),
		)
	}
	parsed, err := ssh.ParsePublicKey(keys[i].Blob)
	if err != nil {
		return nil, say.Errorf("the agent at %s returned the key %s malformed: %w", p.socket, at.Fingerprint, err)
	}
	if crypto, ok := parsed.(ssh.CryptoPublicKey); ok {
		public, _ = crypto.CryptoPublicKey().(ed25519.PublicKey)
	}
	return public, nil
}

// sanitized keeps what a name of OpenSSH can contain, because an agent may say anything.
func sanitized(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, name[:min(len(name), 64)])
}
