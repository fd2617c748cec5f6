package handlers

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
)

// waiting is how many requests wait for the semaphore.
func (s *fairSemaphore) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Len()
}

// inLine starts a request for n units and returns once it waits; granted receives the
// organization as soon as it has them.
func inLine(t *testing.T, s *fairSemaphore, o byte, n int, granted chan<- byte) {
	t.Helper()
	before := s.waiting()
	go func() {
		if _, err := s.acquire(context.Background(), domain.OrganizationID{o}, n); err == nil {
			granted <- o
		}
	}()
	pgtest.Eventually(t, "the request waits", func() (bool, error) { return s.waiting() == before+1, nil })
}

func TestFairSemaphoreServesOrganizationsInTurn(t *testing.T) {
	s := newFairSemaphore(1, 1, 100)
	release, err := s.acquire(context.Background(), domain.OrganizationID{1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan byte)
	for range 5 {
		inLine(t, s, 1, 1, granted)
	}
	for _, o := range []byte{2, 3, 2} {
		inLine(t, s, o, 1, granted)
	}
	var order []byte
	for range 8 {
		release()
		o := <-granted
		order = append(order, o)
		release = func() { s.release(domain.OrganizationID{o}, 1) }
	}
	if want := []byte{1, 2, 3, 1, 2, 1, 1, 1}; !slices.Equal(order, want) {
		t.Errorf("served %v, want %v", order, want)
	}
	release()
	if s.held != 0 || len(s.of) != 0 || s.queue.Len() != 0 {
		t.Errorf("something is left: %+v", s)
	}
}

func TestFairSemaphoreHasAShareForEach(t *testing.T) {
	s := newFairSemaphore(10, 4, 2)
	ctx := context.Background()
	one, other := domain.OrganizationID{1}, domain.OrganizationID{2}
	release, err := s.acquire(ctx, one, 99) // as much as one may hold
	if err != nil || s.held != 4 {
		t.Fatal(err, s.held)
	}
	granted := make(chan byte, 10)
	inLine(t, s, 1, 1, granted)
	inLine(t, s, 1, 1, granted)
	if _, err := s.acquire(ctx, one, 1); err == nil {
		t.Error("a third request of the organization waits, and two may")
	}
	// Another organization is not held up by the first, which has its share.
	if _, err := s.acquire(ctx, other, 3); err != nil {
		t.Fatal(err)
	}
	// Nobody overtakes the one whose turn it is.
	inLine(t, s, 3, 4, granted)
	inLine(t, s, 4, 1, granted)
	gone, leave := context.WithCancel(ctx)
	leave()
	if _, err := s.acquire(gone, other, 4); err == nil {
		t.Error("a caller who is gone was served")
	}
	if len(granted) != 0 {
		t.Errorf("organization %d was served out of its turn", <-granted)
	}
	release()
	served := []byte{<-granted, <-granted, <-granted, <-granted}
	slices.Sort(served)
	if !slices.Equal(served, []byte{1, 1, 3, 4}) {
		t.Errorf("served %v", served)
	}
	if s.held != 10 || s.waiting() != 0 {
		t.Errorf("%d units are held and %d requests wait", s.held, s.waiting())
	}
}

// TestSinglesHaveAllWhileAlone: the share of an organization is smaller while others ask.
func TestSinglesHaveAllWhileAlone(t *testing.T) {
	s := newSingles(nil)
	ctx := context.Background()
	one, other := domain.OrganizationID{1}, domain.OrganizationID{2}
	take := func(o domain.OrganizationID) {
		t.Helper()
		if _, err := s.acquire(ctx, o, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		take(one)
	}
	take(other)
	granted := make(chan byte, 1)
	inLine(t, s, 1, 1, granted)
	for held := 100; held >= singlesShare; held-- {
		if len(granted) != 0 {
			t.Fatalf("a request was served while %d were under way", held)
		}
		s.release(one, 1)
	}
	if <-granted; s.waiting() != 0 {
		t.Error("a request waits")
	}
	s.release(one, 1)
	for range sharedRequests {
		take(one)
		s.release(one, 1)
	}
	for range 100 {
		take(one)
	}
	if len(s.of) != 2 || s.of[one] != singlesShare-1+100 {
		t.Errorf("%+v", s.of)
	}
}

// TestCallerWhoLeavesGivesItsUnitsBack: a request whose context ends in the moment of its turn keeps nothing.
func TestCallerWhoLeavesGivesItsUnitsBack(t *testing.T) {
	s := newFairSemaphore(1, 1, math.MaxInt)
	o := domain.OrganizationID{1}
	for range 50 { // which of the two the caller sees first is left to chance
		if _, err := s.acquire(context.Background(), o, 1); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(context.Background())
		var caller sync.WaitGroup
		caller.Go(func() {
			if release, err := s.acquire(ctx, o, 1); err == nil {
				release()
			}
		})
		pgtest.Eventually(t, "the request waits", func() (bool, error) { return s.waiting() == 1, nil })
		s.mu.Lock()
		leave()
		s.held = 0
		delete(s.of, o)
		s.dispatch()
		s.mu.Unlock()
		caller.Wait()
		if s.held != 0 || len(s.of) != 0 || s.queue.Len() != 0 {
			t.Fatalf("something is left: %+v", s)
		}
	}
}

// TestBatchYieldsToOthers: while a batch is prepared, another organization waits for a few of its items, not for all.
func TestBatchYieldsToOthers(t *testing.T) {
	s := &server{preparing: newFairSemaphore(1, 1, math.MaxInt)}
	flooder, quiet := domain.OrganizationID{1}, domain.OrganizationID{2}
	prepared, before := 0, -1
	var group sync.WaitGroup
	// Other batches of the flooding organization wait already.
	flood := func() {
		group.Go(func() {
			if err := s.inTurns(context.Background(), flooder, maxDeclarations, func(int) { prepared++ }); err != nil {
				t.Error(err)
			}
		})
	}
	if err := s.inTurns(context.Background(), flooder, maxDeclarations, func(i int) {
		prepared++
		if i != 5 {
			return
		}
		for range 3 {
			flood()
		}
		pgtest.Eventually(t, "the batches wait", func() (bool, error) { return s.preparing.waiting() == 3, nil })
		group.Go(func() {
			if err := s.inTurns(context.Background(), quiet, 1, func(int) { before = prepared }); err != nil {
				t.Error(err)
			}
		})
		pgtest.Eventually(t, "the quiet organization waits", func() (bool, error) { return s.preparing.waiting() == 4, nil })
	}); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if before < 0 || before > 16 {
		t.Errorf("the quiet organization waited for %d items", before)
	}
	if prepared != 4*maxDeclarations {
		t.Errorf("%d items were prepared", prepared)
	}
	gone, leave := context.WithCancel(context.Background())
	leave()
	done := 0
	release, err := s.preparing.acquire(context.Background(), quiet, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.inTurns(gone, flooder, 10, func(int) { done++ }); err == nil || done != 0 {
		t.Errorf("%d items were prepared for a caller who is gone (%v)", done, err)
	}
	release()
}

// TestEveryCallerOfAFloodOfBatchesIsServed: 256 callers who send a batch again as soon as
// it is answered or refused. Who gives up goes to the end of the line, so with too little
// patience the same ones give up again and again, all in the same moment.
func TestEveryCallerOfAFloodOfBatchesIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, takes = 256, 4 * maxDeclarations * time.Second / 8000 // at 8,000 registrations a second
		s := newBodies(nil)
		ctx, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		served, refused := make([]int, callers), make([]int, callers)
		for i := range callers {
			go func() {
				for ctx.Err() == nil {
					release, err := s.acquire(ctx, domain.OrganizationID{1}, maxDeclarations)
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

// TestSlowBodiesLeaveRoom: organizations whose bodies never end do not keep a further one out.
func TestSlowBodiesLeaveRoom(t *testing.T) {
	impatient, leave := context.WithCancel(t.Context())
	leave()
	for _, slow := range []byte{bodyTotal / bodyShare, 40} {
		s, read := newBodies(nil), 0
		for range bodyShare / maxDeclarations {
			for o := range slow {
				if _, err := s.acquire(impatient, domain.OrganizationID{1 + o}, maxDeclarations); err == nil {
					read++
				}
			}
		}
		if read < int(slow) {
			t.Errorf("%d bodies of %d organizations are read", read, slow)
		}
		if _, err := s.acquire(impatient, domain.OrganizationID{255}, maxDeclarations); err != nil {
			t.Errorf("beside %d bodies of %d organizations there is no room: %v", read, slow, err)
		}
	}
}

// TestClosingEndsWaits: a request that waits to be admitted does not hold up the end of the service.
func TestClosingEndsWaits(t *testing.T) {
	closing := make(chan struct{})
	refused := make(chan error)
	semaphores := []*fairSemaphore{newBodies(closing), newSingles(closing)}
	for _, s := range semaphores {
		s.each, s.alone = 1, 1
		if _, err := s.acquire(t.Context(), domain.OrganizationID{1}, 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := s.acquire(t.Context(), domain.OrganizationID{1}, 1)
			refused <- err
		}()
		pgtest.Eventually(t, "the request waits", func() (bool, error) { return s.waiting() == 1, nil })
	}
	close(closing)
	for range semaphores {
		if err := <-refused; err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request ended with %v", err)
		}
	}
}

// untouched is a body that is not to be read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}
func (untouched) Close() error { return nil }

// TestLargeBodiesWaitUnread: beyond an organization's share nothing of a large body is
// read, while small bodies and other organizations go on.
func TestLargeBodiesWaitUnread(t *testing.T) {
	s := &server{Config: Config{Now: time.Now}, bodies: newBodies(nil)}
	read := func(o byte, rule bodyRule, body io.ReadCloser, length int64, patience bool) (*call, error) {
		c := &call{access: domain.Access{Organization: domain.OrganizationID{o}}}
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
	text := strings.Repeat("x", maxDeclarations*bytesPerItem)
	var calls []*call
	for range bodyShare / maxDeclarations {
		c, err := read(1, bodyBatch, io.NopCloser(strings.NewReader(text)), int64(len(text)), true)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	for _, rule := range []bodyRule{bodyBatch, bodyContent, bodyManifest} {
		_, err := read(1, rule, untouched{t}, 1000, false)
		if refused := refusal(err); refused == nil || refused.Code != domain.TemporarilyUnavailable {
			t.Errorf("rule %d: %v", rule, err)
		}
	}
	for _, c := range []struct {
		organization byte
		rule         bodyRule
	}{{1, bodyRequired}, {1, bodyMessage}, {2, bodyBatch}} {
		if _, err := read(c.organization, c.rule, io.NopCloser(strings.NewReader("{}")), 2, true); err != nil {
			t.Errorf("organization %d, rule %d: %v", c.organization, c.rule, err)
		}
	}
	for _, release := range calls[0].over {
		release()
	}
	if _, err := read(1, bodyBatch, io.NopCloser(strings.NewReader("{}")), 2, true); err != nil {
		t.Error(err)
	}
	// What is refused by its length holds nothing.
	held := s.bodies.held
	if _, err := read(3, bodyBatch, untouched{t}, maxBatch+1, true); refusal(err).Code != domain.PayloadTooLarge || s.bodies.held != held {
		t.Errorf("%v; %d units are held, and %d were", err, s.bodies.held, held)
	}
}

func TestUnitsOfBodies(t *testing.T) {
	for _, c := range []struct {
		rule  bodyRule
		bytes int64
		want  int
	}{
		{bodyBatch, 0, 1}, {bodyBatch, 2000, 11}, {bodyBatch, maxBatch, maxDeclarations},
		{bodyContent, 100, 1}, {bodyContent, maxContent, 513}, {bodyManifest, domain.MaxManifestBytes, 33},
	} {
		if got := c.rule.units(c.bytes); got != c.want {
			t.Errorf("rule %d, %d bytes: %d units, want %d", c.rule, c.bytes, got, c.want)
		}
	}
}

func TestUsedVersions(t *testing.T) {
	u := newUsedVersions()
	o, limit := domain.OrganizationID{1}, int64(10)
	const month = domain.Period(24_000)
	remains := func(what string, limit *int64, p domain.Period, want int) {
		t.Helper()
		if got := u.remaining(o, limit, p, 20); got != want {
			t.Errorf("%s: %d remain, want %d", what, got, want)
		}
	}
	remains("nothing is known", &limit, month, 10)
	remains("no limit", nil, month, 20)
	u.note(o, domain.Usage{Period: month, Limit: &limit, Used: 7})
	u.note(o, domain.Usage{Period: month, Limit: &limit, Used: 5})     // an older answer
	u.note(o, domain.Usage{Period: month - 1, Limit: &limit, Used: 9}) // of a month that is over
	remains("seven are used", &limit, month, 3)
	remains("another month", &limit, month+1, 10)
	remains("no limit", nil, month, 20)
	less, zero := int64(5), int64(0)
	remains("another plan", &less, month, 0)
	remains("a plan without versions", &zero, month, 0)
	u.note(domain.OrganizationID{2}, domain.Usage{Period: month, Used: 7})
	if u.organizations.Len() != 1 {
		t.Error("an organization without a limit is remembered")
	}
	for i := range maxUsedVersions {
		u.note(domain.OrganizationID{3, byte(i), byte(i >> 8)}, domain.Usage{Period: month, Limit: &limit, Used: 1})
	}
	if u.organizations.Len() > maxUsedVersions {
		t.Errorf("%d organizations are remembered", u.organizations.Len())
	}
}

// TestCrowded: an organization keeps others waiting only if one waits that holds less than its share.
func TestCrowded(t *testing.T) { synctest.Test(t, testCrowded) }

func testCrowded(t *testing.T) {
	s := newExports(nil)
	a, b, c := domain.OrganizationID{1}, domain.OrganizationID{2}, domain.OrganizationID{3}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for _, o := range []domain.OrganizationID{a, b} {
		if _, err := s.acquire(ctx, o, 1); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(o domain.OrganizationID) {
		go func() { _, _ = s.acquire(ctx, o, 1) }()
		synctest.Wait()
	}
	for _, step := range []struct {
		comes domain.OrganizationID
		want  bool
	}{{domain.OrganizationID{}, false}, {b, false}, {a, false}, {c, true}} {
		if !step.comes.IsZero() {
			wait(step.comes)
		}
		if got := s.crowded(a); got != step.want {
			t.Errorf("after %v: %t", step.comes, got)
		}
	}
}

// TestSignUpsLeaveSignInsTheirPlaces: requests to sign up that wait for hours, from however many networks, keep no
// member from being mailed a link.
func TestSignUpsLeaveSignInsTheirPlaces(t *testing.T) {
	m := NewLinkMailer(LinkMailer{})
	ask := func(network int, signUp bool) error {
		request := linkRequest{network: domain.OrganizationID{byte(network), byte(network >> 8), 1}}
		if signUp {
			turn, err := m.signUps.enter(request.network, 1)
			if err != nil {
				return err
			}
			request.turn = turn
		}
		return m.ask(request)
	}
	taken := 0
	for network := range 2 * maxLinkRequests {
		if ask(network, true) == nil {
			taken++
		}
	}
	if taken != maxLinkRequests {
		t.Errorf("%d requests to sign up were taken", taken)
	}
	for network := range maxLinkRequests {
		if err := ask(network, false); err != nil {
			t.Fatalf("sign-in %d: %v", network, err)
		}
	}
}
