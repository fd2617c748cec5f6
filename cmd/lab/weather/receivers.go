package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain"
	"integrityledger/eventstore/pgtest/network"
)

// receivers accept the webhooks of all destinations. During the faults they refuse, hang, cut connections and fail.
type receivers struct {
	w      *world
	url    string
	fair   atomic.Bool
	mu     sync.Mutex
	rng    *rand.Rand
	known  map[string]destination // by path
	failed map[string]bool        // events refused once, by destination
}

type destination struct{ id, secret string }

func (w *world) startReceivers(t testing.TB, rng *rand.Rand) *receivers {
	r := &receivers{w: w, rng: rng, known: map[string]destination{}, failed: map[string]bool{}}
	server := httptest.NewUnstartedServer(r)
	server.Config.ErrorLog = w.quiet
	server.Start()
	t.Cleanup(func() {
		r.fair.Store(true)
		server.CloseClientConnections()
		server.Close()
	})
	link := network.Listen(
		t, network.Address{Network: "tcp", Name: "127.0.0.1:0"},
		network.Address{Network: "tcp", Name: strings.TrimPrefix(server.URL, "http://")},
	)
	w.links["services → receivers"] = link
	r.url = "http://" + link.At.Name
	return r
}

func (r *receivers) ServeHTTP(rw http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the sender was killed within a request
	}
	r.mu.Lock()
	at, known := r.known[request.URL.Path]
	mood := r.rng.IntN(100)
	hang := time.Duration(r.rng.IntN(12000)) * time.Millisecond
	r.mu.Unlock()
	if !known {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	var e struct {
		ID, PublicID, RecordStatus string
		DocumentVersion            int32
	}
	if json.Unmarshal(body, &e) != nil {
		r.w.violation("a webhook has the body %q", body)
		return
	}
	status := http.StatusOK
	// The second attempt comes after five seconds. The third comes only after minutes, too late for the run.
	if !r.fair.Load() && !r.again(at.id+e.ID, mood) {
		switch {
		case mood < 8:
			status = http.StatusInternalServerError
		case mood < 12:
			status = http.StatusServiceUnavailable
		case mood < 15: // hang, then answer
			time.Sleep(hang)
		case mood < 20: // accept, but the answer is lost
			status = 0
		}
	}
	sum := sha256.Sum256(body)
	r.w.history.End(history.End{Receipt: &history.Receipt{
		Webhook: at.id, At: r.w.history.Now(), EventID: e.ID, BodySHA256: hex.EncodeToString(sum[:]),
		Signed: signed(request.Header.Get("Service-Signature"), body, at.secret),
		Status: status, PublicID: e.PublicID, Version: e.DocumentVersion, RecordStatus: e.RecordStatus,
	}})
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	rw.WriteHeader(status)
}

// again reports whether an attempt was refused before, and records one that is about to be refused.
func (r *receivers) again(of string, mood int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.failed[of]
	r.failed[of] = before || mood < 20
	return before
}

// signed checks the signature, but not its time: clocks are moved on purpose.
func signed(header string, body []byte, secret string) bool {
	parts := strings.Split(header, ",")
	t, found := strings.CutPrefix(parts[0], "t=")
	if !found {
		return false
	}
	var seconds int64
	if json.Unmarshal([]byte(t), &seconds) != nil {
		return false
	}
	want := strings.Split(domain.SignWebhook(time.Unix(seconds, 0), body, secret), ",")
	return slices.Contains(parts[1:], want[1])
}
