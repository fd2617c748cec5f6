package wire

import (
	"time"

	"integrityledger/domain/evidence"
)

func TimeOrNull(t *time.Time) *string { return ViewOrNull(t, evidence.FormatTime) }

// Each returns the view of every item. The result is never nil, so an empty list encodes as [].
func Each[Item, View any](list []Item, show func(Item) View) []View {
	views := make([]View, len(list))
	for i, item := range list {
		views[i] = show(item)
	}
	return views
}

// ViewOrNull returns the view of an item, or nil without one.
func ViewOrNull[Item, View any](item *Item, show func(Item) View) *View {
	if item == nil {
		return nil
	}
	return new(show(*item))
}

// OrNull returns a pointer to a value, or nil for the zero value.
func OrNull[Value comparable](value Value) *Value {
	if value == *new(Value) {
		return nil
	}
	return &value
}
