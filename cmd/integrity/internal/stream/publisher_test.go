package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/handlers/action"
)

// single is a publisher that accepts one message at a time, and at first rejects one of them.
type single struct {
	mu       sync.Mutex
	messages []*message.Message
	refuses  int
	closed   bool
}

func (s *single) Publish(to string, messages ...*message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case to != topic:
		return fmt.Errorf("published to %s", to)
	case len(messages) != 1:
		return ErrNotStored
	case len(s.messages) == 3 && s.refuses > 0:
		s.refuses--
		return errors.New("refused on purpose")
	}
	s.messages = append(s.messages, messages...)
	return nil
}

func (s *single) Close() error {
	s.closed = true
	return nil
}

// TestAnyPublisher: any Watermill publisher gets the feed's elements, each once and in order, despite an error. Their
// metadata are the type, organization, company and request ID.
func TestAnyPublisher(t *testing.T) {
	t.Parallel()
	f := newForwarding(t, integritytest.NewBroker(t))
	f.register(t, 0, 10)
	s := &single{refuses: 1}
	f.config.Publisher = s
	made, err := New(f.config)
	if err != nil {
		t.Fatal(err)
	}
	stop := f.run(t, made)
	f.forwarded(t)
	stop()
	made.Close()
	written := f.Events(t, f.organization.ID.Shard())
	feed, err := f.config.Store.StreamEvents(t.Context(), f.organization.ID.Shard(), slices.Clone(written))
	if err != nil || len(s.messages) != len(feed) || made.Failures() != 1 || !s.closed {
		t.Fatalf("%d messages of %d events, %d failures, closed %v: %v",
			len(s.messages), len(feed), made.Failures(), s.closed, err)
	}
	for i, e := range feed {
		body, err := json.Marshal(action.FeedEvent(e.FeedEvent, e.CompanyReference))
		if err != nil {
			t.Fatal(err)
		}
		want := message.NewMessage(e.ID.String(), body)
		want.Metadata = message.Metadata{
			"type": string(e.Type), "organization": e.Organization.String(), "company": e.Company.String(),
			"correlation_id": written[e.Position-1].RequestID,
		}
		if got := s.messages[i]; !got.Equals(want) {
			t.Errorf("message %d is %s %s %v, not %s %s %v",
				i, got.UUID, got.Payload, got.Metadata, want.UUID, want.Payload, want.Metadata)
		}
	}
}
