// Package peertest provides HTTP servers that stall their clients or answer with garbage, for tests of HTTP clients.
package peertest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Shape answers one request after its headers were read. The client may close the connection at any time.
type Shape func(conn io.Writer)

// Switching is the shape that holds a client of package net/http indefinitely: 101, then silence.
func Switching(conn io.Writer) { write(conn, switching) }

const (
	switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
	chunked   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
)

// Shapes returns all ways in which a peer fails to answer. All but a compressed body of garbage hold the connection
// until it is closed.
func Shapes() map[string]Shape {
	return map[string]Shape{
		"101":                Switching,
		"101 and a body":     func(conn io.Writer) { write(conn, switching); endless(conn, "0123456789abcdef") },
		"101 of no protocol": func(conn io.Writer) { write(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n") },
		"101 after 100 and 103": func(conn io.Writer) {
			write(conn, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"+switching)
		},
		"1xx without end":     func(conn io.Writer) { endless(conn, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n") },
		"1xx that drip":       func(conn io.Writer) { drip(conn, "HTTP/1.1 103 Early Hints\r\n\r\n") },
		"silence":             func(io.Writer) {},
		"headers without end": func(conn io.Writer) { write(conn, "HTTP/1.1 200 OK\r\n"); endless(conn, "X-Padding: x\r\n") },
		"headers that drip":   func(conn io.Writer) { write(conn, "HTTP/1.1 200 OK\r\n"); drip(conn, "X-Padding: x\r\n") },
		"a body without end": func(conn io.Writer) {
			write(conn, chunked+"\r\n")
			endless(conn, chunk(strings.Repeat(" ", 1<<15)))
		},
		"a body that drips": func(conn io.Writer) { write(conn, chunked+"\r\n"); drip(conn, chunk(" ")) },
		"a refusal that drips": func(conn io.Writer) {
			write(conn, strings.Replace(chunked, "200 OK", "500 Oops", 1)+"\r\n")
			drip(conn, chunk(" "))
		},
		"a packed body": func(conn io.Writer) {
			write(conn, chunked+"Content-Encoding: gzip\r\n\r\n")
			endless(conn, chunk(bomb()))
		},
		"a packed body of garbage":  garbage,
		"a body that is not sent":   func(conn io.Writer) { write(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") },
		"a status line without end": func(conn io.Writer) { write(conn, "HTTP/1.1 200 "); endless(conn, "OK ") },
		"a header without end": func(conn io.Writer) {
			write(conn, "HTTP/1.1 200 OK\r\nX-Padding: ")
			endless(conn, "x")
		},
		"a chunk's size without end": func(conn io.Writer) { write(conn, chunked+"\r\n"); endless(conn, "0") },
		"a chunk's extension without end": func(conn io.Writer) {
			write(conn, chunked+"\r\n1;x=")
			endless(conn, "x")
		},
		"trailers without end": func(conn io.Writer) {
			write(conn, chunked+"Trailer: X-Padding\r\n\r\n"+chunk("{}")+"0\r\n")
			endless(conn, "X-Padding: x\r\n")
		},
		"trailers that drip": func(conn io.Writer) {
			write(conn, chunked+"Trailer: X-Padding\r\n\r\n"+chunk("{}")+"0\r\n")
			drip(conn, "X-Padding: x\r\n")
		},
		"chunks of garbage": func(conn io.Writer) { write(conn, chunked+"\r\nno chunk\r\n") },
		"a chunk of 16 EiB": func(conn io.Writer) { write(conn, chunked+"\r\nffffffffffffffff\r\n"); endless(conn, " ") },
		"a negative length": func(conn io.Writer) { write(conn, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}") },
		"two lengths": func(conn io.Writer) {
			write(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ")
		},
		"a length of 20 digits": func(conn io.Writer) {
			write(conn, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n")
			endless(conn, " ")
		},
		"HTTP/2": func(conn io.Writer) {
			write(conn, "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			endless(conn, "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678")
		},
		"TLS": func(conn io.Writer) { write(conn, "\x15\x03\x01\x00\x02\x02\x46") },
		"a redirect to itself": func(conn io.Writer) {
			write(conn, "HTTP/1.1 307 Again\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")
		},
	}
}

// Serve starts a peer that answers every request with a shape until the test ends, and returns its origin.
func Serve(t testing.TB, shape Shape) (origin string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	over := false
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if conns = append(conns, conn); over {
				_ = conn.Close() // the test has ended meanwhile
			}
			mu.Unlock()
			all.Go(func() { answer(conn, shape) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // it may already be closed
		mu.Lock()
		over = true
		for _, conn := range conns {
			_ = conn.Close() // the client may have closed it
		}
		mu.Unlock()
		all.Wait()
	})
	return "http://" + listener.Addr().String()
}

// answer serves a connection until the client closes it, which is the only end of a shape.
func answer(conn net.Conn, shape Shape) {
	defer conn.Close()
	read, buffer := []byte(nil), make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		read = append(read, buffer[:n]...)
		if _, after, found := bytes.Cut(read, []byte("\r\n\r\n")); found {
			read = after
			shape(conn)
		}
	}
}

func write(conn io.Writer, text string) { _, _ = io.WriteString(conn, text) }

func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

// endless repeats a text endlessly at some megabytes a second, so that a slow client has time to check its own timeout.
func endless(conn io.Writer, text string) {
	repeat(conn, strings.Repeat(text, 1+(32<<10)/len(text)), 10*time.Millisecond)
}

// drip repeats a text so slowly that a client that restarts its timeout at each byte never stops waiting.
func drip(conn io.Writer, text string) { repeat(conn, text, 50*time.Millisecond) }

func repeat(conn io.Writer, text string, every time.Duration) {
	pace := time.NewTicker(every)
	defer pace.Stop()
	for {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
		<-pace.C
	}
}

// garbage sends a body that is declared compressed but cannot be unpacked, and closes the connection.
func garbage(conn io.Writer) {
	write(
		conn, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"+strings.Repeat("no gzip. ", 10_000),
	)
	if c, ok := conn.(io.Closer); ok {
		_ = c.Close() // the client may have closed it
	}
}

// bomb returns a gzip member that unpacks to 16 MiB.
func bomb() string {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err := zip.Write(bytes.Repeat([]byte(" "), 16<<20))
	if err != nil || zip.Close() != nil {
		panic("a buffer refuses bytes")
	}
	return packed.String()
}
