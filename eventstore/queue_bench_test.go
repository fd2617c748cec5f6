package eventstore

import "testing"

// BenchmarkQueue puts commands of 8 organizations into the queue and takes them in groups of 64.
func BenchmarkQueue(b *testing.B) {
	q, items := newQueue(4096), make([]item, 64)
	for i := range items {
		items[i] = command(byte(1+i%8), i)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, it := range items {
			if err := q.put(it, false); err != nil {
				b.Fatal(err)
			}
		}
		for n := 0; n < len(items); {
			n += len(q.take(512))
		}
	}
}
