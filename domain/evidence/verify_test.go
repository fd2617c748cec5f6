package evidence

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestFindingsAsJSON(t *testing.T) {
	f := newFixture(t)
	var got map[string]any
	if err := json.Unmarshal(marshal(t, Verify(nil, f.trust, Options{Now: testNow})), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"signature": "invalid", "references": "not-checked", "observation": "not-checked", "observedStatus": nil, "observedAt": nil,
		"fileMatch": nil, "inclusion": "not-checked", "record": nil, "notes": []any{},
	} {
		if v, ok := got[name]; !ok || !reflect.DeepEqual(v, want) {
			t.Errorf("%s is %v", name, v)
		}
	}
}

func TestVerifyRecord(t *testing.T) {
	f := newFixture(t)
	payload := f.record.AppendCanonical(nil)
	check := func(name string, s *Signer, payload []byte, signature string, want Finding) {
		t.Helper()
		p, got := VerifyRecord(f.trust, s.Key().KeyID, payload, signature)
		if got != want || (p != RecordPayload{}) != (want == Valid) {
			t.Errorf("%s: %s, %+v", name, got, p)
		}
	}
	check("good", f.signer, payload, f.signer.Sign(payload), Valid)
	check("retired", f.retired, payload, f.retired.Sign(payload), Valid)
	check("revoked", f.revoked, payload, f.revoked.Sign(payload), Untrusted)
	check("both", f.both, payload, f.both.Sign(payload), Untrusted)
	check("foreign", f.foreign, payload, f.foreign.Sign(payload), Untrusted)
	check("another key's", f.signer, payload, f.retired.Sign(payload), Invalid)
	check("nothing", f.signer, payload, "", Invalid)
	status := f.status.AppendCanonical(nil)
	check("another role", f.signer, status, f.signer.Sign(status), Invalid)
	if got := CheckSignature(f.trust, f.signer.Key().KeyID, status, f.signer.Sign(status)); got != Valid {
		t.Error(got)
	}
}
