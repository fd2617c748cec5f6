// Package fair shares a queue or a resource among keys, such as organizations. Line decides the order: keys take turns,
// so an item waits for only a few items of every other key, however long their queues are. Room decides the bound:
// however much some keys hold, another key still gets in.
package fair

import (
	"slices"
)

// Line is a queue of items by key. Keys take turns; the items of a key keep their order. The zero Line is empty and
// ready to use. It is not safe for concurrent use: its owner locks it together with what it admits.
type Line[K comparable, T any] struct {
	items map[K][]T
	turns []K // the keys of items; the first is next
	size  int
}

// Len returns the number of items.
func (l *Line[K, T]) Len() int { return l.size }

// LenOf returns the number of items of a key.
func (l *Line[K, T]) LenOf(key K) int { return len(l.items[key]) }

// Keys returns the keys that have items, in the order of their turns. The caller must not change the slice, which is
// valid until the line changes.
func (l *Line[K, T]) Keys() []K { return l.turns }

// First returns the next item of a key, which must have one.
func (l *Line[K, T]) First(key K) T { return l.items[key][0] }

// Push appends an item to its key's items.
func (l *Line[K, T]) Push(key K, item T) { l.set(key, append(l.items[key], item), 1) }

// PushFront inserts items before the other items of their key. The key keeps its turn.
func (l *Line[K, T]) PushFront(key K, items ...T) {
	l.set(key, slices.Concat(items, l.items[key]), len(items))
}

func (l *Line[K, T]) set(key K, items []T, added int) {
	if len(items) == 0 {
		return
	}
	if l.items == nil {
		l.items = map[K][]T{}
	}
	if len(items) == added {
		l.turns = append(l.turns, key)
	}
	l.items[key] = items
	l.size += added
}

// Take removes and returns the next item of a key, which must have one. It uses up the key's turn: the key's next turn
// comes after all other waiting keys.
func (l *Line[K, T]) Take(key K) T {
	item := l.First(key)
	l.drop(key, 1)
	l.turns = slices.DeleteFunc(l.turns, func(k K) bool { return k == key })
	if l.LenOf(key) > 0 {
		l.turns = append(l.turns, key)
	}
	return item
}

// drop removes the first n items of a key without changing the turns.
func (l *Line[K, T]) drop(key K, n int) {
	mine := l.items[key]
	clear(mine[:n])
	if l.items[key] = mine[n:]; n == len(mine) {
		delete(l.items, key)
	}
	l.size -= n
}

// Remove removes the item of a key that matches, and reports whether there was one. The key keeps its turn.
func (l *Line[K, T]) Remove(key K, matches func(T) bool) bool {
	mine := l.items[key]
	i := slices.IndexFunc(mine, matches)
	if i < 0 {
		return false
	}
	l.items[key] = slices.Delete(mine, i, i+1)
	if l.size--; len(mine) == 1 {
		delete(l.items, key)
		l.turns = slices.DeleteFunc(l.turns, func(k K) bool { return k == key })
	}
	return true
}

// Deal removes up to n items in rounds: one of each key in turn, at most each of a key. Only keys take part, which must
// be some of Keys in the same order. The next Deal continues with the key after the last one served. The items are
// returned by key, in the order of compare.
func (l *Line[K, T]) Deal(keys []K, n, each int, compare func(a, b K) int) []T {
	type hand struct {
		key            K
		waiting, dealt int
	}
	hands, waiting := make([]hand, len(keys)), 0
	for i, key := range keys {
		hands[i] = hand{key: key, waiting: l.LenOf(key)}
		waiting += hands[i].waiting
	}
	n = min(n, waiting)
	dealt, next := 0, 0 // next: index of the key whose turn is next
	for round := 0; round < each && dealt < n; round++ {
		for i := range hands {
			if h := &hands[i]; h.dealt < h.waiting && dealt < n {
				h.dealt++
				dealt++
				next = i + 1
			}
		}
	}
	turns, rest := l.turns[:0], keys // in place: writes never pass reads, not even in keys
	for _, key := range l.turns {
		if len(rest) > 0 && rest[0] == key {
			rest = rest[1:]
		} else {
			turns = append(turns, key)
		}
	}
	for i := range hands {
		if h := hands[(next+i)%len(hands)]; h.dealt < h.waiting {
			turns = append(turns, h.key)
		}
	}
	l.turns = turns
	slices.SortFunc(hands, func(a, b hand) int { return compare(a.key, b.key) })
	items := make([]T, 0, dealt)
	for _, h := range hands {
		if h.dealt > 0 {
			items = append(items, l.items[h.key][:h.dealt]...)
			l.drop(h.key, h.dealt)
		}
	}
	return items
}

// Room returns how many of n more places a key may take: at most each in all, and at most one more than it then leaves
// free. So the last places go to other keys, and a key that holds none gets in while any is free.
func Room(n, held, each, free int) int { return max(0, min(n, each-held, (free-held+1)/2)) }
