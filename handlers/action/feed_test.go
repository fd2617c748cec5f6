package action

import (
	"testing"

	"integrityledger/domain"
)

func TestWaiters(t *testing.T) {
	w := newWaiters()
	access := func(n byte) domain.Access {
		return domain.Access{Key: domain.KeyID{n}, Organization: domain.OrganizationID{1}}
	}
	var leave []func()
	for n := range byte(10) { // ten keys of one organization, five waits each
		for i := range maxWaitsKey + 1 {
			l, ok := w.enter(access(n))
			if ok != (i < maxWaitsKey) {
				t.Fatalf("key %d, wait %d: %t", n, i, ok)
			}
			if ok {
				leave = append(leave, l)
			}
		}
	}
	if _, ok := w.enter(access(11)); ok {
		t.Error("an organization waits more often than it may")
	}
	for n := 0; w.places[w] < maxWaitsProcess; n++ { // other organizations, a wait each
		a := access(0)
		a.Key[1], a.Key[2], a.Organization[1], a.Organization[2] = byte(n), byte(n>>8), byte(n), byte(n>>8)
		a.Key[3], a.Organization[3] = 1, 1
		l, ok := w.enter(a)
		if !ok {
			t.Fatalf("%d wait, and no more may", w.places[w])
		}
		leave = append(leave, l)
	}
	if _, ok := w.enter(domain.Access{Key: domain.KeyID{99}, Organization: domain.OrganizationID{99}}); ok {
		t.Error("a process has more waits than it may")
	}
	for _, l := range leave {
		l()
	}
	if len(w.places) != 0 {
		t.Errorf("something is left: %+v", w)
	}
}
