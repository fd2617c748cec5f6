package sshagent_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain/evidence"
)

func TestAddresses(t *testing.T) {
	name := "SHA256:" + strings.Repeat("a+/", 14) + "b"
	for text, want := range map[string]sshagent.Address{
		"agent:///run/signer.sock?key=" + name:           {Socket: "/run/signer.sock", Fingerprint: name},
		" agent:///run/a%20b?key=" + name + "\n":         {Socket: "/run/a b", Fingerprint: name},
		"agent:///run/s?key=" + percent(name):            {Socket: "/run/s", Fingerprint: name},
		"agent:///run/../tmp//s?key=" + percent(name[:]): {Socket: "/tmp/s", Fingerprint: name},
	} {
		got, err := sshagent.Parse(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if again, err := sshagent.Parse(got.String()); err != nil || again != got {
			t.Errorf("%q: %q is read as %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{
		"agent:", "agent://?key=" + name, "agent:run/s?key=" + name, "agent://run/s?key=" + name, "agent:///?" + name, "agent:///run/s",
		"agent:///run/s?key=", "agent:///run/s?key=MD5:00", "agent:///run/s?key=" + name + "=", "agent:///run/s?key=" + name[:49],
		"agent:///run/s?key=" + name + "&key=" + name, "agent:///run/s?x=1&key=" + name, "agent:///run/s?key=" + name + "#x",
		"agent:///run/%00?key=" + name, "agent://me@/run/s?key=" + name, "agent://host:1/run/s?key=" + name,
		"AGENT:///run/%zz?key=" + name, "agent:///run/s?key=" + strings.ReplaceAll(name, "+", " "),
	} {
		if got, err := sshagent.Parse(text); err == nil || !strings.Contains(err.Error(), "agent:///run/signer.sock?key=SHA256:…") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func percent(text string) string {
	return strings.NewReplacer("+", "%2B", "/", "%2F", ":", "%3A").Replace(text)
}

// server is an agent on a socket whose connections are served by a function.
type server struct {
	t        *testing.T
	socket   string
	listener net.Listener
	opened   atomic.Int64
}

func serve(t *testing.T, on func(net.Conn)) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &server{t: t, socket: filepath.Join(dir, "s")}
	s.start(on)
	return s
}

func (s *server) start(on func(net.Conn)) {
	s.t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.listener = listener
	s.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.opened.Add(1)
			s.t.Cleanup(func() { _ = conn.Close() })
			go on(conn)
		}
	}()
}

// keyring is an honest agent with one new key.
func keyring(t *testing.T) (agent.Agent, evidence.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	key, err := evidence.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return ring, key
}

func honest(ring agent.Agent) func(net.Conn) {
	return func(conn net.Conn) {
		_ = agent.ServeAgent(ring, conn) // until the connection ends
		_ = conn.Close()
	}
}

func (s *server) address(key evidence.PublicKey) sshagent.Address {
	return sshagent.Address{Socket: s.socket, Fingerprint: sshagent.Fingerprint(key)}
}

func (s *server) signer(key evidence.PublicKey) *evidence.Signer {
	s.t.Helper()
	signer, err := new(sshagent.Agents).Signer(s.address(key), []evidence.PublicKey{key})
	if err != nil {
		s.t.Fatal(err)
	}
	return signer
}

// TestSignatures: the agent signs as the key itself does, also for many goroutines at once over few connections.
func TestSignatures(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := evidence.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, honest(ring))
	signer, err := new(sshagent.Agents).Signer(s.address(own.Key()), nil) // the agent says which key it is
	if err != nil || !signer.Kept() || own.Kept() || !bytes.Equal(signer.Key().Ed25519(), public) {
		t.Fatal(signer, err)
	}
	if _, err := evidence.MarshalSignerPEM(signer); err == nil {
		t.Error("a key that an agent keeps was marshalled")
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			payload := fmt.Append(nil, "payload ", i)
			want, _ := own.Sign(payload)
			if got, err := signer.Sign(payload); err != nil || got != want {
				t.Errorf("%s, %v: want %s", got, err, want)
			}
		})
	}
	all.Wait()
	if n := s.opened.Load(); n < 1 || n > 4 {
		t.Errorf("%d connections", n)
	}
	if err := signer.Check(); err != nil {
		t.Error(err)
	}
}

