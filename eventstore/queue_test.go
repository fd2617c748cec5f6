package eventstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
)

type nothing struct{ domain.Origin }

func (nothing) Need(*domain.Needs)                                      {}
func (nothing) Decide(*domain.State, time.Time) ([]domain.Draft, error) { return nil, nil }

func organizationOf(n byte) domain.OrganizationID { return domain.OrganizationID{n} }

func command(organization byte, index int) item {
	return item{
		command: nothing{domain.Origin{Organization: organizationOf(organization)}}, submission: newSubmission(1),
		index: index,
	}
}

func put(q *queue, organization byte, index int) error {
	return q.put(command(organization, index), false)
}

func TestQueueServesOrganizationsInTurn(t *testing.T) {
	q := newQueue(4000)
	for i := range 600 {
		if err := put(q, 1, i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if err := put(q, 2, i); err != nil {
			t.Fatal(err)
		}
	}
	group := q.take(80)
	var order []byte
	next := map[byte]int{}
	for _, it := range group {
		o := it.command.CommandOrigin().Organization[0]
		order = append(order, o)
		if it.index != next[o] {
			t.Errorf("organization %d: command %d came before %d", o, it.index, next[o])
		}
		next[o]++
	}
	if want := string([]byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2}); string(order) != want {
		t.Errorf("served %v, want %v", order, []byte(want))
	}
	if rest := len(q.take(10_000)); rest != 590 {
		t.Errorf("%d commands were left, want 590", rest)
	}
}

