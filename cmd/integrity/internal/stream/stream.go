// Package stream forwards the events of all change feeds to NATS JetStream, through a Watermill publisher.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/consumer"
	"integrityledger/handlers/action"
	"integrityledger/projections/query"
)

const (
	// Consumer is the name under which the positions are stored.
	Consumer  = "nats"
	topic     = "integrity.events"
	pageLimit = 500
)

// Metadata of a message: values that the feed also shows and, as the correlation ID, the request's ID, which the feed
// does not show.
const (
	metadataType         = "type"
	metadataOrganization = "organization"
	metadataCompany      = "company"
)

// Forwarder publishes the events of all feeds after their commit: exactly the elements of the change feed, with the
// event's ID as the message's ID. Among all processes, only one at a time forwards a page of a shard. If an
// acknowledgement is lost, the event is published again under the same ID.
//
// If messages were published without waiting for each acknowledgement, a failure would change their order: the later
// ones would be stored, and the retry would follow them. So the publisher stores all messages of a page or none. If it
// cannot, it returns ErrNotStored, and the Forwarder then publishes the events one by one.
type Forwarder struct {
	*consumer.Consumer
	store     *query.Store
	publisher message.Publisher
}

// ErrNotStored is returned by a publisher if none of several messages is stored or will be stored.
var ErrNotStored = say.New("none of the messages is stored")

// Config configures a Forwarder.
type Config struct {
	Publisher message.Publisher // must obey the messages' deadlines; closed by Close
	Pool      *pgxpool.Pool     // from Primary.ConsumerPool
	Nodes     *consumer.Nodes   // run the pages' transactions; nil: Pool runs them
	Store     *query.Store
	Shards    int
	Log       *slog.Logger
}

// New creates a Forwarder. It does not need a reachable broker.
func New(c Config) (_ *Forwarder, err error) {
	f := &Forwarder{store: c.Store, publisher: c.Publisher}
	var pages []consumer.Source
	for shard := range domain.Shard(c.Shards) {
		pages = append(pages, &consumer.Pages{Name: Consumer, Shard: shard, Limit: pageLimit, Take: f.forward})
	}
	if f.Consumer, err = consumer.New(consumer.Config{
		Name: Consumer, Pool: c.Pool, Nodes: c.Nodes, Sources: pages, Log: c.Log,
		News: func(ctx context.Context) ([]int, error) {
			return consumer.Behind(ctx, c.Pool, c.Nodes, c.Shards, Consumer)
		},
	}); err != nil {
		return nil, say.Errorf("forward events: %w", err)
	}
	return f, nil
}

// Close closes the publisher.
func (f *Forwarder) Close() { _ = f.publisher.Close() }

// forward publishes the events of a page that feeds show, in the shard's order. It obeys the deadline of the page's
// context, and returns how many events are done.
func (f *Forwarder) forward(page *message.Message) (done int, err error) {
	events, err := consumer.Events(page)
	if err != nil {
		return 0, err
	}
	ctx, first := page.Context(), &events[0]
	list, err := f.store.StreamEvents(ctx, first.Shard, events)
	if err != nil {
		return 0, err
	}
	messages := make([]*message.Message, len(list))
	for i, e := range list {
		if messages[i], err = newMessage(e); err != nil {
			return 0, say.Errorf("event %s: %w", e.ID, err)
		}
		middleware.SetCorrelationID(events[e.Position-first.Position].RequestID, messages[i])
		messages[i].SetContext(ctx)
	}
	if len(messages) != 1 {
		switch err := f.publisher.Publish(topic, messages...); {
		case err == nil:
			return len(events), nil
		case !errors.Is(err, ErrNotStored):
			return 0, err
		default: // the page contains an event that an earlier attempt stored, or the broker is overloaded
			f.Log.Debug("batch rejected by the broker; publishing its events one by one",
				"shard", first.Shard, "error", err)
		}
	}
	for i, e := range list {
		done = int(e.Position - first.Position)
		if err := inTime(ctx); err != nil && done > 0 {
			return done, nil
		} else if err != nil {
			return 0, err
		}
		if err := f.publisher.Publish(topic, messages[i]); err != nil {
			if done > 0 && inTime(ctx) != nil {
				return done, nil //nolint:nilerr // a slow broker is no failure: the next page starts here
			}
			return done, err
		}
	}
	return len(events), nil
}

// inTime returns an error once a page's deadline has passed by the clock. In a process that was frozen, the timer of
// ctx may fire later than this runs.
func inTime(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// newMessage converts an event to a message.
func newMessage(e query.StreamEvent) (*message.Message, error) {
	body, err := json.Marshal(action.FeedEvent(e.FeedEvent, e.CompanyReference))
	if err != nil {
		return nil, err
	}
	m := message.NewMessage(e.ID.String(), body)
	m.Metadata = message.Metadata{
		metadataType: string(e.Type), metadataOrganization: e.Organization.String(), metadataCompany: e.Company.String(),
	}
	return m, nil
}