// TestNoKey: each reason has a sentence that says what to do.
func TestNoKey(t *testing.T) {
	ring, key := keyring(t)
	s := serve(t, honest(ring))
	_, other := keyring(t)
	find := func(at sshagent.Address) string {
		_, err := new(sshagent.Agents).Signer(at, nil)
		return fmt.Sprint(err)
	}
	expect := func(got string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("%q lacks %q", got, part)
			}
		}
	}
	expect(find(s.address(other)), "has no key "+sshagent.Fingerprint(other), "ssh-add", sshagent.Fingerprint(key))
	expect(find(sshagent.Address{Socket: s.socket + "x", Fingerprint: sshagent.Fingerprint(key)}), "there is no agent at", "start it")
	if os.Geteuid() != 0 {
		if err := os.Chmod(s.socket, 0); err != nil {
			t.Fatal(err)
		}
		expect(find(s.address(key)), "may not be used")
		_ = os.Chmod(s.socket, 0o600)
	}
	if err := ring.Lock([]byte("x")); err != nil {
		t.Fatal(err)
	}
	expect(find(s.address(key)), "shows no keys", "ssh-add -X")
	signer := s.signer(key)
	expect(fmt.Sprint(signer.Check()), "does not sign", "ssh-add -X")
	if err := ring.Unlock([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := signer.Check(); err != nil {
		t.Error(err)
	}
	_ = s.listener.(*net.UnixListener).SyscallConn // the file stays when the descriptor is closed below
	s.listener.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = s.listener.Close()
	expect(find(s.address(key)), "no agent listens")
}

// listing is an agent that lists one key of a given kind.
type listing struct {
	agent.Agent
	key *agent.Key
}

func (l listing) List() ([]*agent.Key, error) { return []*agent.Key{l.key}, nil }

// TestOtherKinds: only ssh-ed25519 signs receipts.
func TestOtherKinds(t *testing.T) {
	_, key := keyring(t)
	blob := ssh.Marshal(struct {
		Name, Key, Application string
	}{ssh.KeyAlgoSKED25519, string(key.Ed25519()), "ssh:"})
	s := serve(t, honest(listing{agent.NewKeyring(), &agent.Key{Format: ssh.KeyAlgoSKED25519, Blob: blob}}))
	at := sshagent.Address{Socket: s.socket, Fingerprint: ssh.FingerprintSHA256(&agent.Key{Blob: blob})}
	_, err := new(sshagent.Agents).Signer(at, nil)
	if err == nil || !strings.Contains(err.Error(), ssh.KeyAlgoSKED25519) || !strings.Contains(err.Error(), "ssh-keygen -t ed25519") {
		t.Error(err)
	}
	// A name that lies about the key is not believed.
	for _, blob := range [][]byte{
		append(key.Ed25519(), 0), nil, ssh.Marshal(struct{ Name, Key string }{ssh.KeyAlgoED25519, "short"}),
		append(ssh.Marshal(struct{ Name, Key string }{ssh.KeyAlgoED25519, string(key.Ed25519())}), 0),
	} {
		s := serve(t, honest(listing{agent.NewKeyring(), &agent.Key{Format: ssh.KeyAlgoED25519, Blob: blob}}))
		at := sshagent.Address{Socket: s.socket, Fingerprint: ssh.FingerprintSHA256(&agent.Key{Blob: blob})}
		if signer, err := new(sshagent.Agents).Signer(at, nil); err == nil {
			t.Errorf("%x is the key of %v", blob, signer)
		}
	}
}

// lying is an agent that changes signatures.
type lying struct {
	agent.ExtendedAgent
	change func(*ssh.Signature)
}

func (l lying) SignWithFlags(key ssh.PublicKey, data []byte, flags agent.SignatureFlags) (*ssh.Signature, error) {
	signature, err := l.ExtendedAgent.SignWithFlags(key, data, flags)
	if err == nil {
		l.change(signature)
	}
	return signature, err
}

// TestLies: a wrong signature is never returned.
func TestLies(t *testing.T) {
	ring, key := keyring(t)
	for name, change := range map[string]func(*ssh.Signature){
		"one bit":      func(s *ssh.Signature) { s.Blob[10] ^= 1 },
		"zeros":        func(s *ssh.Signature) { clear(s.Blob) },
		"short":        func(s *ssh.Signature) { s.Blob = s.Blob[:63] },
		"long":         func(s *ssh.Signature) { s.Blob = append(s.Blob, 0) },
		"empty":        func(s *ssh.Signature) { s.Blob = nil },
		"another kind": func(s *ssh.Signature) { s.Format = ssh.KeyAlgoRSA },
		"more":         func(s *ssh.Signature) { s.Rest = []byte{1} },
		// The same signature with S + L, which RFC 8032 forbids.
		"malleable": func(s *ssh.Signature) { addOrder(s.Blob[32:]) },
	} {
		s := serve(t, honest(lying{ring.(agent.ExtendedAgent), change}))
		signed, err := s.signer(key).SignPayload([]byte("payload"))
		if err == nil || signed != (evidence.Signed{}) {
			t.Errorf("%s: %+v, %v", name, signed, err)
		}
	}
	s := serve(t, honest(lying{ring.(agent.ExtendedAgent), func(s *ssh.Signature) { s.Blob[10] ^= 1 }}))
	if err := s.signer(key).Check(); !errors.Is(err, evidence.ErrWrongSignature) {
		t.Error(err)
	}
	// Another key's signature over the same bytes.
	other, _ := keyring(t)
	s = serve(t, honest(lying{ring.(agent.ExtendedAgent), func(s *ssh.Signature) {
		keys, _ := other.List()
		signed, _ := other.Sign(keys[0], []byte("payload"))
		s.Blob = signed.Blob
	}}))
	if _, err := s.signer(key).Sign([]byte("payload")); !errors.Is(err, evidence.ErrWrongSignature) {
		t.Error(err)
	}
}

// addOrder adds the group's order to the scalar of a signature.
func addOrder(scalar []byte) {
	order := []byte{
		0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0x10,
	}
	carry := 0
	for i := range scalar {
		carry += int(scalar[i]) + int(order[i])
		scalar[i], carry = byte(carry), carry>>8
	}
}

// TestHostileAgents: whatever an agent does, a signature ends in bounded time, and an honest agent is used afterwards.
func TestHostileAgents(t *testing.T) {
	ring, key := keyring(t)
	read := func(conn net.Conn) bool {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return false
		}
		_, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:])))
		return err == nil
	}
	answer := func(size uint32, body ...byte) func(net.Conn) {
		return func(conn net.Conn) {
			defer conn.Close()
			if read(conn) {
				_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, size), body...))
			}
		}
	}
	for name, on := range map[string]func(net.Conn){
		"closes":       func(conn net.Conn) { _ = conn.Close() },
		"half closes":  func(conn net.Conn) { read(conn); _ = conn.Close() },
		"hangs":        func(net.Conn) {},
		"reads, hangs": func(conn net.Conn) { read(conn) },
		"no answer":    answer(0),
		"truncated":    answer(100, 14, 0),
		"huge":         answer(1<<32 - 1),
		"too long":     answer(16<<20+1, 14),
		"failure":      answer(1, 5),
		"success":      answer(1, 6),
		"unknown":      answer(1, 255),
		"a list":       answer(5, 12, 0xff, 0xff, 0xff, 0xff),
		"a signature":  answer(9, 14, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff),
		"one byte at a time": func(conn net.Conn) {
			defer conn.Close()
			if !read(conn) {
				return
			}
			for range 40 {
				if _, err := conn.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, on)
			signer := s.signer(key)
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					if signature, err := signer.Sign([]byte("payload")); err == nil {
						t.Errorf("signed: %s", signature)
					}
				})
			}
			ended := make(chan struct{})
			go func() { all.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(30 * time.Second): // each has at most a few seconds
				t.Fatal("the signatures did not end")
			}
			if _, err := new(sshagent.Agents).Signer(s.address(key), nil); err == nil {
				t.Error("the key was found")
			}
			// The same pool uses the agent that takes its place.
			_ = s.listener.Close()
			s.start(honest(ring))
			for end := time.Now().Add(30 * time.Second); signer.Check() != nil; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal(signer.Check())
				}
			}
		})
	}
}

