package process

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"integrityledger/cmd/integrity/integritytest"
)

// TestMemoryLimitFollowsUse: the limit rises and falls with the memory in use, so that the collector does not run all
// the time.
func TestMemoryLimitFollowsUse(t *testing.T) {
	limitGarbage()
	much := make([]byte, minMemoryLimit)
	limited := func(what string, holds func(limit int64) bool) {
		t.Helper()
		integritytest.Eventually(t, what, func() error {
			runtime.GC()
			if limit := debug.SetMemoryLimit(-1); !holds(limit) {
				return fmt.Errorf("the limit is %d", limit)
			}
			return nil
		})
	}
	limited("the limit rises", func(limit int64) bool { return limit >= 2*minMemoryLimit })
	runtime.KeepAlive(much)
	limited("the limit falls", func(limit int64) bool { return limit < 2*minMemoryLimit })
}
