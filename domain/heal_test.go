package domain

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"integrityledger/domain/evidence"
)

// restored returns a world as it was after a number of events: an earlier state of the same ledger.
func (w *world) restored(t *testing.T, events int) *world {
	t.Helper()
	earlier := *w
	earlier.state, earlier.events = NewState(w.state.plans), w.events[:events:events]
	for i := range earlier.events {
		if err := earlier.state.Apply(&earlier.events[i]); err != nil {
			t.Fatal(err)
		}
	}
	earlier.state.Follow(HealedRecords)
	return &earlier
}

// lost returns what a client holds of a registration: its receipt and its declaration.
func (w *world) lost(c *Register) Lost {
	for _, e := range w.events {
		if b, ok := e.Body.(*RecordRegisteredBody); ok && b.PublicID == c.Outcome.PublicID {
			return Lost{PublicID: b.PublicID, Declaration: c.Declaration, Receipt: &SignedRecord{
				Payload: b.Payload, KeyID: b.KeyID, Signature: b.Signature, References: b.References(),
			}}
		}
	}
	return Lost{}
}

func (w *world) heal(t *testing.T, lost Lost, state HealState, reason HealReason) *Heal {
	t.Helper()
	c := w.registrar.PrepareHeal(w.origin, lost, w.now)
	if code := w.execute(c); code != "" || c.Outcome.State != state || c.Outcome.Reason != reason {
		t.Errorf("%s: %q, %+v, want %s %s", lost.PublicID, code, c.Outcome, state, reason)
	}
	return c
}

// TestHeal: records that an earlier state of the ledger lacks return with their receipts, in any order, once.
func TestHeal(t *testing.T) {
	w := newWorld(t, testSigner(t), 4)
	first, _ := w.register("d", 1, "one", nil)
	kept := len(w.events)
	second, _ := w.register("d", 2, "two", nil)
	third, _ := w.register("d", 3, "three", nil)
	w.now = w.now.AddDate(0, 1, 0)
	earlier := w.restored(t, kept)

	earlier.heal(t, w.lost(first), HealPresent, "")
	earlier.heal(t, w.lost(third), HealProvable, "")
	late := w.lost(second)
	late.Revoked = true
	earlier.heal(t, late, HealProvable, "")
	for _, c := range []*Register{second, third} {
		earlier.heal(t, w.lost(c), HealPresent, "")
	}
	state := earlier.state
	document := state.Document(state.CompanyByReference(w.origin.Organization, "company-1").ID, "billing", "d")
	for number, c := range map[int32]*Register{1: first, 2: second, 3: third} {
		v := state.Version(document.ID, number)
		want := map[int32]Status{1: StatusSuperseded, 2: StatusRevoked, 3: StatusCurrent}[number]
		if v == nil || v.PublicID != c.Outcome.PublicID || v.Status() != want || !v.ReceivedAt.Equal(c.receivedAt) {
			t.Errorf("version %d is %+v", number, v)
		}
	}
	for _, e := range earlier.events[kept:] {
		if b, ok := e.Body.(*RecordHealedBody); ok {
			original := w.lost(map[PublicID]*Register{
				second.Outcome.PublicID: second, third.Outcome.PublicID: third,
			}[b.PublicID]).Receipt
			if b.Proof != ByReceipt || !bytes.Equal(b.Payload, original.Payload) || b.Signature != original.Signature ||
				b.Salt != original.Salt || e.Type != RecordHealed || b.Period != PeriodOf(first.receivedAt) {
				t.Errorf("%+v", b)
			}
		}
	}
	// A replay of what the origin sent is a replay again, and consumes nothing.
	if again, code := earlier.register("d", 3, "three", nil); code != "" || !again.Replayed {
		t.Errorf("the declaration again: %s, replayed %t", code, again.Replayed)
	}
	if used := state.Used(UsageKey{Organization: w.origin.Organization, Period: PeriodOf(first.receivedAt)}); used != 3 {
		t.Errorf("%d versions are counted, want 3", used)
	}
}

