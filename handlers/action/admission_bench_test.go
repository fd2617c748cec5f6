package action

import (
	"sync/atomic"
	"testing"

	"integrityledger/domain"
)

// BenchmarkSingles admits single commands of 8 organizations under 64 goroutines.
func BenchmarkSingles(b *testing.B) {
	s := newSingles(nil)
	var workers atomic.Uint32
	b.SetParallelism(32) // times two processors
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		o := domain.OrganizationID{byte(1 + workers.Add(1)%8)}
		for pb.Next() {
			release, err := s.Acquire(b.Context(), o, 1)
			if err != nil {
				b.Error(err)
				return
			}
			release()
		}
	})
}
