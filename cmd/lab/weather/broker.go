package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	nats "github.com/nats-io/nats.go"

	"integrityledger/cmd/integrity/integritytest"
)

// brokerCommand runs this program as a NATS server that can be killed and frozen. Its arguments are an address and a
// directory.
const brokerCommand = "broker"

// serveBroker runs that server until SIGTERM.
func serveBroker(address, dir string) int {
	host, portText, err := net.SplitHostPort(address)
	port, convErr := strconv.Atoi(portText)
	if err != nil || convErr != nil {
		return 2
	}
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: host, Port: port, JetStream: true, StoreDir: dir, NoSigs: true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	s.ConfigureLogger()
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return 2
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	s.Shutdown()
	s.WaitForShutdown()
	return 0
}

type broker struct{ url string }

func (w *world) startBroker(t testing.TB) {
	address := integritytest.FreeAddress(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{w: w, name: "broker", program: self, args: []string{brokerCommand, address, t.TempDir()}, env: clean()}
	w.processes[p.name] = p
	w.broker = &broker{url: "nats://" + address}
	p.start()
	if err := within(time.Minute, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// messages returns all messages of the stream, in order.
func (b *broker) messages() (all []*nats.RawStreamMsg, err error) {
	const patience = 20 * time.Second
	conn, err := nats.Connect(b.url, nats.Timeout(patience))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	js, err := conn.JetStream(nats.MaxWait(patience))
	if err != nil {
		return nil, err
	}
	info, err := js.StreamInfo("INTEGRITY")
	if err != nil || info.State.Msgs == 0 {
		return nil, err
	}
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		m, err := js.GetMsg("INTEGRITY", sequence)
		if err != nil {
			return nil, fmt.Errorf("message %d of %d: %w", sequence, info.State.LastSeq, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// count returns the number of messages in the stream.
func (b *broker) count() (uint64, error) {
	conn, err := nats.Connect(b.url, nats.Timeout(5*time.Second))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	js, err := conn.JetStream(nats.MaxWait(5 * time.Second))
	if err != nil {
		return 0, err
	}
	info, err := js.StreamInfo("INTEGRITY")
	if err != nil {
		return 0, err
	}
	return info.State.Msgs, nil
}
