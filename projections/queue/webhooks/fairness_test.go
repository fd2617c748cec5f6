package webhooks_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/queue/webhooks"
)

// TestBadDestinationsDelayNoOther: four of twenty destinations are bad: slow, refusing connections, redirecting to a
// private address, and moved to a private address after the first lookup. The others still get every event before the
// slow one has answered once, and nothing reaches the private address.
func TestBadDestinationsDelayNoOther(t *testing.T) {
	const good, events = 16, 500
	h := build(t, nil, domain.InternalPlan)
	h.stop() // no lease expires

	var touched atomic.Int64 // connections to the private address
	private, refused := samePort(t)
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			conn, err := private.Accept()
			if err != nil {
				return
			}
			touched.Add(1)
			_ = conn.Close()
		}
	}()
	defer func() {
		_ = private.Close()
		<-accepting
	}()

	// 127.0.0.2 represents the public Internet, and 127.0.0.1 a private address.
	release := make(chan struct{})
	slow := receiveOn(t, "127.0.0.2", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	redirecting := receiveOn(t, "127.0.0.2", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+private.Addr().String()+"/redirected", http.StatusTemporaryRedirect)
	})
	_, port, err := net.SplitHostPort(private.Addr().String())
	check(t, err)
	dns := rebindingDNS(t)

	var receivers []*receiver
	var ids []domain.WebhookID
	for range good {
		r := receiveOn(t, "127.0.0.2", nil)
		receivers = append(receivers, r)
		w, _ := h.destination(r.URL)
		ids = append(ids, w.ID)
	}
	s, _ := h.destination(slow.URL)
	f, _ := h.destination("http://" + refused)
	d, _ := h.destination(redirecting.URL)
	b, _ := h.destination("http://rebinding.example:" + port + "/")

	stop := h.worker(func(c *webhooks.Config) {
		c.Resolver, c.Timeout = dns, 10*time.Minute // the slow one must not end before the others have everything
		c.Allows = func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.2") }
	})
	pace := time.NewTicker(20 * time.Millisecond) // 500 events a second, if the machine is fast enough
	defer pace.Stop()
	for range events / 10 {
		h.register(10)
		<-pace.C
	}
	for _, id := range ids {
		list := h.inStatus(id, events, projections.DeliveryDelivered)
		for _, d := range list {
			if d.Attempts != 1 {
				t.Errorf("%d attempts at a good destination", d.Attempts)
			}
		}
	}
	want := h.feed()
	for _, r := range receivers {
		got := map[string]bool{}
		for _, a := range r.got() {
			var body struct{ ID string }
			check(t, json.Unmarshal(a.body, &body))
			got[body.ID] = true
		}
		if len(got) != len(want) || len(r.got()) != events {
			t.Errorf("%d of %d events in %d deliveries", len(got), len(want), len(r.got()))
		}
	}
	if n := h.count("webhook_deliveries WHERE attempts > 0 AND webhook_id = '" + uuidText(s.ID) + "'"); n != 0 {
		t.Errorf("%d attempts at the slow destination have ended already", n)
	}
	if n := h.count("webhook_log WHERE webhook_id = '" + uuidText(s.ID) + "'"); n != 0 {
		t.Errorf("the slow destination has answered %d times already", n)
	}
	for id, reason := range map[domain.WebhookID]string{
		f.ID: "CONNECTION_FAILED", d.ID: "HTTP_STATUS", b.ID: "ADDRESS_BLOCKED",
	} {
		h.eventually(reason, func() bool {
			for _, d := range h.deliveries(id) {
				if d.Reason == reason && d.Status == projections.DeliveryPending {
					return true
				}
			}
			return false
		})
	}
	close(release)
	stop()
	if n := touched.Load(); n != 0 {
		t.Errorf("the private address was reached %d times", n)
	}
}

func uuidText(id [16]byte) string { return fmt.Sprintf("%x", id) }

// rebindingDNS resolves every name to a public address first, and to the private one afterwards.
func rebindingDNS(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", "127.0.0.1:0")
	check(t, err)
	served := make(chan struct{})
	t.Cleanup(func() {
		_ = conn.Close()
		<-served
	})
	go func() {
		defer close(served)
		answers := 0
		packet := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(packet[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response = true
			m.Additionals = nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				answer := [4]byte{127, 0, 0, 2}
				if answers++; answers > 1 {
					answer[3] = 1
				}
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0},
					Body:   &dnsmessage.AResource{A: answer},
				}}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from) // a lost answer is requested again
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// samePort listens on 127.0.0.1, and reserves the same port on 127.0.0.2 for an address that refuses connections. A
// released port could soon be used by a receiver.
func samePort(t *testing.T) (private net.Listener, refused string) {
	t.Helper()
	for {
		private, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		check(t, err)
		port := private.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener
		held, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		check(t, err)
		t.Cleanup(func() { _ = syscall.Close(held) })
		err = syscall.Bind(held, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 2}})
		if err == nil {
			return private, fmt.Sprintf("127.0.0.2:%d", port)
		}
		check(t, private.Close())
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// receiveOn is receive on another loopback address.
func receiveOn(t *testing.T, address string, answer func(http.ResponseWriter, *http.Request)) *receiver {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address+":0")
	check(t, err)
	r := &receiver{answer: answer}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	r.Server = &httptest.Server{URL: "http://" + listener.Addr().String()}
	return r
}