// TestHealFromBackfill: a record that was charged to a backfill allowance returns into it, while it has room again.
func TestHealFromBackfill(t *testing.T) {
	w := newWorld(t, testSigner(t), 4)
	w.execute(&ChangeBackfill{Origin: w.origin, Versions: 1})
	kept := len(w.events)
	first, _ := w.register("d", 1, "one", nil)
	second, _ := w.register("d", 2, "two", nil)
	third, _ := w.register("d", 3, "three", nil)
	earlier := w.restored(t, kept)
	declared := w.lost(third)
	declared.Receipt = nil
	earlier.heal(t, declared, HealDeclared, "") // charged nowhere
	for _, c := range []*Register{second, first} {
		earlier.heal(t, w.lost(c), HealProvable, "")
		if used := earlier.state.Used(UsageKey{Organization: w.origin.Organization, Period: PeriodOf(w.now)}); c == second &&
			used != 0 || c == first && used != 1 || earlier.state.Backfill(w.origin.Organization).Left() != 0 {
			t.Errorf("%d versions of the month are used, %+v", used, earlier.state.Backfill(w.origin.Organization))
		}
	}
}

// TestBackfillNeedsItsRule: earlier programs must not meet the event before every process knows it. Numbers out of range
// are refused.
func TestBackfillNeedsItsRule(t *testing.T) {
	w := newWorld(t, testSigner(t), 4)
	for _, versions := range []int64{-1, MaxBackfill + 1} {
		if code := w.execute(&ChangeBackfill{Origin: w.origin, Versions: versions}); code != InvalidData {
			t.Errorf("%d: %q", versions, code)
		}
	}
	w.state.rules = nil
	if code := w.execute(&ChangeBackfill{Origin: w.origin, Versions: 1}); code != InvalidState {
		t.Errorf("without the rule: %q", code)
	}
}

