package integritytest

import (
	"net"
	"net/textproto"
	"strings"
	"sync"
	"testing"
)

// Mailbox keeps every mail that an SMTP client sends. A real, strict server tests the client in cmd/lab/judges.
type Mailbox struct {
	Mu      sync.Mutex
	Mails   []string // recipient, newline, content
	Arrived chan struct{}
}

// ServeMail starts a mailbox and returns its port.
func ServeMail(t *testing.T) (m *Mailbox, port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m = &Mailbox{Arrived: make(chan struct{}, 1)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go m.receive(textproto.NewConn(conn))
		}
	}()
	t.Cleanup(func() { listener.Close() })
	return m, listener.Addr().(*net.TCPAddr).Port
}

// receive speaks SMTP until the client disconnects.
func (m *Mailbox) receive(conn *textproto.Conn) {
	defer conn.Close()
	var to string
	for answer := "220 mail.example"; conn.PrintfLine("%s", answer) == nil; {
		line, err := conn.ReadLine()
		if err != nil {
			return
		}
		answer = "250 OK"
		switch command, rest, _ := strings.Cut(line, " "); strings.ToUpper(command) {
		case "RCPT": // TO:<address>
			_, address, _ := strings.Cut(rest, "<")
			to, _, _ = strings.Cut(address, ">")
		case "DATA":
			if conn.PrintfLine("354 go on") != nil {
				return
			}
			text, err := conn.ReadDotBytes()
			if err != nil {
				return
			}
			m.keep(to + "\n" + strings.ReplaceAll(string(text), "\n", "\r\n"))
		}
	}
}

func (m *Mailbox) keep(mail string) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.Mails = append(m.Mails, mail)
	select {
	case m.Arrived <- struct{}{}:
	default:
	}
}
