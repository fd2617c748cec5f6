package stream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	nats "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/consumer"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

// forwarding is a ledger in this process whose events are forwarded to a broker.
type forwarding struct {
	*ledgertest.Ledger
	organization ledgertest.Organization
	second       ledgertest.Organization // the same organization with another company
	url          string                  // the broker's
	config       Config
}

func newForwarding(t testing.TB, b *integritytest.Broker) *forwarding {
	t.Helper()
	l := ledgertest.New(t)
	pool, err := cluster.At(l.URL).ConsumerPool(context.Background(), 6)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := Config{
		Log: slog.New(slog.DiscardHandler), Pool: pool, Store: query.New(query.Config{Pool: l.Pool}),
		Shards: l.Installation.Shards,
	}
	o := l.Organization(t, 1, domain.InternalPlan)
	second := o
	second.Company = l.Company(t, o, "company-2")
	l.Grant(t, o, o.Key.ID, second.Company.ID, true)
	return &forwarding{l, o, second, b.URL(), s}
}

// register adds n registrations of n documents, alternating between the two companies.
func (f *forwarding) register(t testing.TB, from, n int) {
	t.Helper()
	for n > 0 {
		commands := make([]domain.Command, min(n, 500))
		for i := range commands {
			o := []ledgertest.Organization{f.organization, f.second}[i%2]
			commands[i] = f.Register(t, o, o.Declaration(fmt.Sprintf("d-%d", from+i), 1, fmt.Sprint(from+i)))
		}
		for _, answer := range f.Execute(context.Background(), commands...) {
			if answer.Err != nil {
				t.Fatal(answer.Err)
			}
		}
		from, n = from+len(commands), n-len(commands)
	}
}

