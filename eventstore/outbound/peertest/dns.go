package peertest

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is a DNS server on loopback, over UDP and TCP. It knows the names that a test gives it, and
// name servers of every top-level domain. It is safe for concurrent use.
type DNS struct {
	Address string // host:port

	mu    sync.Mutex
	texts map[string][]string
	hosts map[string]netip.Addr
	fails dnsmessage.RCode // of every answer; 0: none
	mute  bool
	lies  bool
	asked int
}

// ServeDNS starts a server that ends with the test.
func ServeDNS(t testing.TB) *DNS {
	t.Helper()
	s := &DNS{texts: map[string][]string{}, hosts: map[string]netip.Addr{}}
	var config net.ListenConfig
	var packets net.PacketConn
	var streams net.Listener
	for range 20 { // a port that is free for UDP may be taken for TCP
		var err error
		if packets, err = config.ListenPacket(t.Context(), "udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		s.Address = packets.LocalAddr().String()
		if streams, err = config.Listen(t.Context(), "tcp", s.Address); err == nil {
			break
		}
		_ = packets.Close()
	}
	if streams == nil {
		t.Fatal("no port is free for both UDP and TCP")
	}
	t.Cleanup(func() { _, _ = packets.Close(), streams.Close() })
	go s.servePackets(packets)
	go s.serveStreams(streams)
	return s
}

// Text sets the TXT records of a name; none removes it. A name that begins with "*." stands for all names below.
func (s *DNS) Text(name string, texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts[name+"."] = texts; texts == nil {
		delete(s.texts, name+".")
	}
}

// Host sets the address of a name; an empty one removes it.
func (s *DNS) Host(name, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if address == "" {
		delete(s.hosts, name+".")
		return
	}
	s.hosts[name+"."] = netip.MustParseAddr(address)
}

// Fail makes every later answer fail with a code, such as dnsmessage.RCodeServerFailure; 0 ends that. mute makes the
// server not answer at all.
func (s *DNS) Fail(code dnsmessage.RCode, mute bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.mute = code, mute
}

// Lie makes every later answer say that the name does not exist.
func (s *DNS) Lie() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lies = true
}

// Asked returns the number of questions.
func (s *DNS) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *DNS) servePackets(conn net.PacketConn) {
	question := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(question)
		if err != nil {
			return
		}
		if answer := s.answer(question[:n], 1232); answer != nil {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

func (s *DNS) serveStreams(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			var length [2]byte
			if _, err := io.ReadFull(conn, length[:]); err != nil {
				return
			}
			question := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(conn, question); err != nil {
				return
			}
			if answer := s.answer(question, 64<<10-1); answer != nil {
				_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			}
		}()
	}
}

// answer returns an answer of at most most bytes, truncated if it is longer, or nil.
func (s *DNS) answer(message []byte, most int) []byte {
	var asked dnsmessage.Message
	if asked.Unpack(message) != nil || len(asked.Questions) != 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.mute {
		return nil
	}
	q := asked.Questions[0]
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, RecursionAvailable: true, RCode: s.fails},
		Questions: asked.Questions,
	}
	name := strings.ToLower(q.Name.String())
	texts, known := s.texts[name]
	for parent := name; !known && strings.Contains(parent, "."); {
		_, parent, _ = strings.Cut(parent, ".")
		texts, known = s.texts["*."+parent]
	}
	host, isHost := s.hosts[name]
	header := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}
	switch {
	case s.fails != 0:
	case s.lies:
		answer.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeNS && strings.Count(name, ".") == 1:
		answer.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.NSResource{NS: q.Name}}}
	case !known && !isHost:
		answer.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeTXT:
		for _, text := range texts {
			var parts []string
			for ; len(text) > 255; text = text[255:] {
				parts = append(parts, text[:255])
			}
			answer.Answers = append(answer.Answers, dnsmessage.Resource{
				Header: header, Body: &dnsmessage.TXTResource{TXT: append(parts, text)},
			})
		}
	case q.Type == dnsmessage.TypeA && isHost && host.Is4():
		answer.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: host.As4()}}}
	case q.Type == dnsmessage.TypeAAAA && isHost && host.Is6():
		answer.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AAAAResource{AAAA: host.As16()}}}
	}
	packed, err := answer.Pack()
	if err == nil && len(packed) > most {
		answer.Answers, answer.Truncated = nil, true
		packed, err = answer.Pack()
	}
	if err != nil {
		return nil
	}
	return packed
}
