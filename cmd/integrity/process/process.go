// Package process sets the limits that every process of the program shares: for its HTTP servers and its garbage
// collector.
package process

import (
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Limits of HTTP servers (contract section 9). Handlers limit the bodies that they read.
const (
	readHeaderTimeout = 5 * time.Second
	// ReadTimeout ends a request whose body no handler reads. Handlers that read a body wait ten seconds for it.
	ReadTimeout    = 40 * time.Second
	maxHeaderBytes = 16 << 10
	idleTimeout    = 60 * time.Second
	writeTimeout   = 40 * time.Second
)

// NewHTTPServer returns a server with the limits of the service.
func NewHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       ReadTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      writeTimeout,
	}
}

// CollectLess lets the heap grow to five times the live data before a collection, unless GOGC or GOMEMLIMIT is set. The
// program keeps little in memory: with Go's default, collecting took a tenth of the processor under load.
func CollectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		limitGarbage()
	}
}

// minMemoryLimit is the lowest memory limit: up to this much memory the Go runtime collects only as GOGC says.
const minMemoryLimit = 160 << 20

// limitGarbage sets the memory limit to minMemoryLimit, or to twice the memory in use if that is more, and repeats that
// after every collection. With a fixed limit the collector would run without end once that much is in use.
func limitGarbage() {
	used := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(used)
	limit := max(minMemoryLimit, 2*int64(used[0].Value.Uint64()+used[1].Value.Uint64()))
	if limit != debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
	type collected [32]byte // large enough to be allocated by itself
	runtime.AddCleanup(new(collected), func(struct{}) { limitGarbage() }, struct{}{})
}
