package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	nats "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"integrityledger/domain/say"
)

// Settings of the stream. It is created if missing; an existing stream keeps the settings of the broker's operator.
const (
	Name = "INTEGRITY"
	// window is how long the broker remembers event IDs to detect duplicates.
	window = time.Hour
	// makingStream is how long the broker may take to describe the stream if no message's deadline applies.
	makingStream = time.Second
)

// NATS publishes to NATS JetStream: each message under TOPIC.ORGANIZATION.COMPANY with its ID, by which the broker
// drops duplicates. Several messages form one atomic batch (ADR-50 of NATS, nats-server 2.12): the broker stores all of
// them or none.
type NATS struct {
	conn      *nats.Conn
	broker    jetstream.JetStream
	marshaler watermillnats.NATSMarshaler
	stream    atomic.Pointer[jetstream.StreamConfig] // settings on the broker; nil: unknown, ask again
	log       *slog.Logger
}

func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" {
		return say.New("it must be nats:// or tls://, with [user:password@]host[:port]")
	}
	return nil
}

// NewNATS does not need a reachable broker: it connects when there is one. credentials is the path of a file, or empty.
func NewNATS(address, credentials string, log *slog.Logger) (*NATS, error) {
	n := &NATS{log: log}
	options := []nats.Option{
		nats.Name("integrity"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.ReconnectBufSize(-1),        // fail instead of buffering messages
		nats.FlusherTimeout(time.Second), // a broker that stops reading must not block a page or the end of the process
		nats.ReconnectOnFlusherError(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("broker disconnected; events are forwarded once it is back", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			n.stream.Store(nil) // it may be another broker
			log.Info("broker reconnected")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("broker", "error", err) }),
	}
	if credentials != "" {
		options = append(options, nats.UserCredentials(credentials))
	}
	var err error
	if n.conn, err = nats.Connect(address, options...); err != nil {
		return nil, say.Errorf("INTEGRITY_NATS_URL: %w", err)
	}
	if n.broker, err = jetstream.New(n.conn); err != nil {
		n.conn.Close()
		return nil, say.Errorf("forward to NATS: %w", err)
	}
	log.Info("events are forwarded", "stream", Name, "subjects", topic+".>")
	return n, nil
}

// Close implements message.Publisher.
func (n *NATS) Close() error {
	n.conn.Close()
	return nil
}

// ErrBrokerAway means that there is no connection.
var ErrBrokerAway = say.New("the broker does not answer; events are forwarded once it does")

// Publish implements message.Publisher. It obeys the deadline of the first message's context. Without messages it only
// makes sure that the stream exists. After an error other than ErrNotStored any message may be stored.
func (n *NATS) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), makingStream)
	defer cancel()
	if len(messages) > 0 {
		ctx = messages[0].Context()
	}
	if !n.conn.IsConnected() {
		return ErrBrokerAway
	}
	stream, err := n.ensureStream(ctx)
	if err != nil || len(messages) == 0 {
		return err
	}
	if len(messages) > 1 && !stream.AllowAtomicPublish {
		return say.Errorf("%w: the stream does not allow atomic batches", ErrNotStored)
	}
	published := make([]*nats.Msg, len(messages))
	for i, m := range messages {
		if published[i], err = n.marshal(topic, m); err != nil {
			return say.Errorf("message %s: %w", m.UUID, err)
		}
	}
	if len(published) > 1 {
		err = n.publishBatch(ctx, published)
	} else {
		_, err = n.broker.PublishMsg(ctx, published[0])
	}
	if err != nil && !errors.Is(err, ErrNotStored) {
		n.stream.Store(nil) // another client may have removed it
		return say.Errorf("publish: %w", err)
	}
	return err
}

// marshal creates a NATS message. It leaves out the metadata, because the broker gets only what the feed shows.
func (n *NATS) marshal(topic string, m *message.Message) (*nats.Msg, error) {
	subject := topic + "." + m.Metadata.Get(metadataOrganization) + "." + m.Metadata.Get(metadataCompany)
	marshaled, err := n.marshaler.Marshal(subject, message.NewMessage(m.UUID, m.Payload))
	if err == nil {
		marshaled.Header.Set(nats.MsgIdHdr, m.UUID)
	}
	return marshaled, err
}

// Headers of an atomic batch (ADR-50).
const (
	batchIDHeader       = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence" // starts at 1; the broker rejects a batch with a gap
	batchCommitHeader   = "Nats-Batch-Commit"
)

// publishBatch publishes all messages or none. After ErrNotStored none is stored; after another error all may be
// stored, now or later. A late batch then changes nothing: the broker rejects its messages' IDs as duplicates.
func (n *NATS) publishBatch(ctx context.Context, messages []*nats.Msg) error {
	id := rand.Text()
	for i, m := range messages {
		m.Header.Set(batchIDHeader, id)
		m.Header.Set(batchSequenceHeader, strconv.Itoa(i+1))
		if err := inTime(ctx); err != nil {
			return err
		}
		if i < len(messages)-1 {
			if err := n.conn.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		m.Header.Set(batchCommitHeader, "1")
		answer, err := n.conn.RequestMsgWithContext(ctx, m)
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
			return say.Errorf("acknowledgement of a batch: %w", err)
		case acknowledged.Error != nil:
			return say.Errorf("%w: %s", ErrNotStored, acknowledged.Error.Description)
		case acknowledged.Batch != id || acknowledged.Count != len(messages):
			return say.Errorf("the broker acknowledged %d of %d messages of a batch", acknowledged.Count, len(messages))
		}
	}
	return nil
}

// ensureStream creates the stream if it is missing, and returns its settings.
func (n *NATS) ensureStream(ctx context.Context) (*jetstream.StreamConfig, error) {
	if c := n.stream.Load(); c != nil {
		return c, nil
	}
	stream, err := n.broker.Stream(ctx, Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = n.broker.CreateStream(ctx, jetstream.StreamConfig{
			Name: Name, Description: "events of the change feeds of an Integrity Ledger", Subjects: []string{topic + ".>"},
			Storage: jetstream.FileStorage, Duplicates: window, AllowAtomicPublish: true,
		})
	}
	if err != nil {
		return nil, say.Errorf("stream %s: %w", Name, err)
	}
	config := stream.CachedInfo().Config
	if n.stream.Swap(&config) == nil && !config.AllowAtomicPublish {
		n.log.Warn("the stream does not allow atomic batches: events are forwarded one by one", "stream", Name)
	}
	return &config, nil
}