// TestSilentAgent: an agent that does not answer is not asked again at once, so signatures fail at once.
func TestSilentAgent(t *testing.T) {
	t.Parallel()
	_, key := keyring(t)
	s := serve(t, func(net.Conn) {})
	signer := s.signer(key)
	for try := 1; ; try++ {
		if err := signer.Check(); err == nil || !strings.Contains(err.Error(), "does not answer within") {
			t.Fatal(err)
		}
		opened := s.opened.Load()
		for range 100 {
			if signer.Check() == nil {
				t.Fatal("signed")
			}
		}
		if s.opened.Load() == opened {
			return
		}
		if try == 5 { // the machine may have stopped for a second
			t.Fatal("the agent was asked again at once")
		}
	}
}

// TestSlowAgent: a caller that waits too long for a connection is refused, and the agent serves the other callers.
func TestSlowAgent(t *testing.T) {
	t.Parallel()
	ring, key := keyring(t)
	s := serve(t, honest(slow{ring.(agent.ExtendedAgent)}))
	signer := s.signer(key)
	var signed, refused atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			switch err := signer.Check(); {
			case err == nil:
				signed.Add(1)
			case strings.Contains(err.Error(), "is too slow"):
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if signed.Load() == 0 || refused.Load() < 40 {
		t.Errorf("%d signed, %d refused", signed.Load(), refused.Load())
	}
}

// slow is an agent that takes its time.
type slow struct{ agent.ExtendedAgent }

func (s slow) SignWithFlags(key ssh.PublicKey, data []byte, flags agent.SignatureFlags) (*ssh.Signature, error) {
	time.Sleep(1200 * time.Millisecond)
	return s.ExtendedAgent.SignWithFlags(key, data, flags)
}

// TestRestartedAgent: requests on connections of the former process are sent again.
func TestRestartedAgent(t *testing.T) {
	ring, key := keyring(t)
	var conns sync.Map
	on := func(conn net.Conn) { conns.Store(conn, nil); honest(ring)(conn) }
	s := serve(t, on)
	signer := s.signer(key)
	for range 5 {
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if err := signer.Check(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		_ = s.listener.Close()
		conns.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); conns.Delete(conn); return true })
		s.start(on)
	}
}
