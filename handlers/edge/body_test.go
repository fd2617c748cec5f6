package edge

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"integrityledger/domain"
)

// deadlines is a connection that records its read deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	read  []time.Time
	write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = append(d.read, t); return nil }

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// portions returns at most a number of bytes per read.
type portions struct {
	io.Reader
	size int
}

func (p portions) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }

func (portions) Close() error { return nil }

// After the grace period every 64 KiB that have arrived add a second, whether or not the length was announced. The
// answer still has its time after the largest body.
func TestBodyTimeGrows(t *testing.T) {
	s := &Edge{Identity: Identity{Config: Config{BodyGrace: bodyGrace}}}
	for _, rule := range []BodyRule{BodyRequired, BodyBatch, BodyManifest, BodyMessage, BodyFile} {
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
		paced.Arrived()
		if last := w.read[len(w.read)-1]; !last.IsZero() {
			t.Errorf("rule %d: the deadline stays at %s", rule, last)
		}
		if wants := after.Add(rule.timeout() + RequestTimeout); w.write.Before(wants) {
			t.Errorf("rule %d: the answer must be written %s too early", rule, wants.Sub(w.write))
		}
	}
}

// An unwanted body is read for as long as it arrives, but not without end.
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

// The time of the request begins after its body has been read.
func TestRequestOutlivesItsBody(t *testing.T) {
	for name, rt := range map[string]Route{
		"batch": {Methods: map[string]Endpoint{http.MethodPost: {Policy: Policy{Body: BodyBatch}}}},
		"MCP":   {Methods: map[string]Endpoint{http.MethodPost: {Policy: Policy{Body: BodyMessage}}}},
		"none":  {Methods: map[string]Endpoint{http.MethodGet: {}}},
	} {
		limit := map[string]int64{"batch": maxBatch, "MCP": maxMessage}[name]
		wants := RequestTimeout
		if limit > 0 {
			wants += 10*time.Second + time.Duration(limit/bodyRate)*time.Second
		}
		if got := rt.timeout(); got != wants {
			t.Errorf("%s: %s, must be %s", name, got, wants)
		}
	}
}

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func (untouched) Close() error { return nil }

// Beyond an organization's share no byte of a large body is read, while small bodies and other organizations continue.
func TestLargeBodiesWaitUnread(t *testing.T) {
	s := &Edge{Identity: Identity{Config: Config{Now: time.Now}}, bodies: newBodies(nil)}
	read := func(o byte, rule BodyRule, body io.ReadCloser, length int64, patience bool) (*Call, error) {
		c := &Call{Decision: Decision{Access: domain.Access{Organization: domain.OrganizationID{o}}}}
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), callKey{}, c))
		defer cancel()
		if !patience {
			cancel()
		}
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
		r.Body, r.ContentLength = body, length
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Content-Length", "1")
		return c, s.readBody(httptest.NewRecorder(), r, rule)
	}
	text := strings.Repeat("x", MaxDeclarations*bytesPerItem)
	var calls []*Call
	for range bodyShare / MaxDeclarations {
		c, err := read(1, BodyBatch, io.NopCloser(strings.NewReader(text)), int64(len(text)), true)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	for _, rule := range []BodyRule{BodyBatch, BodyContent, BodyManifest} {
		_, err := read(1, rule, untouched{t}, 1000, false)
		if refused := Refusal(err); refused == nil || refused.Code != domain.TemporarilyUnavailable {
			t.Errorf("rule %d: %v", rule, err)
		}
	}
	for _, c := range []struct {
		organization byte
		rule         BodyRule
	}{{1, BodyRequired}, {1, BodyMessage}, {2, BodyBatch}} {
		if _, err := read(c.organization, c.rule, io.NopCloser(strings.NewReader("{}")), 2, true); err != nil {
			t.Errorf("organization %d, rule %d: %v", c.organization, c.rule, err)
		}
	}
	for _, release := range calls[0].over {
		release()
	}
	if _, err := read(1, BodyBatch, io.NopCloser(strings.NewReader("{}")), 2, true); err != nil {
		t.Error(err)
	}
	// A body that is refused for its length holds no units.
	held := s.bodies.Held()
	if _, err := read(3, BodyBatch, untouched{t}, maxBatch+1, true); Refusal(err).Code != domain.PayloadTooLarge ||
		s.bodies.Held() != held {
		t.Errorf("%v; %d units are held, and %d were", err, s.bodies.Held(), held)
	}
}

func TestUnitsOfBodies(t *testing.T) {
	for _, c := range []struct {
		rule  BodyRule
		bytes int64
		want  int
	}{
		{BodyBatch, 0, 1}, {BodyBatch, 2000, 11}, {BodyBatch, maxBatch, MaxDeclarations},
		{BodyContent, 100, 1}, {BodyContent, maxContent, 513}, {BodyManifest, domain.MaxManifestBytes, 33},
	} {
		if got := c.rule.units(c.bytes); got != c.want {
			t.Errorf("rule %d, %d bytes: %d units, want %d", c.rule, c.bytes, got, c.want)
		}
	}
}

// 256 callers send a batch again as soon as it is answered or refused. A caller that gives up goes to the end of the
// line, so with too little patience the same callers would give up again and again at the same moment.
func TestEveryCallerOfAFloodOfBatchesIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, takes = 256, 4 * MaxDeclarations * time.Second / 8000 // at 8,000 registrations a second
		s := newBodies(nil)
		ctx, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		served, refused := make([]int, callers), make([]int, callers)
		for i := range callers {
			go func() {
				for ctx.Err() == nil {
					release, err := s.Acquire(ctx, domain.OrganizationID{1}, MaxDeclarations)
					if err != nil {
						refused[i]++
						continue
					}
					time.Sleep(takes)
					release()
					served[i]++
				}
			}()
		}
		<-ctx.Done()
		synctest.Wait()
		time.Sleep(takes)
		synctest.Wait()
		never, again := 0, 0
		for i := range callers {
			if served[i] == 0 {
				never++
			}
			again += max(0, refused[i]-1) // the end of the test refuses once
		}
		if never > 0 || again > 0 {
			t.Errorf("%d callers were never served, and %d calls were refused", never, again)
		}
	})
}

// Organizations whose bodies never end do not keep out another organization.
func TestSlowBodiesLeaveRoom(t *testing.T) {
	impatient, leave := context.WithCancel(t.Context())
	leave()
	for _, slow := range []byte{bodyTotal / bodyShare, 40} {
		s, read := newBodies(nil), 0
		for range bodyShare / MaxDeclarations {
			for o := range slow {
				if _, err := s.Acquire(impatient, domain.OrganizationID{1 + o}, MaxDeclarations); err == nil {
					read++
				}
			}
		}
		if read < int(slow) {
			t.Errorf("%d bodies of %d organizations are read", read, slow)
		}
		if _, err := s.Acquire(impatient, domain.OrganizationID{255}, MaxDeclarations); err != nil {
			t.Errorf("beside %d bodies of %d organizations there is no room: %v", read, slow, err)
		}
	}
}
