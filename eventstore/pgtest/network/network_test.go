package network

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// message returns a message of the PostgreSQL protocol.
func message(kind byte, parts ...string) []byte {
	var body []byte
	for _, part := range parts {
		body = append(append(body, part...), 0)
	}
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}

func startup() []byte {
	body := "user\x00integrity\x00\x00"
	return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(len(body)+8)), startupCode),
		body...)
}

// TestFrontend: the beginning of a COMMIT is found, however the bytes are split into pieces, and its end is when the
// server may answer it.
func TestFrontend(t *testing.T) {
	t.Parallel()
	tls := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), 1234<<16|5679)
	begin := slices.Concat(startup(), message('Q', "BEGIN"))
	bind := message('B', "", "s1", "\x00\x00")
	for _, test := range []struct {
		name          string
		before, after []byte // the COMMIT, and what follows it until the server answers
	}{
		{"simple", begin, message('Q', "COMMIT")},
		{"of several statements", begin, message('Q', "SELECT 1; commit ;")},
		{
			"prepared", slices.Concat(startup(), message('P', "s1", "commit", "\x00"), message('S')),
			slices.Concat(bind, message('E', "", "\x00\x00\x00"), message('S')),
		},
		{"after a request for TLS", slices.Concat(tls, begin), message('Q', "END")},
	} {
		all := slices.Concat(test.before, test.after)
		for piece := 1; piece <= len(all); piece++ {
			var f frontend
			at, over, read := -1, -1, 0
			for some := range slices.Chunk(all, piece) {
				found, ended := f.read(some)
				if found >= 0 && at < 0 {
					at = read + found
				}
				read += len(some)
				if ended && over < 0 {
					over = read
				}
			}
			// A message that began in an earlier piece is reported at the start of the piece that completes it.
			if at < len(test.before) || over != len(all) || piece == len(all) && at != len(test.before) {
				t.Errorf(
					"%s in pieces of %d: found at %d of %d, over at %d of %d", test.name, piece, at, len(test.before), over, len(all),
				)
			}
		}
	}
	for _, text := range []string{"SELECT 'commit'", "COMMIT PREPARED 'x'", "BEGIN", "ROLLBACK"} {
		var f frontend
		if at, _ := f.read(slices.Concat(startup(), message('Q', text))); at >= 0 {
			t.Errorf("%s is taken for a COMMIT", text)
		}
	}
	var f frontend
	if at, ended := f.read([]byte("GET / HTTP/1.1\r\nHost: commit\r\n\r\n")); at >= 0 || ended {
		t.Error("a COMMIT in another protocol")
	}
}

// listener is a server that greets its only client and, once the client has disconnected, reports the bytes received.
func listener(t *testing.T) (at Address, received <-chan []byte) {
	at = Address{"unix", filepath.Join(t.TempDir(), "server")}
	l, err := net.Listen(at.Network, at.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	got := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("hello"))
		text, _ := io.ReadAll(conn)
		got <- text
	}()
	return at, got
}

func connect(t *testing.T, l *Link) net.Conn {
	conn, err := net.Dial(l.At.Network, l.At.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestCommitCut: the server gets the COMMIT if the connection is cut after it, but not if it is cut before. The client
// gets no answer.
func TestCommitCut(t *testing.T) {
	t.Parallel()
	before := slices.Concat(startup(), message('Q', "BEGIN"))
	all := slices.Concat(before, message('Q', "COMMIT"))
	for how, want := range map[Commits][]byte{CutBeforeCommit: before, CutAfterCommit: all} {
		at, received := listener(t)
		l := Listen(t, Address{"tcp", "127.0.0.1:0"}, at)
		done := make(chan bool)
		l.AtCommit(how, func() { close(done) })
		conn := connect(t, l)
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(all); err != nil {
			t.Fatal(err)
		}
		if got := <-received; string(got) != string(want) {
			t.Errorf("order %d: the server has %q, must have %q", how, got, want)
		}
		<-done
		if text, _ := io.ReadAll(conn); len(text) > 0 {
			t.Errorf("order %d: the client hears %q", how, text)
		}
	}
}

// TestEachDirection: bytes vanish in one direction only, and flow again when the weather is fair.
func TestEachDirection(t *testing.T) {
	t.Parallel()
	at, received := listener(t)
	l := Listen(t, Address{"tcp", "127.0.0.1:0"}, at)
	l.SetEach(Weather{Latency: time.Millisecond, Piece: 2}, Weather{Hole: true})
	conn := connect(t, l)
	if _, err := conn.Write([]byte("words")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("something comes through a hole")
	}
	l.Set(Weather{})
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		t.Error("nothing comes when it is fair again:", err)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	if got := <-received; string(got) != "words" {
		t.Errorf("the server has %q", got)
	}
	l.Set(Weather{Away: true})
	if text, _ := io.ReadAll(connect(t, l)); len(text) > 0 {
		t.Errorf("somebody who is away says %q", text)
	}
}
