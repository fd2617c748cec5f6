package eventstore_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// cut is what the proxy does to the next COMMIT.
type cut int32

const (
	cutNothing cut = iota
	cutBefore      // the COMMIT never reaches the server
	cutAfter       // the server commits, its answer is lost
)

// proxy stands between a ledger and PostgreSQL, reads the frontend's messages and can cut the connection at a COMMIT.
type proxy struct {
	url    string
	target string
	next   atomic.Int32
	cuts   atomic.Int32
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	dir, err := os.MkdirTemp("", "cut") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := query.Get("port")
	if port == "" {
		port = "5432"
	}
	p := &proxy{target: filepath.Join(query.Get("host"), ".s.PGSQL."+port)}
	listener, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL."+port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	p.url = u.String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("unix", p.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var deaf atomic.Bool // the client receives nothing more
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || deaf.Load() { // the bytes read are the answer to the COMMIT
				_ = client.Close()
				return
			}
			_, _ = client.Write(buffer[:n])
		}
	}()
	head := make([]byte, 4)
	if _, err := io.ReadFull(client, head); err != nil { // the startup message has no type
		return
	}
	startup := make([]byte, binary.BigEndian.Uint32(head)-4)
	if _, err := io.ReadFull(client, startup); err != nil {
		return
	}
	_, _ = server.Write(slices.Concat(head, startup))
	commit := "\x00never" // the prepared statement whose text is COMMIT
	head = make([]byte, 5)
	for {
		if _, err := io.ReadFull(client, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		parts := strings.SplitN(string(body), "\x00", 3)
		if head[0] == 'P' && parts[1] == "COMMIT" {
			commit = parts[0]
		}
		if head[0] == 'B' && parts[1] == commit {
			switch cut(p.next.Swap(int32(cutNothing))) {
			case cutBefore:
				p.cuts.Add(1)
				return
			case cutAfter:
				p.cuts.Add(1)
				deaf.Store(true)
			case cutNothing:
			}
		}
		if _, err := server.Write(slices.Concat(head, body)); err != nil {
			return
		}
	}
}