// TestHealDeclared: without a receipt the record is signed anew, and claims no earlier receivedAt.
func TestHealDeclared(t *testing.T) {
	w := newWorld(t, testSigner(t), 4)
	kept := len(w.events)
	c, _ := w.register("d", 1, "one", nil)
	w.now = w.now.AddDate(0, 0, 3)
	earlier := w.restored(t, kept)
	lost := w.lost(c)
	lost.Receipt = nil
	earlier.heal(t, lost, HealDeclared, "")
	b := earlier.events[kept].Body.(*RecordHealedBody)
	signer := w.registrar.Signer
	trust, err := evidence.NewTrustedKeys([]evidence.TrustedKey{{PublicKey: signer.Key(), Status: evidence.KeyActive}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, found := evidence.VerifyRecord(trust, b.KeyID, b.Payload, b.Signature)
	if found != evidence.Valid || b.Proof != ByDeclaration || !payload.ReceivedAt.Equal(w.now) ||
		payload.PublicID != c.Outcome.PublicID.String() || payload.ReferencesSHA256 != b.References().SHA256() {
		t.Errorf("%s: %+v", found, b)
	}
	earlier.heal(t, lost, HealPresent, "")
	// The former registration was charged in a month that no receipt proves, so healing charges nothing.
	used := earlier.state.Used(UsageKey{Organization: w.origin.Organization, Period: PeriodOf(w.now)})
	if used != 0 || b.Charged() != 0 {
		t.Errorf("%d versions are counted, want none", used)
	}
	// The receipt, found later, is another one.
	earlier.heal(t, w.lost(c), HealRefused, HealOtherReceipt)
}

// TestHealAlias: a version that was registered anew keeps its record.
func TestHealAlias(t *testing.T) {
	w := newWorld(t, testSigner(t), 4)
	kept := len(w.events)
	c, _ := w.register("d", 1, "one", nil)
	lost := w.lost(c)
	earlier := w.restored(t, kept)
	anew, _ := earlier.register("d", 1, "one", nil)
	before := len(earlier.events)
	heal := earlier.heal(t, lost, HealAlias, "")
	b := earlier.events[before].Body.(*RecordAliasedBody)
	statement, err := evidence.ParseAliasPayload(b.Statement.Payload)
	if heal.Outcome.Kept != anew.Outcome.PublicID || err != nil || statement.PublicID != c.Outcome.PublicID.String() ||
		statement.AliasOf != anew.Outcome.PublicID.String() ||
		*statement.ReceiptSHA256 != sha256.Sum256(lost.Receipt.Payload) || !bytes.Equal(b.Payload, lost.Receipt.Payload) {
		t.Errorf("%+v, %v", b, err)
	}
	earlier.heal(t, lost, HealPresent, "")
	lost.Revoked = true
	earlier.heal(t, lost, HealRevocation, "")
	if len(earlier.events) != before+2 {
		t.Errorf("%d events", len(earlier.events)-before)
	}
	// The alias is no public id of another version, and no reservation.
	other := lost
	other.Declaration.DocumentReference = "other"
	earlier.heal(t, other, HealRefused, HealTakenID)
	if _, code := earlier.register("e", 1, "e", &c.Outcome.PublicID); code != InvalidData {
		t.Errorf("an alias as reservation: %s", code)
	}
}

// TestHealRefuses: what contradicts the ledger changes nothing.
func TestHealRefuses(t *testing.T) {
	w := newWorld(t, testSigner(t), 9)
	kept := len(w.events)
	c, _ := w.register("d", 1, "one", nil)
	earlier := w.restored(t, kept)
	earlier.register("d", 1, "other", nil)
	earlier.heal(t, w.lost(c), HealRefused, HealOtherVersion)
	taken, _ := earlier.register("taken", 1, "taken", nil)
	reserved, _ := earlier.reserve("reserved", 1)
	lost := func(change func(*Lost)) Lost {
		l := w.lost(c)
		l.Receipt, l.Declaration.DocumentReference = nil, "free"
		change(&l)
		return l
	}
	events := len(earlier.events)
	earlier.heal(t, lost(func(l *Lost) { l.PublicID = taken.Outcome.PublicID }), HealRefused, HealTakenID)
	earlier.heal(t, lost(func(l *Lost) { l.PublicID = reserved.Outcome.PublicID }), HealRefused, HealTakenID)
	earlier.heal(t, lost(func(l *Lost) { l.Declaration.DocumentReference = "reserved" }), HealRefused, HealReserved)
	earlier.heal(t, lost(func(l *Lost) { l.Declaration.CompanyReference = "nobody" }), HealRefused, HealUnknownCompany)
	earlier.heal(t, lost(func(l *Lost) { l.PublicID = PublicID{} }), HealRefused, HealUnknownID)
	earlier.heal(
		t, lost(func(l *Lost) { l.PublicID = NewPublicID(w.registrar.Secret, w.origin.Organization.Shard()+1) }), HealRefused,
		HealOtherShard,
	)
	if len(earlier.events) != events {
		t.Errorf("%d events of refused records", len(earlier.events)-events)
	}
	earlier.state.rules = nil
	if code := earlier.execute(w.registrar.PrepareHeal(w.origin, w.lost(c), w.now)); code != InvalidState {
		t.Errorf("without the rule: %q", code)
	}
}

// TestHealReserved: the reservation of a lost registration is finalized.
func TestHealReserved(t *testing.T) {
	w := newWorld(t, testSigner(t), 4)
	w.reserve("d", 1)
	kept := len(w.events)
	c, _ := w.register("d", 1, "one", nil)
	earlier := w.restored(t, kept)
	earlier.heal(t, w.lost(c), HealProvable, "")
	if o := earlier.state.Organization(w.origin.Organization); o.Unfinalized != 0 {
		t.Errorf("%d versions are unfinalized", o.Unfinalized)
	}
}
