package integritytest

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	nats "github.com/nats-io/nats.go"
)

// Broker is a NATS server that keeps its port and files when it is stopped and started again.
type Broker struct {
	t    testing.TB
	Port int
	dir  string
	now  *server.Server
}

func NewBroker(t testing.TB) *Broker {
	t.Helper()
	_, port, err := net.SplitHostPort(FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{t: t, dir: t.TempDir()}
	if b.Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

func (b *Broker) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", b.Port) }

func (b *Broker) Start() {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: b.Port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(Patient) {
		b.t.Fatal("the broker is not ready")
	}
	b.now = s
}

func (b *Broker) Stop() {
	if b.now != nil {
		b.now.Shutdown()
		b.now.WaitForShutdown()
		b.now = nil
	}
}

// Messages returns all messages of a stream, in order. A stream that does not exist yet is an error; an empty one is
// not.
func (b *Broker) Messages(name string) (all []*nats.RawStreamMsg, err error) {
	conn, err := nats.Connect(b.URL(), nats.Timeout(Patient))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	js, err := conn.JetStream(nats.MaxWait(Patient))
	if err != nil {
		return nil, err
	}
	info, err := js.StreamInfo(name)
	if err != nil || info.State.Msgs == 0 {
		return nil, err
	}
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		m, err := js.GetMsg(name, sequence)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}
