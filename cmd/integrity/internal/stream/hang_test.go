package stream

import (
	"fmt"
	"net"
	"testing"
	"time"

	"integrityledger/cmd/integrity/integritytest"
)

// TestStreamToABrokerThatStopsReading: a forwarder ends in time even if the broker keeps the connection open and reads
// nothing.
func TestStreamToABrokerThatStopsReading(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(4096)
			go func() {
				fmt.Fprintf(conn, "INFO {\"server_id\":\"x\",\"version\":\"2.12.0\",\"headers\":true,\"max_payload\":1048576}\r\n")
				buf := make([]byte, 512)
				_, _ = conn.Read(buf) // CONNECT and PING
				fmt.Fprint(conn, "PONG\r\n")
			}()
		}
	}()
	b := integritytest.NewBroker(t)
	b.Start()
	f := newForwarding(t, b)
	f.url = "nats://" + listener.Addr().String()
	made := f.forwarder(t)
	stopFill := make(chan struct{})
	go func() { // fill the connection's buffers, as many attempts would
		data := make([]byte, 1<<20-1024)
		for {
			select {
			case <-stopFill:
				return
			default:
				_ = made.publisher.(*NATS).conn.Publish("x.y", data)
			}
		}
	}()
	defer close(stopFill)
	time.Sleep(2 * time.Second)
	stop := f.run(t, made)
	time.Sleep(2 * time.Second)
	at := time.Now()
	stop()
	if took := time.Since(at); took > 10*time.Second {
		t.Errorf("it ended after %s", took)
	}
}
