package wire

import (
	"time"

	"integrityledger/domain/evidence"
)

func TimeOrNull(t *time.Time) *string { return ViewOrNull(t, evidence.FormatTime) }

// Each shows every item of a list; an empty list is [], never null.
func Each[Item, View any](list []Item, show func(Item) View) []View {
	views := make([]View, len(list))
	for i, item := range list {
		views[i] = show(item)
	}
	return views
}

// ViewOrNull shows what there is, or null.
func ViewOrNull[Item, View any](item *Item, show func(Item) View) *View {
	if item == nil {
		return nil
	}
	return new(show(*item))
}

// OrNull is null in the place of nothing.
func OrNull[Value comparable](value Value) *Value {
	if value == *new(Value) {
		return nil
	}
	return &value
}