// forwarder creates another process's forwarder.
func (f *forwarding) forwarder(t testing.TB) *Forwarder {
	t.Helper()
	broker, err := NewNATS(f.url, "", f.config.Log)
	if err != nil {
		t.Fatal(err)
	}
	f.config.Publisher = broker
	made, err := New(f.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

// run forwards until stop is called or the test ends.
func (f *forwarding) run(t testing.TB, made *Forwarder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		made.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// behind returns how many of the shard's events have not been forwarded.
func (f *forwarding) behind(t testing.TB) int64 {
	t.Helper()
	lag, err := consumer.ReadLag(context.Background(), f.Pool, Consumer)
	if err != nil {
		t.Fatal(err)
	}
	return lag[f.organization.ID.Shard()].Events
}

func (f *forwarding) forwarded(t testing.TB) {
	t.Helper()
	integritytest.Eventually(t, "all is forwarded", func() error {
		if n := f.behind(t); n > 0 {
			return fmt.Errorf("%d events behind", n)
		}
		return nil
	})
}

// wantStream requires that the stream holds the first n events of the feed, each once and in the feed's order.
func (f *forwarding) wantStream(t *testing.T, b *integritytest.Broker, n int) {
	t.Helper()
	events, err := f.config.Store.StreamEvents(
		context.Background(), f.organization.ID.Shard(), f.Events(t, f.organization.ID.Shard()),
	)
	if err != nil || len(events) < n {
		t.Fatalf("%d events of the feed: %v", len(events), err)
	}
	all, err := b.Messages(Name)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != n {
		t.Errorf("the stream has %d messages, not %d", len(all), n)
	}
	for i, m := range all[:min(n, len(all))] {
		if id := m.Header.Get(nats.MsgIdHdr); id != events[i].ID.String() {
			t.Fatalf("message %d is event %s; the feed has %s there", i+1, id, events[i].ID)
		}
		company := f.organization.Company
		if strings.Contains(string(m.Data), `"companyReference":"company-2"`) {
			company = f.second.Company
		}
		if want := "integrity.events." + f.organization.ID.String() + "." + company.ID.String(); m.Subject != want {
			t.Errorf("message %d is at %s, not at %s", i+1, m.Subject, want)
		}
	}
}

// setStream creates or changes the stream as its operator may.
func setStream(t testing.TB, b *integritytest.Broker, change func(*jetstream.StreamConfig)) {
	t.Helper()
	conn, err := nats.Connect(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	c := jetstream.StreamConfig{Name: Name, Subjects: []string{topic + ".>"}, Duplicates: window}
	change(&c)
	if _, err := stream.CreateOrUpdateStream(context.Background(), c); err != nil {
		t.Fatal(err)
	}
}

// TestStreamRejectsOneEvent: while the broker rejects an event, the stream has the events before it and none after it;
// once the broker accepts it, the rest follow in order. This holds with atomic batches and without.
func TestStreamRejectsOneEvent(t *testing.T) {
	t.Parallel()
	for _, batches := range []bool{true, false} {
		t.Run(fmt.Sprintf("batches=%v", batches), func(t *testing.T) {
			t.Parallel()
			b := integritytest.NewBroker(t)
			b.Start()
			setStream(t, b, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish, c.MaxMsgSize = batches, 600 })
			f := newForwarding(t, b)
			f.register(t, 0, 40)
			long := f.organization.Declaration(strings.Repeat("long", 32), 1, "long")
			long.Source = long.DocumentReference
			f.Must(t, f.Register(t, f.organization, long))
			f.register(t, 40, 40)
			f.run(t, f.forwarder(t))
			integritytest.Eventually(t, "the events before the one that is refused are there", func() error {
				if n := f.behind(t); n != 41 {
					return fmt.Errorf("%d events behind", n)
				}
				return nil
			})
			f.wantStream(t, b, 40)
			setStream(t, b, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = batches })
			f.forwarded(t)
			f.wantStream(t, b, 81)
		})
	}
}

// TestStreamCut: a connection that breaks within a batch, or whose acknowledgement is lost, causes no lost, duplicate
// or reordered events.
func TestStreamCut(t *testing.T) {
	t.Parallel()
	b := integritytest.NewBroker(t)
	b.Start()
	f := newForwarding(t, b)
	relay := newRelay(t, fmt.Sprintf("127.0.0.1:%d", b.Port))
	f.url = "nats://" + relay.listener.Addr().String()
	total := 0
	for _, at := range []string{
		batchSequenceHeader + ": 30", // within a batch
		batchCommitHeader + ":",      // its last message
		`"batch":`,                   // its acknowledgement
		`"duplicate": true`,          // the acknowledgement of a batched event that is already stored
	} {
		if !strings.Contains(at, "duplicate") {
			f.register(t, total, 50)
			total += 50
		}
		cut := relay.cutAt(at)
		stop := f.run(t, f.forwarder(t))
		select {
		case <-cut:
		case <-time.After(integritytest.Patient):
			t.Fatalf("nothing like %s was sent", at)
		}
		stop()
		if f.behind(t) == 0 {
			t.Errorf("cut at %s: the position was moved over events that nobody acknowledged", at)
		}
	}
	f.register(t, total, 50) // make the page that is sent again longer than the stored one
	f.run(t, f.forwarder(t))
	f.forwarded(t)
	f.wantStream(t, b, total+50)
}

// TestStreamToABrokerWithoutBatches: a broker without batches acknowledges the last message like any other. That says
// nothing about the messages before it.
func TestStreamToABrokerWithoutBatches(t *testing.T) {
	t.Parallel()
	b := integritytest.NewBroker(t)
	b.Start()
	conn, err := nats.Connect(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if _, err := conn.Subscribe(topic+".>", func(m *nats.Msg) {
		if m.Reply != "" {
			_ = m.Respond([]byte(`{"stream":"INTEGRITY","seq":3}`))
		}
	}); err != nil {
		t.Fatal(err)
	}
	n := &NATS{conn: conn}
	messages := []*nats.Msg{nats.NewMsg(topic + ".a.b"), nats.NewMsg(topic + ".a.b")}
	err = n.publishBatch(t.Context(), messages)
	if err == nil || !strings.Contains(err.Error(), "acknowledged 0 of 2 messages") {
		t.Errorf("answered %v", err)
	}
}

// TestStreamToASlowBroker: a broker that takes long for each event gets them one by one without a pause, and no page
// fails.
func TestStreamToASlowBroker(t *testing.T) {
	t.Parallel()
	b := integritytest.NewBroker(t)
	b.Start()
	setStream(t, b, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false })
	f := newForwarding(t, b)
	f.register(t, 0, 10)
	relay := newRelay(t, fmt.Sprintf("127.0.0.1:%d", b.Port))
	relay.slowDown(`"seq":`) // an acknowledgement
	f.url = "nats://" + relay.listener.Addr().String()
	made := f.forwarder(t)
	f.run(t, made)
	f.forwarded(t)
	f.wantStream(t, b, 10)
	if n := made.Failures(); n > 0 {
		t.Errorf("%d failures", n)
	}
}

// relay forwards lines until it must cut the connection.
type relay struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	slow     string // lines that contain it take 400 ms
	at       string
	cut      chan struct{}
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, to: to}
	var passing sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		passing.Wait()
	})
	passing.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", r.to)
			if err != nil {
				from.Close()
				continue
			}
			passing.Go(func() { r.pass(from, to) })
			passing.Go(func() { r.pass(to, from) })
		}
	})
	return r
}

// cutAt breaks the next connection before a line that contains the text, and then closes cut.
func (r *relay) cutAt(text string) (cut <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.cut = text, make(chan struct{})
	return r.cut
}

// slowDown makes each line that contains the text take 400 ms.
func (r *relay) slowDown(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = text
}

func (r *relay) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		r.mu.Lock()
		cut := r.at != "" && strings.Contains(line, r.at)
		if cut {
			close(r.cut)
			r.at = ""
		}
		slow := r.slow != "" && strings.Contains(line, r.slow)
		r.mu.Unlock()
		if cut {
			return
		}
		if slow {
			time.Sleep(400 * time.Millisecond)
		}
		if _, err := io.WriteString(to, line); err != nil {
			return
		}
	}
}

// BenchmarkForward forwards one organization's backlog to a broker on this machine.
func BenchmarkForward(b *testing.B) {
	broker := integritytest.NewBroker(b)
	broker.Start()
	f := newForwarding(b, broker)
	f.register(b, 0, b.N)
	b.ResetTimer()
	f.run(b, f.forwarder(b))
	f.forwarded(b)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
