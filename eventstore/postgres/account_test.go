package postgres

import "testing"

// TestNamelessAccount: on a machine without a user for PostgreSQL, nameless returns an unused number.
func TestNamelessAccount(t *testing.T) {
	first, err := nameless("/var/lib/integrity")
	if err != nil || first.uid < firstUnused || first.uid > lastUnused || first.gid != first.uid || !first.other {
		t.Fatalf("%+v %v", first, err)
	}
	if name, err := systemName(first.uid); err == nil {
		t.Errorf("it is %s's", name)
	}
	if again, _ := nameless("/var/lib/integrity"); again != first {
		t.Errorf("%+v, then %+v", first, again)
	}
	if other, _ := nameless("/srv/integrity"); other == first {
		t.Error("two data directories have one account")
	}
	if first.sharedUser() != "" {
		t.Error("it is said to be shared")
	}
}
