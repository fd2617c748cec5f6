// Package stream forwards the events of all change feeds to NATS JetStream.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	nats "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/handlers"
	"integrityledger/projections/query"
)

// What the broker is given. The stream is made where it is missing, and left as the broker's operator has set it.
const (
	Name           = "INTEGRITY"
	streamSubjects = "integrity.events"
	Consumer       = "nats"
	// streamWindow is for how long the broker knows an event's id again.
	streamWindow = time.Hour
)

// Forwarder publishes the events of all feeds to NATS JetStream after their commit: exactly the elements of the change
// feed, each under integrity.events.ORGANIZATION.COMPANY with its id as the message's. Of all processes one at a time
// forwards a shard. An event whose acknowledgement was lost is published again, and the broker drops it by its id.
//
// Messages that are published while others wait for their acknowledgements lose their order where one of them fails:
// those after it are stored, and its repetition comes behind them. So a page of events is one atomic batch (ADR-50 of
// NATS, nats-server 2.12), of which the broker stores all or nothing. Where it takes none, each event waits for the
// acknowledgement of the one before it.
type Forwarder struct {
	*eventstore.Consumer
	store     *query.Store
	connected *nats.Conn
	publisher message.Publisher // of one message after the other
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

// forwarderConfig is what a forwarder needs.
type Config struct {
	URL, Credentials string // of the broker; the path of a credentials file, or nothing
	Pool             *pgxpool.Pool
	Store            *query.Store
	Shards           int
	Log              *slog.Logger
}

// newForwarder needs no broker that answers: it connects when there is one.
func New(s Config) (*Forwarder, error) {
	f := &Forwarder{store: s.Store}
	options := []nats.Option{
		nats.Name("integrity"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.ReconnectBufSize(-1), // what cannot be sent now is an error now
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
	if f.connected, err = nats.Connect(s.URL, options...); err != nil {
		return nil, fmt.Errorf("INTEGRITY_NATS_URL: %w", err)
	}
	f.publisher, err = watermillnats.NewPublisherWithNatsConn(f.connected, watermillnats.PublisherPublishConfig{
		Marshaler: &f.marshaler, SubjectCalculator: watermillnats.DefaultSubjectCalculator,
		JetStream: watermillnats.JetStreamConfig{TrackMsgId: true},
	}, watermill.NopLogger{})
	if err == nil {
		f.Consumer, err = eventstore.NewConsumer(eventstore.ConsumerConfig{
			Pool: s.Pool, Name: Consumer, Shards: s.Shards, Log: s.Log, Handle: f.forward,
		})
	}
	if err != nil {
		f.connected.Close()
		return nil, fmt.Errorf("forward to NATS: %w", err)
	}
	s.Log.Info("events are forwarded", "stream", Name, "subjects", streamSubjects+".>")
	return f, nil
}

var ErrBrokerAway = errors.New("the broker does not answer; events are forwarded when it does")

// forward publishes what of the events the feeds show: order holds within a shard.
func (f *Forwarder) forward(ctx context.Context, shard domain.Shard, events []domain.Event) (done int, err error) {
	if !f.connected.IsConnected() {
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
	messages := make([]*message.Message, len(list))
	subjects := make([]string, len(list))
	for i, e := range list {
		body, err := json.Marshal(handlers.FeedEvent(e.FeedEvent, e.CompanyReference))
		if err != nil {
			return 0, fmt.Errorf("event %s: %w", e.ID, err)
		}
		messages[i] = message.NewMessage(e.ID.String(), body)
		subjects[i] = streamSubjects + "." + e.Organization.String() + "." + e.Company.String()
	}
	if stream.AllowAtomicPublish && len(list) > 1 {
		err := f.publishBatch(ctx, subjects, messages)
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
		select {
		case <-ctx.Done(): // stopping, or the lease must be renewed
			return done, nil
		default:
		}
		if err := f.publisher.Publish(subjects[i], messages[i]); err != nil {
			f.stream.Store(nil)
			return done, fmt.Errorf("publish: %w", err)
		}
	}
	return len(events), nil
}

// Of an atomic batch (ADR-50).
const (
	batchIDHeader       = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence" // from 1; a hole makes the broker refuse the batch
	batchCommitHeader   = "Nats-Batch-Commit"
)

// publishBatch publishes all messages or none of them. After a *nats.APIError none is stored; after another error all
// may be, or may yet be. A batch that is late changes nothing then: the broker refuses it for the ids of its messages.
func (f *Forwarder) publishBatch(ctx context.Context, subjects []string, messages []*message.Message) error {
	id := uuid.NewString()
	for i, m := range messages {
		published, err := f.marshaler.Marshal(subjects[i], m)
		if err != nil {
			return err
		}
		published.Header.Set(nats.MsgIdHdr, m.UUID)
		published.Header.Set(batchIDHeader, id)
		published.Header.Set(batchSequenceHeader, strconv.Itoa(i+1))
		if i < len(messages)-1 {
			if err := f.connected.PublishMsg(published); err != nil {
				return err
			}
			continue
		}
		published.Header.Set(batchCommitHeader, "1")
		answer, err := f.connected.RequestMsgWithContext(ctx, published)
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
	broker, err := jetstream.New(f.connected)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	stream, err := broker.Stream(ctx, Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = broker.CreateStream(ctx, jetstream.StreamConfig{
			Name: Name, Description: "events of the change feeds of an Integrity Ledger", Subjects: []string{streamSubjects + ".>"},
			Storage: jetstream.FileStorage, Duplicates: streamWindow, AllowAtomicPublish: true,
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

func (f *Forwarder) Close() { f.connected.Close() }
