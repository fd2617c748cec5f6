package handlers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// deadlines is an answer that notes until when its connection may be read.
type deadlines struct {
	*httptest.ResponseRecorder
	read  []time.Time
	write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = append(d.read, t); return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// portions gives so many bytes a read at most.
type portions struct {
	io.Reader
	size int
}

func (p portions) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }
func (portions) Close() error                 { return nil }

// TestBodyTimeGrows: after the grace every 64 KiB that have arrived are worth a second, whether or not the length was
// announced, and the answer still has its time after the largest body.
func TestBodyTimeGrows(t *testing.T) {
	s := &server{Config: Config{BodyGrace: bodyGrace}}
	for _, rule := range []bodyRule{bodyRequired, bodyBatch, bodyManifest, bodyMessage, bodyFile} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodPost, "/", portions{strings.NewReader(strings.Repeat(" ", 3*bodyRate)), bodyRate})
		before := time.Now()
		paced, err := s.pace(w, r, rule)
		if err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		for range 3 {
			if _, err := io.ReadFull(r.Body, make([]byte, bodyRate)); err != nil {
				t.Fatal(err)
			}
		}
		first := w.read[0]
		if first.Before(before.Add(10*time.Second)) || first.After(after.Add(10*time.Second)) {
			t.Errorf("rule %d: the first byte may take %s", rule, first.Sub(before))
		}
		for i, deadline := range w.read {
			if grown := deadline.Sub(first); grown != time.Duration(i)*time.Second {
				t.Errorf("rule %d: %d KiB are worth %s", rule, i*64, grown)
			}
		}
		paced.arrived()
		if last := w.read[len(w.read)-1]; !last.IsZero() {
			t.Errorf("rule %d: the deadline stays at %s", rule, last)
		}
		if wants := after.Add(rule.most() + requestTimeout); w.write.Before(wants) {
			t.Errorf("rule %d: the answer must be written %s too early", rule, wants.Sub(w.write))
		}
	}
}

// TestUnwantedBody: it is passed over for as long as it arrives, but not for ever.
func TestUnwantedBody(t *testing.T) {
	const size = 3000
	for name, test := range map[string]struct {
		bytes, left int
		begun       bool
	}{
		"all of it":           {100 << 10, 0, true},
		"more than is read":   {maxRest + 100<<10, 100<<10 - maxRest%size, true},
		"one to be asked for": {100, 100, false},
	} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		rest := strings.NewReader(strings.Repeat(" ", test.bytes))
		before := time.Now()
		passOver(w, portions{rest, size}, test.begun)
		end := time.Now().Add(bodyGrace)
		if left := rest.Len(); left < test.left-size || left > test.left {
			t.Errorf("%s: %d bytes are left", name, left)
		}
		if len(w.read) == 0 {
			t.Fatalf("%s: no deadline", name)
		}
		for i, due := range w.read {
			if due.Before(before.Add(restTime)) || due.After(end) || i > 0 && !due.After(w.read[i-1]) {
				t.Errorf("%s: deadline %d is %s", name, i, due.Sub(before))
			}
		}
	}
}

// TestRequestOutlivesItsBody: the request's own time begins when the body is there.
func TestRequestOutlivesItsBody(t *testing.T) {
	for name, rt := range map[string]route{
		"batch": {methods: map[string]endpoint{http.MethodPost: {policy: policy{body: bodyBatch}}}},
		"MCP":   {methods: map[string]endpoint{http.MethodPost: {policy: policy{body: bodyMessage}}}},
		"none":  {methods: map[string]endpoint{http.MethodGet: {}}},
	} {
		limit := map[string]int64{"batch": maxBatch, "MCP": maxMessage}[name]
		wants := requestTimeout
		if limit > 0 {
			wants += 10*time.Second + time.Duration(limit/bodyRate)*time.Second
		}
		if got := rt.timeout(); got != wants {
			t.Errorf("%s: %s, must be %s", name, got, wants)
		}
	}
}
