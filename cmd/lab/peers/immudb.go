package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codenotary/immudb/pkg/api/schema"
	"github.com/codenotary/immudb/pkg/client"
)

const (
	valueBytes = 900  // about as large as the data of a registration's event
	readKeys   = 8192 // keys that readers choose from, as many as the benchmark's readers of the ledger
	fillBatch  = 256

	sharedClients = 8

	database = "bench"
	// immudb refuses calls beyond this number at once. Its default, 30, refuses 64 callers.
	maxConcurrency = 512
)

// generator calls an immudb server. A client is a connection, a session and a verified state. Callers of Set and Get
// share a few clients, with which immudb is fastest: with one each, 256 callers get half as much done. A client makes
// one verified call at a time, so each caller of VerifiedSet and VerifiedGet has its own.
type generator struct {
	dir, host string
	port      int
	clients   []client.ImmuClient
	keys      [][]byte // written, for readers
}

// newGenerator serves GET /run?call=Set&c=64&for=4s, which loads the server and answers with how long each call took.
// It serves one run at a time.
func newGenerator(dir, server string) (http.Handler, func(context.Context) error, error) {
	host, text, err := net.SplitHostPort(server)
	if err != nil {
		return nil, nil, fmt.Errorf("--server: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, nil, fmt.Errorf("--server: %w", err)
	}
	g := &generator{dir: dir, host: host, port: port}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /run", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		callers, err := strconv.Atoi(q.Get("c"))
		length, lengthErr := time.ParseDuration(q.Get("for"))
		if err := errors.Join(err, lengthErr); err != nil || callers < 1 {
			http.Error(w, fmt.Sprintf("c and for must be a number and a duration: %v", err), http.StatusBadRequest)
			return
		}
		done, err := g.run(r.Context(), q.Get("call"), callers, length)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(done) // the client reports a torn answer
	})
	return mux, func(ctx context.Context) error {
		var errs []error
		for _, c := range g.clients {
			errs = append(errs, c.CloseSession(ctx))
		}
		return errors.Join(errs...)
	}, nil
}

// result is what the benchmark reads: see latencies in cmd/lab/bench.
type result struct {
	Elapsed   time.Duration   `json:"elapsedNanoseconds"`
	Latencies []time.Duration `json:"latenciesNanoseconds"`
}

// run makes calls from the given number of callers, each of which calls again at once.
func (g *generator) run(ctx context.Context, name string, callers int, length time.Duration) (result, error) {
	clients := callers
	if !strings.HasPrefix(name, "Verified") {
		clients = min(callers, sharedClients)
	}
	if err := g.connect(ctx, clients); err != nil {
		return result{}, err
	}
	call, err := g.call(ctx, name)
	if err != nil {
		return result{}, err
	}
	latencies, errs := make([][]time.Duration, callers), make([]error, callers)
	var group sync.WaitGroup
	start := time.Now()
	for i := range callers {
		c := g.clients[i%clients]
		group.Go(func() {
			for errs[i] == nil && ctx.Err() == nil && (time.Since(start) < length || len(latencies[i]) == 0) {
				began := time.Now()
				if err := call(ctx, c); err != nil {
					errs[i] = fmt.Errorf("%s: %w", name, err)
					return
				}
				latencies[i] = append(latencies[i], time.Since(began))
			}
		})
	}
	group.Wait()
	return result{time.Since(start), slices.Concat(latencies...)}, errors.Join(errors.Join(errs...), ctx.Err())
}

func (g *generator) call(ctx context.Context, name string) (func(context.Context, client.ImmuClient) error, error) {
	switch name {
	case "Set":
		return func(ctx context.Context, c client.ImmuClient) error {
			_, err := c.Set(ctx, random(16), random(valueBytes))
			return err
		}, nil
	case "VerifiedSet":
		return func(ctx context.Context, c client.ImmuClient) error {
			_, err := c.VerifiedSet(ctx, random(16), random(valueBytes))
			return err
		}, nil
	case "Get":
		return func(ctx context.Context, c client.ImmuClient) error {
			entry, err := c.Get(ctx, g.anyKey())
			return whole(entry, err)
		}, g.fill(ctx)
	case "VerifiedGet":
		return func(ctx context.Context, c client.ImmuClient) error {
			entry, err := c.VerifiedGet(ctx, g.anyKey())
			return whole(entry, err)
		}, g.fill(ctx)
	}
	return nil, fmt.Errorf("call %q must be Set, VerifiedSet, Get or VerifiedGet", name)
}

func whole(entry *schema.Entry, err error) error {
	if err == nil && len(entry.GetValue()) != valueBytes {
		err = fmt.Errorf("a value has %d bytes, not %d", len(entry.GetValue()), valueBytes)
	}
	return err
}

// connect creates the database and opens the missing sessions.
func (g *generator) connect(ctx context.Context, callers int) error {
	if len(g.clients) == 0 {
		c, err := g.open(ctx, "create", "defaultdb")
		if err != nil {
			return err
		}
		_, err = c.CreateDatabaseV2(ctx, database, &schema.DatabaseNullableSettings{
			MaxConcurrency: &schema.NullableUint32{Value: maxConcurrency},
			ReadTxPoolSize: &schema.NullableUint32{Value: maxConcurrency},
			MaxTxEntries:   &schema.NullableUint32{Value: fillBatch}, // a transaction's buffer is that large
		})
		if err := errors.Join(err, c.CloseSession(ctx)); err != nil {
			return fmt.Errorf("create the database: %w", err)
		}
	}
	for i := len(g.clients); i < callers; i++ {
		c, err := g.open(ctx, strconv.Itoa(i), database)
		if err != nil {
			return fmt.Errorf("caller %d: %w", i+1, err)
		}
		g.clients = append(g.clients, c)
	}
	return nil
}

// open opens a session. The client keeps the state that it verified last in a directory of its own.
func (g *generator) open(ctx context.Context, name, database string) (client.ImmuClient, error) {
	dir := filepath.Join(g.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := client.NewClient().WithOptions(client.DefaultOptions().WithAddress(g.host).WithPort(g.port).WithDir(dir))
	if err := c.OpenSession(ctx, []byte("immudb"), []byte("immudb"), database); err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	return c, nil
}

// fill writes the keys of the readers once.
func (g *generator) fill(ctx context.Context) error {
	for len(g.keys) < readKeys {
		keys := make([][]byte, fillBatch)
		set := &schema.SetRequest{}
		for i := range keys {
			keys[i] = random(16)
			set.KVs = append(set.KVs, &schema.KeyValue{Key: keys[i], Value: random(valueBytes)})
		}
		if _, err := g.clients[0].SetAll(ctx, set); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		g.keys = append(g.keys, keys...)
	}
	return nil
}

func (g *generator) anyKey() []byte { return g.keys[mathrand.IntN(len(g.keys))] } //nolint:gosec // any key will do

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
