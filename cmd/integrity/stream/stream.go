// Package stream forwards the events of all change feeds to NATS JetStream.
package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	nats "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"integrityledger/domain"
	"integrityledger/eventstore/consumer"
	"integrityledger/handlers"
	"integrityledger/projections/query"
)

// What the broker is given. The stream is made where it is missing, and left as the broker's operator has set it.
const (
	Name     = "INTEGRITY"
	subjects = "integrity.events"
	Consumer = "nats"
	// window is for how long the broker knows an event's id again.
	window    = time.Hour
	pageLimit = 500
)

// Forwarder publishes the events of all feeds to NATS JetStream after their commit: exactly the elements of the change
// feed, each under integrity.events.ORGANIZATION.COMPANY with its id as the message's. Of all processes one at a time
// forwards a page of a shard. An event whose acknowledgement was lost is published again, and the broker drops it by its id.
//
// Messages that are published while others wait for their acknowledgements lose their order where one of them fails:
// those after it are stored, and its repetition comes behind them. So a page of events is one atomic batch (ADR-50 of
// NATS, nats-server 2.12), of which the broker stores all or nothing. Where it takes none, each event waits for the
// acknowledgement of the one before it.
type Forwarder struct {
	*consumer.Consumer
	store     *query.Store
	conn      *nats.Conn
	broker    jetstream.JetStream
	marshaler watermillnats.NATSMarshaler
	stream    atomic.Pointer[jetstream.StreamConfig] // as the broker has it; nil: it must be asked
}

func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" {
		return errors.New("it must be nats:// or tls://, with [user:password@]host[:port]")
	}
	return nil
}

// Config is what a Forwarder needs.
type Config struct {
	URL, Credentials string          // of the broker; the path of a credentials file, or nothing
	Pool             *pgxpool.Pool   // from Primary.ConsumerPool
	Nodes            *consumer.Nodes // have the transactions of the pages. Nil: Pool does
	Store            *query.Store
	Shards           int
	Log              *slog.Logger
}

