package consumer

import "testing"

// TestTopicInsertsNothing: the library cannot append events.
func TestTopicInsertsNothing(t *testing.T) {
	if q, err := new(topic).InsertQuery("t", nil); err == nil {
		t.Errorf("%+v", q)
	}
}