// TestSeveralWorkersSendNothingTwice: several workers on one queue send nothing twice.
func TestSeveralWorkersSendNothingTwice(t *testing.T) {
	const events = 1000
	h := build(t, nil, domain.InternalPlan)
	h.stop() // no lease expires
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	for range 4 {
		h.worker()
	}
	for range events / 100 {
		h.register(100)
	}
	h.inStatus(w.ID, events, projections.DeliveryDelivered)
	if got := r.got(); len(got) != events {
		t.Errorf("%d deliveries of %d events", len(got), events)
	}
}

// TestShutdownRecordsAttemptsUnderWay: a worker that is stopped finishes its attempts, releases the other rows, and
// another worker continues. Nothing is sent twice.
func TestShutdownRecordsAttemptsUnderWay(t *testing.T) {
	const events = 300
	h := build(t, nil, domain.InternalPlan)
	begun := make(chan struct{}, events)
	release := make(chan struct{})
	r := receive(t, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-release
	})
	w, _ := h.destination(r.URL)
	stop := h.worker()
	h.register(events)
	<-begun
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	select {
	case <-stopped:
		t.Error("the worker did not wait for what was under way")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-stopped
	if n := h.count("webhook_deliveries WHERE leased_until IS NOT NULL"); n != 0 {
		t.Errorf("%d rows were not given back", n)
	}
	r.set(nil)
	h.worker()
	h.inStatus(w.ID, events, projections.DeliveryDelivered)
	if got := r.got(); len(got) != events {
		t.Errorf("%d deliveries of %d events", len(got), events)
	}
}

// TestWaitingDeliveryIsCheckedAgain: a row that waits for a slow destination is checked again before it is sent.
func TestWaitingDeliveryIsCheckedAgain(t *testing.T) {
	const events = 12
	h := build(t, nil, domain.InternalPlan)
	h.stop()
	release := make(chan struct{})
	r := receive(t, func(http.ResponseWriter, *http.Request) { <-release })
	w, _ := h.destination(r.URL)
	h.register(events)
	h.worker()
	h.eventually("all are taken", func() bool {
		return h.count("webhook_deliveries WHERE leased_until IS NOT NULL") == events
	})
	h.eventually("the first are under way", func() bool { return len(r.got()) == 8 })
	h.authorize(w.ID, false)
	h.pass(3 * time.Second)
	close(release)
	h.inStatus(w.ID, 8, projections.DeliveryDelivered)
	h.inStatus(w.ID, events-8, projections.DeliveryCancelled)
	if n := len(r.got()); n != 8 {
		t.Errorf("%d were sent", n)
	}
}

// TestRowsOfADeadWorkerAreSentByAnother: rows that a worker took but never recorded are sent again with the same id
// once the lease has expired.
func TestRowsOfADeadWorkerAreSentByAnother(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	h.stop()
	r := receive(t, nil)
	w, _ := h.destination(r.URL)
	h.register(3)
	_, err := h.Pool.Exec(
		context.Background(), "UPDATE webhook_deliveries SET leased_until = $2 WHERE shard = $1", h.org.ID.Shard(),
		h.now().Add(30*time.Second),
	)
	check(t, err)
	h.worker()
	h.pass(29 * time.Second)
	h.register(1)
	h.inStatus(w.ID, 1, projections.DeliveryDelivered)
	h.pass(2 * time.Second)
	h.inStatus(w.ID, 4, projections.DeliveryDelivered)
}

// TestTLSIsVerified: a receiver without a trusted certificate gets nothing.
func TestTLSIsVerified(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := &receiver{}
	server := httptest.NewUnstartedServer(r)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	w, _ := h.destination(server.URL)
	stop := h.worker()
	h.register(1)
	h.eventually("it fails", func() bool { return h.deliveries(w.ID)[0].Reason == "TLS_FAILED" })
	stop()
	if len(r.got()) != 0 {
		t.Error("something was sent to a receiver that nobody vouches for")
	}
	h.worker(func(c *webhooks.Config) {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AddCert(server.Certificate())
	})
	h.pass(time.Minute)
	h.inStatus(w.ID, 1, projections.DeliveryDelivered)
}

// TestHostileAnswersAreBounded: an endless answer, or endless headers, delay no other delivery.
func TestHostileAnswersAreBounded(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	endless := receive(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	headers := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 1000 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 100))
		}
	})
	e, _ := h.destination(endless.URL)
	l, _ := h.destination(headers.URL)
	h.worker()
	h.register(1)
	h.inStatus(e.ID, 1, projections.DeliveryDelivered) // its status was 200
	h.eventually("too many headers are a failure", func() bool {
		return h.deliveries(l.ID)[0].Reason == "CONNECTION_FAILED"
	})
}
