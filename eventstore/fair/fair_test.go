package fair

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type thing struct{ key, number int }

// model is the simplest implementation of a line: all items in arrival order, and the keys in turn.
type model struct {
	items []thing
	turns []int
}

func (m *model) of(key int) (list []thing) {
	for _, it := range m.items {
		if it.key == key {
			list = append(list, it)
		}
	}
	return list
}

func (m *model) remove(it thing) {
	m.items = slices.Delete(m.items, slices.Index(m.items, it), slices.Index(m.items, it)+1)
}

func (m *model) turn(key int, last bool) {
	i := slices.Index(m.turns, key)
	switch {
	case i < 0 && len(m.of(key)) > 0:
		m.turns = append(m.turns, key)
	case i >= 0 && (last || len(m.of(key)) == 0):
		if m.turns = slices.Delete(m.turns, i, i+1); len(m.of(key)) > 0 {
			m.turns = append(m.turns, key)
		}
	}
}

// TestLineIsItsModel: after any operations a line has the same content and gives the same answers as its model.
func TestLineIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line[int, thing]
		var m model
		made := 0
		key := rapid.IntRange(0, 4)
		fresh := func(key int) thing { made++; return thing{key, made} }
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				it := fresh(key.Draw(t, "key"))
				l.Push(it.key, it)
				m.items = append(m.items, it)
				m.turn(it.key, false)
			},
			"push front": func(t *rapid.T) {
				k, n := key.Draw(t, "key"), rapid.IntRange(0, 3).Draw(t, "n")
				var back []thing
				for range n {
					back = append(back, fresh(k))
				}
				l.PushFront(k, back...)
				m.items = slices.Concat(back, m.items)
				m.turn(k, false)
			},
			"take": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if l.LenOf(k) == 0 {
					return
				}
				want := m.of(k)[0]
				if first, got := l.First(k), l.Take(k); first != want || got != want {
					t.Fatalf("first %v, taken %v, want %v", first, got, want)
				}
				m.remove(want)
				m.turn(k, true)
			},
			"remove": func(t *rapid.T) {
				it := thing{key.Draw(t, "key"), rapid.IntRange(0, made).Draw(t, "number")}
				found := slices.Contains(m.items, it)
				if got := l.Remove(it.key, func(o thing) bool { return o == it }); got != found {
					t.Fatalf("removed %v: %t", it, got)
				}
				if found {
					m.remove(it)
					m.turn(it.key, false)
				}
			},
			"deal": func(t *rapid.T) {
				n, each := rapid.IntRange(0, 12).Draw(t, "n"), rapid.IntRange(0, 4).Draw(t, "each")
				left := key.Draw(t, "key") // does not take part
				keys := slices.DeleteFunc(slices.Clone(l.Keys()), func(k int) bool { return k == left })
				got := l.Deal(keys, n, each, cmp.Compare[int])
				var want []thing
				served := map[int]int{}
				order := slices.Clone(keys)
				for progress := true; progress && len(want) < n; {
					progress = false
					for _, k := range keys {
						if mine := m.of(k); len(mine) > 0 && served[k] < each && len(want) < n {
							want = append(want, mine[0])
							served[k]++
							m.remove(mine[0])
							at := slices.Index(order, k) // a served key comes after all others
							order = append(slices.Delete(order, at, at+1), k)
							progress = true
						}
					}
				}
				slices.SortStableFunc(want, func(a, b thing) int { return cmp.Compare(a.key, b.key) })
				if !slices.Equal(got, want) {
					t.Fatalf("dealt %v, want %v", got, want)
				}
				// A key that was served less often than another in the same deal comes before it.
				for i, k := range l.Keys() {
					if !slices.Contains(keys, k) {
						continue
					}
					for _, later := range l.Keys()[i+1:] {
						if slices.Contains(keys, later) && served[k] > served[later] {
							t.Fatalf("%d was served %d times and comes before %d, served %d times", k, served[k], later, served[later])
						}
					}
				}
				m.turns = slices.Clone(l.Keys())
			},
			"": func(t *rapid.T) {
				if l.Len() != len(m.items) || !slices.Equal(l.Keys(), m.turns) {
					t.Fatalf("%d items and turns %v, want %d and %v", l.Len(), l.Keys(), len(m.items), m.turns)
				}
				for k := range 5 {
					if mine := m.of(k); l.LenOf(k) != len(mine) || slices.Contains(l.Keys(), k) != (len(mine) > 0) {
						t.Fatalf("key %d has %d items, want %d; turns %v", k, l.LenOf(k), len(mine), l.Keys())
					}
				}
			},
		})
	})
}

// TestNoKeyWaitsForMoreThanOneTurnOfEveryOther: whatever other keys push meanwhile, Take for the key whose turn it is,
// and Deal, serve a waiting key before any other key is served twice.
func TestNoKeyWaitsForMoreThanOneTurnOfEveryOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line[int, int]
		for _, k := range rapid.SliceOfN(rapid.IntRange(1, 6), 0, 60).Draw(t, "before") {
			l.Push(k, k)
		}
		l.Push(0, 0)
		group := rapid.IntRange(0, 8).Draw(t, "group") // 0: one by one
		served := map[int]int{}                        // before key 0, or the group with it, is served
		for l.LenOf(0) > 0 {
			for _, k := range rapid.SliceOfN(rapid.IntRange(1, 6), 0, 6).Draw(t, "meanwhile") {
				l.Push(k, k)
			}
			var taken []int
			if group == 0 {
				taken = []int{l.Take(l.Keys()[0])}
			} else {
				taken = l.Deal(l.Keys(), group, 1, cmp.Compare[int])
			}
			if l.LenOf(0) > 0 {
				for _, k := range taken {
					served[k]++
				}
			}
		}
		for k, n := range served {
			if n > 1 {
				t.Fatalf("key %d was served %d times while another waited", k, n)
			}
		}
	})
}

// TestRoomForAFurtherKey: whatever keys request, the bounds hold, and a key that holds nothing gets a place while any
// is free.
func TestRoomForAFurtherKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 100).Draw(t, "total")
		each := rapid.IntRange(1, total).Draw(t, "each")
		held, taken := map[int]int{}, 0
		for range rapid.IntRange(0, 50).Draw(t, "questions") {
			k, n := rapid.IntRange(0, 9).Draw(t, "key"), rapid.IntRange(1, total).Draw(t, "n")
			free := total - taken
			got := Room(n, held[k], each, free)
			if got < 0 || got > n || held[k]+got > each || taken+got > total || got > 0 && held[k]+got > free-got+1 {
				t.Fatalf("%d of %d places with %d held and %d free", got, n, held[k], free)
			}
			if held[k] == 0 && free > 0 && got == 0 {
				t.Fatalf("a key that holds nothing is refused while %d are free", free)
			}
			held[k] += got
			taken += got
		}
	})
}
