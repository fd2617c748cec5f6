package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/handlers"
	"integrityledger/projections"
)

// What the broker is given. The stream is made where it is missing, and left as the broker's operator has set it.
const (
	streamName     = "INTEGRITY"
	streamSubjects = "integrity.events"
	streamConsumer = "nats"
	// streamWindow is for how long the broker knows an event's id again.
	streamWindow = time.Hour
)

// forwarder publishes the events of all feeds to NATS JetStream after their commit: exactly the elements of the change
// feed, each under integrity.events.ORGANIZATION.COMPANY with its id as the message's. Of all processes one at a time
// forwards a shard. An event whose acknowledgement was lost is published again, and the broker drops it by its id.
type forwarder struct {
	*eventstore.Consumer
	store     *projections.Store
	connected *nats.Conn
	publisher message.Publisher
	made      atomic.Bool // the stream is there
}

func checkNATSURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" {
		return errors.New("nats:// or tls://, with [user:password@]host[:port] was expected")
	}
	return nil
}

// newForwarder needs no broker that answers: it connects when there is one.
func (s *service) newForwarder() (*forwarder, error) {
	if s.cfg.NATSURL == "" {
		return nil, nil
	}
	options := []nats.Option{
		nats.Name("integrity"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.ReconnectBufSize(-1), // what cannot be sent now is an error now
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.log.Warn("the broker is away; events are forwarded when it is back", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { s.log.Info("the broker is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.log.Warn("broker", "error", err) }),
	}
	if s.cfg.NATSCredentials != "" {
		options = append(options, nats.UserCredentials(s.cfg.NATSCredentials))
	}
	connected, err := nats.Connect(s.cfg.NATSURL, options...)
	if err != nil {
		return nil, fmt.Errorf("%sNATS_URL: %w", variablePrefix, err)
	}
	f := &forwarder{store: s.store, connected: connected}
	f.publisher, err = watermillnats.NewPublisherWithNatsConn(connected, watermillnats.PublisherPublishConfig{
		Marshaler: &watermillnats.NATSMarshaler{}, SubjectCalculator: watermillnats.DefaultSubjectCalculator,
		JetStream: watermillnats.JetStreamConfig{TrackMsgId: true},
	}, watermill.NopLogger{})
	if err == nil {
		f.Consumer, err = eventstore.NewConsumer(eventstore.ConsumerConfig{
			Pool: s.queue, Name: streamConsumer, Shards: s.installed.Shards, Log: s.log, Handle: f.forward,
		})
	}
	if err != nil {
		connected.Close()
		return nil, fmt.Errorf("forward to NATS: %w", err)
	}
	s.log.Info("events are forwarded", "stream", streamName, "subjects", streamSubjects+".>")
	return f, nil
}

var errBrokerAway = errors.New("the broker does not answer; events are forwarded when it does")

// forward publishes what of the events the feeds show, one after the other: order holds within a shard.
func (f *forwarder) forward(ctx context.Context, shard domain.Shard, events []domain.Event) (done int, err error) {
	if !f.connected.IsConnected() {
		return 0, errBrokerAway
	}
	if err := f.ensureStream(ctx); err != nil {
		return 0, err
	}
	list, err := f.store.StreamEvents(ctx, shard, events)
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		done = int(e.Position - events[0].Position)
		select {
		case <-ctx.Done(): // stopping, or the lease must be renewed
			return done, nil
		default:
		}
		body, err := json.Marshal(handlers.FeedEvent(e.FeedEvent, e.CompanyReference))
		if err != nil {
			return done, fmt.Errorf("event %s: %w", e.ID, err)
		}
		subject := streamSubjects + "." + e.Organization.String() + "." + e.Company.String()
		if err := f.publisher.Publish(subject, message.NewMessage(e.ID.String(), body)); err != nil {
			f.made.Store(false) // somebody may have removed it
			return done, fmt.Errorf("publish: %w", err)
		}
	}
	return len(events), nil
}

func (f *forwarder) ensureStream(ctx context.Context) error {
	if f.made.Load() {
		return nil
	}
	if !f.connected.IsConnected() {
		return errors.New("the broker is away")
	}
	stream, err := f.connected.JetStream(nats.Context(ctx))
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	_, err = stream.StreamInfo(streamName)
	if errors.Is(err, nats.ErrStreamNotFound) {
		_, err = stream.AddStream(&nats.StreamConfig{
			Name: streamName, Description: "events of the change feeds of an Integrity Ledger", Subjects: []string{streamSubjects + ".>"},
			Storage: nats.FileStorage, Duplicates: streamWindow,
		})
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", streamName, err)
	}
	f.made.Store(true)
	return nil
}

func (f *forwarder) close() { f.connected.Close() }