// TestQueueGoesOnWhereTheGroupEnded: if there are more organizations than places in a group, the next group begins with
// those that had no turn, or fewer.
func TestQueueGoesOnWhereTheGroupEnded(t *testing.T) {
	q := newQueue(1000)
	for _, organization := range []byte{9, 1, 2, 3, 4, 5, 6, 7, 8} {
		for i := range 4 {
			if err := put(q, organization, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, want := range []string{
		"1:0 1:1 2:0 2:1 3:0 3:1 4:0 4:1 5:0 5:1 6:0 6:1 7:0 8:0 9:0 9:1",
		"1:2 1:3 2:2 2:3 3:2 3:3 4:2 4:3 5:2 6:2 7:1 7:2 8:1 8:2 9:2 9:3",
		"5:3 6:3 7:3 8:3",
		"",
	} {
		var got []string
		for _, it := range q.take(2 * sharedPart) {
			got = append(got, fmt.Sprintf("%d:%d", it.command.CommandOrigin().Organization[0], it.index))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("group %d is %q, want %q", i, got, want)
		}
	}
	if q.waiting.Len() != 0 || q.taken != 0 || len(q.waiting.Keys()) != 0 {
		t.Errorf("an emptied queue holds %d commands, %d places, %d turns", q.waiting.Len(), q.taken, len(q.waiting.Keys()))
	}
}

func TestQueueIsBoundedAndShared(t *testing.T) {
	q := newQueue(40)
	for i := range 10 {
		if err := put(q, 1, i); err != nil {
			t.Fatal(err)
		}
	}
	if put(q, 1, 10) == nil {
		t.Error("one organization got more than a quarter of the queue")
	}
	for o := byte(2); o <= 3; o++ {
		for i := range 10 {
			if err := put(q, o, i); err != nil {
				t.Fatalf("organization %d: %v", o, err)
			}
		}
	}
	// Each gets half of the places that are still free.
	for i, o := range []byte{4, 4, 4, 4, 4, 5, 5, 5, 6, 7} {
		if err := put(q, o, i); err != nil {
			t.Fatalf("organization %d: %v", o, err)
		}
	}
	if put(q, 8, 0) == nil {
		t.Error("a full queue took a command")
	}
	q.take(1)
	if err := put(q, 8, 0); err != nil {
		t.Errorf("a queue with room refused: %v", err)
	}
	q.close()
	if put(q, 9, 0) == nil {
		t.Error("a closed queue took a command")
	}
	if q.refused != 2 {
		t.Errorf("%d commands were counted as turned away, not 2", q.refused)
	}
	if !q.wait() || len(q.take(100)) != 40 || q.wait() {
		t.Error("a closed queue must still give what it holds, and then end")
	}
}

// TestQueueHasRoomForAFurtherOrganization: however many organizations flood a shard, an organization with an empty
// queue still gets in.
func TestQueueHasRoomForAFurtherOrganization(t *testing.T) {
	const capacity, batch, group = 8192, 500, 256
	for _, floods := range []byte{4, 5, 16} {
		q := newQueue(capacity)
		flood := func() {
			for o := range floods {
				n, err := q.admit(organizationOf(1+o), batch)
				if err != nil {
					t.Fatal(err)
				}
				for i := range n {
					if err := q.put(command(1+o, i), true); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for range 100 {
			flood()
			q.take(group)
		}
		flood()
		if n, err := q.admit(organizationOf(255), 10); n != 10 || err != nil {
			t.Errorf("beside %d floods %d of 10 commands are admitted (%v)", floods, n, err)
		}
	}
}

func TestAdmissionHoldsPlaces(t *testing.T) {
	q := newQueue(40)
	for _, c := range []struct {
		organization byte
		n, want      int
	}{{1, 30, 10}, {1, 1, 0}, {2, 4, 4}, {2, 10, 6}, {3, 10, 10}, {4, 9, 5}, {5, 10, 3}, {6, 2, 1}, {7, 1, 1}, {8, 1, 0}} {
		if got, err := q.admit(organizationOf(c.organization), c.n); got != c.want || err != nil {
			t.Errorf("organization %d: %d of %d were admitted (%v), want %d", c.organization, got, c.n, err, c.want)
		}
	}
	if q.refused != 20+1+4+4+7+1+1 {
		t.Errorf("%d were counted as turned away", q.refused)
	}
	if put(q, 4, 0) == nil {
		t.Error("a command took a place that another was admitted to")
	}
	// A place passes from the admission to the command, and becomes free once a group takes the command.
	for i := range 10 {
		if err := q.put(command(1, i), true); err != nil {
			t.Fatal(err)
		}
	}
	if put(q, 1, 10) == nil {
		t.Error("one organization got more than a quarter of the queue")
	}
	if n := len(q.take(10)); n != 10 {
		t.Errorf("%d of 10 were taken", n)
	}
	for organization, n := range map[byte]int{2: 10, 3: 10, 4: 5, 5: 3, 6: 1, 7: 1} {
		q.release(organizationOf(organization), n)
	}
	if q.taken != 0 || len(q.held) != 0 {
		t.Errorf("%d places are still held, by %d organizations", q.taken, len(q.held))
	}
	if _, err := q.admit(organizationOf(1), 1); err != nil {
		t.Error(err)
	}
	q.close()
	if _, err := q.admit(organizationOf(1), 1); err == nil {
		t.Error("a closed queue admits")
	}
	if q.put(command(1, 0), true) == nil || q.taken != 0 || q.waiting.Len() != 0 {
		t.Error("a closed queue took an admitted command, or keeps its place")
	}
}

// TestQuietOrganizationWaitsForAShortGroup: during a flood, another organization's command is in the very next group,
// and that group and the following ones are short.
func TestQuietOrganizationWaitsForAShortGroup(t *testing.T) {
	const weight = 256
	q := newQueue(1_000_000)
	for i := range 200_000 {
		if err := put(q, 1, i); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(q.take(weight)); n != weight {
		t.Errorf("alone, an organization has groups of %d", n)
	}
	if err := put(q, 2, 0); err != nil {
		t.Fatal(err)
	}
	group := q.take(weight)
	if last := group[len(group)-1].command.CommandOrigin().Organization; len(group) != weight/sharedPart+1 ||
		last != organizationOf(2) {
		t.Errorf("the next group has %d commands, the last of organization %s", len(group), last)
	}
	short := 1
	for len(q.take(weight)) == weight/sharedPart {
		short++
	}
	if short != sharedGroups {
		t.Errorf("%d groups were short, want %d", short, sharedGroups)
	}
	// All organizations together still fill a group.
	for organization := byte(3); organization < 10; organization++ {
		for i := range 100 {
			if err := put(q, organization, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(q.take(weight)); n != weight {
		t.Errorf("eight organizations have a group of %d", n)
	}
}

// TestIsolatedOrganizationsShareEverySecondGroup: however many organizations are isolated, every second group is for
// the others. Each isolated organization has its turn, in arrival order, for a minute after its last poison.
func TestIsolatedOrganizationsShareEverySecondGroup(t *testing.T) {
	q, now := newQueue(4000), time.Duration(0)
	q.now = func() time.Duration { return now }
	for organization := byte(1); organization <= 6; organization++ {
		for i := range 3 {
			if err := put(q, organization, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	back := q.take(3 * sharedPart)
	if len(back) != 18 {
		t.Fatalf("a group of %d", len(back))
	}
	for organization := byte(1); organization <= 6; organization++ { // as if all their commands were returned
		q.isolate(organizationOf(organization), back[3*(organization-1):3*organization]...)
	}
	now += isolation / 2
	q.isolate(organizationOf(2)) // once more
	now += isolation/2 - 1
	for i := range 40 {
		if err := put(q, 9, i); err != nil {
			t.Fatal(err)
		}
	}
	groups := func(n int) string {
		var list []string
		for range n {
			group := q.take(8)
			if len(group) == 0 {
				break
			}
			it := group[0]
			list = append(list, fmt.Sprintf("%d:%d×%d", it.command.CommandOrigin().Organization[0], it.index, len(group)))
		}
		return strings.Join(list, " ")
	}
	want := "1:0×1 9:0×1 2:0×1 9:1×1 3:0×1 9:2×1 4:0×1 9:3×1 5:0×1 9:4×1 6:0×1 9:5×1 1:1×1"
	if got := groups(13); got != want {
		t.Errorf("groups %s, want %s", got, want)
	}
	if err := put(q, 3, 3); err != nil { // in arrival order
		t.Fatal(err)
	}
	now++
	sharing, alone := q.parted()
	commands := 0
	for _, organization := range sharing {
		commands += q.waiting.LenOf(organization)
	}
	if len(sharing) != 6 || len(alone) != 1 || alone[0] != organizationOf(2) || commands != q.waiting.Len()-2 {
		t.Errorf("after a minute %d organizations share groups (%d commands) and %v are alone", len(sharing), commands, alone)
	}
	now += isolation / 2
	for order := map[byte]int{}; q.waiting.Len() > 0; {
		for _, it := range q.take(10_000) {
			o := it.command.CommandOrigin().Organization[0]
			if it.index < order[o] {
				t.Errorf("organization %d: command %d comes after %d", o, it.index, order[o])
			}
			order[o] = it.index
		}
	}
	if q.taken != 0 || len(q.waiting.Keys()) != 0 || len(q.held) != 0 {
		t.Errorf("an emptied queue holds %d places, %d turns", q.taken, len(q.waiting.Keys()))
	}
	q.isolate(organizationOf(7))
	if len(q.isolated) != 1 {
		t.Errorf("%d organizations are remembered after their minute", len(q.isolated)-1)
	}
}
