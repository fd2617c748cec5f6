package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	nats "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What the broker is given. The stream is made where it is missing, and left as the broker's operator has set it.
const (
	Name = "INTEGRITY"
	// window is for how long the broker knows an event's id again.
	window = time.Hour
	// makingStream is how long the broker may take to tell of the stream where no message says it.
	makingStream = time.Second
)

// NATS publishes to NATS JetStream: each message under TOPIC.ORGANIZATION.COMPANY with its id, by which the broker
// drops a repetition. Several messages are one atomic batch (ADR-50 of NATS, nats-server 2.12), of which the broker
// stores all or nothing.
type NATS struct {
	conn      *nats.Conn
	broker    jetstream.JetStream
	marshaler watermillnats.NATSMarshaler
	stream    atomic.Pointer[jetstream.StreamConfig] // as the broker has it; nil: it must be asked
	log       *slog.Logger
}

func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" {
		return errors.New("it must be nats:// or tls://, with [user:password@]host[:port]")
	}
	return nil
}

// NewNATS needs no broker that answers: it connects when there is one. credentials is the path of a file, or empty.
func NewNATS(address, credentials string, log *slog.Logger) (*NATS, error) {
	n := &NATS{log: log}
	options := []nats.Option{
		nats.Name("integrity"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.ReconnectBufSize(-1),        // what cannot be sent now is an error now
		nats.FlusherTimeout(time.Second), // a broker that reads no more must not hold a page, nor the end of the process
		nats.ReconnectOnFlusherError(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the broker is away; events are forwarded when it is back", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			n.stream.Store(nil) // it may be another broker
			log.Info("the broker is back")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("broker", "error", err) }),
	}
	if credentials != "" {
		options = append(options, nats.UserCredentials(credentials))
	}
	var err error
	if n.conn, err = nats.Connect(address, options...); err != nil {
		return nil, fmt.Errorf("INTEGRITY_NATS_URL: %w", err)
	}
	if n.broker, err = jetstream.New(n.conn); err != nil {
		n.conn.Close()
		return nil, fmt.Errorf("forward to NATS: %w", err)
	}
	log.Info("events are forwarded", "stream", Name, "subjects", topic+".>")
	return n, nil
}

// Close implements message.Publisher.
func (n *NATS) Close() error {
	n.conn.Close()
	return nil
}

// ErrBrokerAway says that there is no connection.
var ErrBrokerAway = errors.New("the broker does not answer; events are forwarded when it does")

// Publish implements message.Publisher. It takes no longer than the context of the first message allows; without
// messages it makes sure of the stream. After an error other than ErrNotStored any message may be stored.
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
		return fmt.Errorf("%w: the stream takes no atomic batches", ErrNotStored)
	}
	published := make([]*nats.Msg, len(messages))
	for i, m := range messages {
		if published[i], err = n.marshal(topic, m); err != nil {
			return fmt.Errorf("message %s: %w", m.UUID, err)
		}
	}
	if len(published) > 1 {
		err = n.publishBatch(ctx, published)
	} else {
		_, err = n.broker.PublishMsg(ctx, published[0])
	}
	if err != nil && !errors.Is(err, ErrNotStored) {
		n.stream.Store(nil) // somebody may have removed it
		return fmt.Errorf("publish: %w", err)
	}
	return err
}

// marshal makes a message of NATS. The metadata stays here: the broker is given what the feed shows.
func (n *NATS) marshal(topic string, m *message.Message) (*nats.Msg, error) {
	subject := topic + "." + m.Metadata.Get(metadataOrganization) + "." + m.Metadata.Get(metadataCompany)
	marshaled, err := n.marshaler.Marshal(subject, message.NewMessage(m.UUID, m.Payload))
	if err == nil {
		marshaled.Header.Set(nats.MsgIdHdr, m.UUID)
	}
	return marshaled, err
}

// Of an atomic batch (ADR-50).
const (
	batchIDHeader       = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence" // from 1; a hole makes the broker refuse the batch
	batchCommitHeader   = "Nats-Batch-Commit"
)

// publishBatch publishes all messages or none of them. After ErrNotStored none is stored; after another error all may
// be, or may yet be. A batch that is late changes nothing then: the broker refuses it for the ids of its messages.
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
			return fmt.Errorf("acknowledgement of a batch: %w", err)
		case acknowledged.Error != nil:
			return fmt.Errorf("%w: %s", ErrNotStored, acknowledged.Error.Description)
		case acknowledged.Batch != id || acknowledged.Count != len(messages):
			return fmt.Errorf("the broker acknowledged %d of %d messages of a batch", acknowledged.Count, len(messages))
		}
	}
	return nil
}

// ensureStream makes the stream where it is missing, and says how it is set.
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
		return nil, fmt.Errorf("stream %s: %w", Name, err)
	}
	config := stream.CachedInfo().Config
	if n.stream.Swap(&config) == nil && !config.AllowAtomicPublish {
		n.log.Warn("the stream takes no atomic batches: events are forwarded one after the other", "stream", Name)
	}
	return &config, nil
}
