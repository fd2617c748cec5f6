package domain

import (
	"crypto/sha256"
	"testing"

	"integrityledger/domain/evidence"
)

// testKeySet returns a key set with one more key for each n.
func testKeySet(t *testing.T, n int) evidence.KeySet {
	t.Helper()
	trusted, err := evidence.NewTrustedKeys(nil, nil, nil)
	for range n {
		if err == nil {
			trusted, err = trusted.Add(evidence.GenerateSigner().Key(), "2026-11-01T00:00:00Z")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	set, err := evidence.NewKeySet("https://ledger.example", trusted)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestPublishKeys: the first key set creates the organization of the installation. Each leaf commits to its payload. A
// command that did not see the newest set is refused.
func TestPublishKeys(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	by := Origin{Organization: InstallationID, Actor: OperatorActor, RequestID: "r"}
	set := testKeySet(t, 1)
	if code := w.execute(&PublishKeys{Origin: by, Set: set}); code != InvalidState {
		t.Errorf("with the rule off: %q", code)
	}
	w.state.Follow(KeySets)
	before := len(w.events)
	if code := w.execute(&PublishKeys{Origin: by, Set: set}); code != "" {
		t.Fatal(code)
	}
	if events := w.events[before:]; len(events) != 2 || events[0].Type != OrganizationCreated ||
		events[1].Type != KeysPublished {
		t.Fatalf("events: %+v", events)
	}
	published := w.events[before+1]
	if string(published.Data) != string(set.Payload) {
		t.Errorf("the data are\n%s, want\n%s", published.Data, set.Payload)
	}
	leaf, err := evidence.ParseLeaf(published.Leaf())
	if err != nil || leaf.PayloadSHA256 == nil || *leaf.PayloadSHA256 != sha256.Sum256(set.Payload) {
		t.Errorf("leaf %+v, %v", leaf, err)
	}
	o := w.state.Organization(InstallationID)
	if plan := w.state.plans.Of(o.Plan, o.Internal); o.Sequence != 2 || plan.VersionsPerMonth != nil {
		t.Errorf("organization %+v", o)
	}
	for _, after := range []int64{0, 1, 3} {
		if code := w.execute(&PublishKeys{Origin: by, Set: testKeySet(t, 2), After: after}); code != InvalidState {
			t.Errorf("after %d: %q", after, code)
		}
	}
	if code := w.execute(&PublishKeys{Origin: by, Set: testKeySet(t, 2), After: 2}); code != "" {
		t.Error(code)
	}
	if o := w.replay().Organization(InstallationID); o.Sequence != 3 {
		t.Errorf("replayed: %+v", o)
	}

	// No other command reaches its history, not even one of an operator.
	for _, c := range []Command{
		&CreateOrganization{Origin: by, Name: "n", Plan: FreePlan}, &AddMember{Origin: by, Email: "a@b.example", Role: Owner},
		&CreateCompany{Origin: by, Reference: "c"}, &ChangePlan{Origin: by, Plan: FreePlan},
		&Idempotent{Command: &CreateCompany{Origin: by, Reference: "c"}},
	} {
		if code := w.execute(c); code != NotFound {
			t.Errorf("%T: %q", c, code)
		}
	}
}

// TestInstallationID: the id has one spelling, which manuals may name, and belongs to the first shard.
func TestInstallationID(t *testing.T) {
	const text = "org_0000000000e008000000000000"
	if got := InstallationID.String(); got != text || InstallationID.Shard() != 0 {
		t.Errorf("%s in shard %d", got, InstallationID.Shard())
	}
}
