// Package stream forwards the events of all change feeds to NATS JetStream, through a Watermill publisher.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/consumer"
	"integrityledger/handlers/action"
	"integrityledger/projections/query"
)

const (
	// Consumer is the name that positions are kept under.
	Consumer  = "nats"
	topic     = "integrity.events"
	pageLimit = 500
)

// Metadata of a message: what the feed shows too, and as its correlation id the request's, which the feed does not
// show.
const (
	metadataType         = "type"
	metadataOrganization = "organization"
	metadataCompany      = "company"
)

// Forwarder publishes the events of all feeds after their commit: exactly the elements of the change feed, each with
// its event's id as the message's. Of all processes one at a time forwards a page of a shard. An event whose
// acknowledgement was lost is published again, under the same id.
//
// Messages that are published while others wait for their acknowledgements lose their order where one of them fails:
// those after it are stored, and its repetition comes behind them. So the publisher stores all messages of a page or
// none. Where it cannot, it answers ErrNotStored, and each event waits for the acknowledgement of the one before it.
type Forwarder struct {
	*consumer.Consumer
	store     *query.Store
	publisher message.Publisher
}

// ErrNotStored is a publisher's error that says that of several messages none is stored or will be.
var ErrNotStored = errors.New("none of the messages is stored")

// Config is what a Forwarder needs.
type Config struct {
	Publisher message.Publisher // that keeps to the deadlines of messages; Close closes it
	Pool      *pgxpool.Pool     // from Primary.ConsumerPool
	Nodes     *consumer.Nodes   // have the transactions of the pages. Nil: Pool does
	Store     *query.Store
	Shards    int
	Log       *slog.Logger
}

// New makes a Forwarder; it needs no broker that answers.
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
		return nil, fmt.Errorf("forward events: %w", err)
	}
	return f, nil
}

// Close closes the publisher.
func (f *Forwarder) Close() { _ = f.publisher.Close() }

// forward publishes what of a page the feeds show: order holds within a shard. It takes no longer than the context of
// the page allows, and says how far it has come.
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
			return 0, fmt.Errorf("event %s: %w", e.ID, err)
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
		default: // it holds an event that an earlier attempt has stored, or the broker has its hands full
			f.Log.Debug("the broker refused a batch; its events are published one after the other",
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
				return done, nil //nolint:nilerr // a slow broker is no failure: the page that follows begins here
			}
			return done, err
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

// newMessage is an event as it is published.
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