// New needs no broker that answers: it connects when there is one.
func New(s Config) (*Forwarder, error) {
	f := &Forwarder{store: s.Store}
	options := []nats.Option{
		nats.Name("integrity"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.ReconnectBufSize(-1),        // what cannot be sent now is an error now
		nats.FlusherTimeout(time.Second), // a broker that reads no more must not hold a page, nor the end of the process
		nats.ReconnectOnFlusherError(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.Log.Warn("the broker is away; events are forwarded when it is back", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			f.stream.Store(nil) // it may be another broker
			s.Log.Info("the broker is back")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.Log.Warn("broker", "error", err) }),
	}
	if s.Credentials != "" {
		options = append(options, nats.UserCredentials(s.Credentials))
	}
	var err error
	if f.conn, err = nats.Connect(s.URL, options...); err != nil {
		return nil, fmt.Errorf("INTEGRITY_NATS_URL: %w", err)
	}
	if f.broker, err = jetstream.New(f.conn); err == nil {
		var pages []consumer.Source
		for shard := range domain.Shard(s.Shards) {
			pages = append(pages, &consumer.Pages{Name: Consumer, Shard: shard, Limit: pageLimit, Take: f.forward})
		}
		f.Consumer, err = consumer.New(consumer.Config{
			Name: Consumer, Pool: s.Pool, Nodes: s.Nodes, Sources: pages, Log: s.Log,
			News: func(ctx context.Context) ([]int, error) {
				return consumer.Behind(ctx, s.Pool, s.Nodes, s.Shards, Consumer)
			},
		})
	}
	if err != nil {
		f.conn.Close()
		return nil, fmt.Errorf("forward to NATS: %w", err)
	}
	s.Log.Info("events are forwarded", "stream", Name, "subjects", subjects+".>")
	return f, nil
}

var ErrBrokerAway = errors.New("the broker does not answer; events are forwarded when it does")

// forward publishes what of the events the feeds show: order holds within a shard. It takes no longer than ctx allows,
// and says how far it has come.
func (f *Forwarder) forward(page *consumer.Message) (done int, err error) {
	events, err := consumer.Events(page)
	if err != nil {
		return 0, err
	}
	ctx, shard := page.Context(), events[0].Shard
	if !f.conn.IsConnected() {
		return 0, ErrBrokerAway
	}
	stream, err := f.ensureStream(ctx)
	if err != nil {
		return 0, err
	}
	list, err := f.store.StreamEvents(ctx, shard, events)
	if err != nil {
		return 0, err
	}
	messages := make([]*nats.Msg, len(list))
	for i, e := range list {
		if messages[i], err = f.message(e); err != nil {
			return 0, fmt.Errorf("event %s: %w", e.ID, err)
		}
	}
	if stream.AllowAtomicPublish && len(list) > 1 {
		err := f.publishBatch(ctx, messages)
		var refused *nats.APIError
		switch {
		case err == nil:
			return len(events), nil
		case !errors.As(err, &refused):
			f.stream.Store(nil) // somebody may have removed it
			return 0, fmt.Errorf("publish: %w", err)
		}
		// Nothing of it is stored: it holds an event that an earlier attempt has stored, or the broker has its hands full.
		f.Log.Debug("the broker refused a batch; its events are published one after the other", "shard", shard, "error", refused.Description)
	}
	for i, e := range list {
		done = int(e.Position - events[0].Position)
		if err := inTime(ctx); err != nil && done > 0 {
			return done, nil
		} else if err != nil {
			return 0, err
		}
		if _, err := f.broker.PublishMsg(ctx, messages[i]); err != nil {
			f.stream.Store(nil)
			if done > 0 && inTime(ctx) != nil {
				return done, nil //nolint:nilerr // a slow broker is no failure: the page that follows begins here
			}
			return done, fmt.Errorf("publish: %w", err)
		}
	}
	return len(events), nil
}

// inTime is an error once the time of a page is over, by the clock: in a process that was frozen, the timer of ctx may
// fire later than this runs.
func inTime(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// message is an event as the broker gets it.
func (f *Forwarder) message(e query.StreamEvent) (*nats.Msg, error) {
	body, err := json.Marshal(handlers.FeedEvent(e.FeedEvent, e.CompanyReference))
	if err != nil {
		return nil, err
	}
	m, err := f.marshaler.Marshal(subjects+"."+e.Organization.String()+"."+e.Company.String(), message.NewMessage(e.ID.String(), body))
	if err != nil {
		return nil, err
	}
	m.Header.Set(nats.MsgIdHdr, e.ID.String())
	return m, nil
}

// Of an atomic batch (ADR-50).
const (
	batchIDHeader       = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence" // from 1; a hole makes the broker refuse the batch
	batchCommitHeader   = "Nats-Batch-Commit"
)

// publishBatch publishes all messages or none of them. After a *nats.APIError none is stored; after another error all
// may be, or may yet be. A batch that is late changes nothing then: the broker refuses it for the ids of its messages.
func (f *Forwarder) publishBatch(ctx context.Context, messages []*nats.Msg) error {
	id := rand.Text()
	for i, m := range messages {
		published := nats.NewMsg(m.Subject)
		published.Data, published.Header = m.Data, maps.Clone(m.Header)
		published.Header.Set(batchIDHeader, id)
		published.Header.Set(batchSequenceHeader, strconv.Itoa(i+1))
		if err := inTime(ctx); err != nil {
			return err
		}
		if i < len(messages)-1 {
			if err := f.conn.PublishMsg(published); err != nil {
				return err
			}
			continue
		}
		published.Header.Set(batchCommitHeader, "1")
		answer, err := f.conn.RequestMsgWithContext(ctx, published)
		if err != nil {
			return err
		}
		var acknowledged struct {
			Error *nats.APIError `json:"error"`
			Batch string         `json:"batch"`
			Count int            `json:"count"`
		}
		switch err := json.Unmarshal(answer.Data, &acknowledged); {
		case err != nil:
			return fmt.Errorf("acknowledgement of a batch: %w", err)
		case acknowledged.Error != nil:
			return acknowledged.Error
		case acknowledged.Batch != id || acknowledged.Count != len(messages):
			return fmt.Errorf("the broker acknowledged %d of %d messages of a batch", acknowledged.Count, len(messages))
		}
	}
	return nil
}

// ensureStream makes the stream where it is missing, and says how it is set.
func (f *Forwarder) ensureStream(ctx context.Context) (*jetstream.StreamConfig, error) {
	if c := f.stream.Load(); c != nil {
		return c, nil
	}
	stream, err := f.broker.Stream(ctx, Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = f.broker.CreateStream(ctx, jetstream.StreamConfig{
			Name: Name, Description: "events of the change feeds of an Integrity Ledger", Subjects: []string{subjects + ".>"},
			Storage: jetstream.FileStorage, Duplicates: window, AllowAtomicPublish: true,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", Name, err)
	}
	config := stream.CachedInfo().Config
	if f.stream.Swap(&config) == nil && !config.AllowAtomicPublish {
		f.Log.Warn("the stream takes no atomic batches: events are forwarded one after the other", "stream", Name)
	}
	return &config, nil
}

func (f *Forwarder) Close() { f.conn.Close() }
