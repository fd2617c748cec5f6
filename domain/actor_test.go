package domain

import "testing"

// TestActorKeepsItsText: every text is parsed as the actor that it names and written back unchanged, and only actors of
// the right kind have an id.
func TestActorKeepsItsText(t *testing.T) {
	key, member := NewKeyID(noon(), 7), NewID[MemberID](noon())
	for text, want := range map[string]Actor{
		"operator": OperatorActor, "system": SystemActor, key.String(): KeyActor(key), member.String(): MemberActor(member),
		"": {}, KeyActor(KeyID{}).String(): MemberActor(MemberID{}),
	} {
		if a := ParseActor(text); a != want || a.String() != text {
			t.Errorf("%q: %+v", text, a)
		}
	}
	for _, text := range []string{
		"Operator", "system ", "key_x", "usr_00000000000000000000000000", "key_00000000000000000000000000",
		NewID[CompanyID](noon()).String(),
	} {
		if a := ParseActor(text); a.Kind() != ActorNobody || a.String() != text || a == (Actor{}) || !a.Judged() {
			t.Errorf("%q: %+v", text, a)
		}
	}
	if a := KeyActor(key); a.Key() != key || !a.Member().IsZero() || !a.Judged() {
		t.Errorf("key: %+v", a)
	}
	if a := MemberActor(member); a.Member() != member || !a.Key().IsZero() || !a.Judged() {
		t.Errorf("member: %+v", a)
	}
	if OperatorActor.Judged() || SystemActor.Judged() {
		t.Error("the operator or the service is judged")
	}
}
