package evidence

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"integrityledger/domain/say"
)

func TestFindingsAsJSON(t *testing.T) {
	f := newFixture(t)
	var got map[string]any
	if err := json.Unmarshal(marshal(t, Verify(nil, f.trust, Options{Now: testNow})), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"signature": "invalid", "references": "not-checked", "observation": "not-checked", "observedStatus": nil,
		"observedAt": nil,
		"fileMatch":  nil, "inclusion": "not-checked", "record": nil, "notes": []any{},
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
	check("good", f.signer, payload, must(f.signer.Sign(payload)), Valid)
	check("retired", f.retired, payload, must(f.retired.Sign(payload)), Valid)
	check("revoked", f.revoked, payload, must(f.revoked.Sign(payload)), Untrusted)
	check("both", f.both, payload, must(f.both.Sign(payload)), Untrusted)
	check("foreign", f.foreign, payload, must(f.foreign.Sign(payload)), Untrusted)
	check("another key's", f.signer, payload, must(f.retired.Sign(payload)), Invalid)
	check("nothing", f.signer, payload, "", Invalid)
	status := f.status.AppendCanonical(nil)
	check("another role", f.signer, status, must(f.signer.Sign(status)), Invalid)
	if got := CheckSignature(f.trust, f.signer.Key().KeyID, status, must(f.signer.Sign(status))); got != Valid {
		t.Error(got)
	}
}

// TestDocumentHash: a document's hash may be upper or lower case, and an invalid hash is not reported as a mismatch.
func TestDocumentHash(t *testing.T) {
	f := newFixture(t)
	receipt := marshal(t, f.envelope())
	sum := f.record.SHA256.String()
	for hash, want := range map[string]*bool{
		strings.ToUpper(sum): pointer(true), hexSHA256(nil): pointer(false), sum[1:]: nil, sum + "\n": nil,
	} {
		got := Verify(receipt, f.trust, Options{Now: testNow, Document: &Document{hash, -1}})
		if !reflect.DeepEqual(got.FileMatch, want) || (got.ExitCode() == 0) != (want != nil && *want) {
			t.Errorf("%q: %s", hash, marshal(t, got))
		}
	}
}

// histories adds exports that contain the state as of an earlier moment.
func (b *vectorBook) histories() {
	standard := StatusAsOfPayload{b.f.status, instant("2026-11-19T18:00:00Z"), 40}
	// export has no observation, like the service's export of a state as of a moment.
	export := func(s Signed) []byte {
		return b.envelope(func(_ *fixture, e *Envelope) { e.StatusObservation, e.StatusAsOf = nil, &s })
	}
	then := func(change func(p *StatusAsOfPayload)) []byte {
		p := standard
		change(&p)
		return export(must(b.f.signer.SignPayload(p.AppendCanonical(nil))))
	}
	unchanged := func(*StatusAsOfPayload) {}
	fails := func(finding Finding) func(*vector) {
		return func(v *vector) {
			observationAbsent(v)
			v.Expect.Findings.StatusAsOf, v.Expect.ExitCode = finding, 1
		}
	}
	holds := func(status Status, asOf time.Time, sequence int64, exit int) func(*vector) {
		return func(v *vector) {
			observationAbsent(v)
			f := v.Expect.Findings
			f.StatusAsOf, f.AsOfStatus, f.AsOf, f.AsOfSequence = Valid, &status, pointer(FormatTime(asOf)), &sequence
			v.Expect.ExitCode = exit
		}
	}
	early, late := b.f.record.ReceivedAt, b.f.status.ObservedAt
	good := holds(Current, standard.AsOf, 40, 0)
	b.add("as of: current then", then(unchanged), good)
	b.add("as of: current then is not current now", then(unchanged), good, requireCurrent, exits(1))
	b.add(
		"as of: superseded then", then(func(p *StatusAsOfPayload) { p.Status = Superseded }),
		holds(Superseded, standard.AsOf, 40, 0),
	)
	b.add(
		"as of: revoked then", then(func(p *StatusAsOfPayload) { p.Status = Revoked }), holds(Revoked, standard.AsOf, 40, 1),
	)
	b.add(
		"as of: the record's own time", then(func(p *StatusAsOfPayload) { p.AsOf = early }), holds(Current, early, 40, 0),
	)
	b.add("as of: when it was observed", then(func(p *StatusAsOfPayload) {
		p.AsOf, p.AsOfSequence = late, 41
	}), holds(Current, late, 41, 0))
	b.add("as of: beside an observation", b.envelope(func(f *fixture, e *Envelope) {
		s := must(f.signer.SignPayload(standard.AppendCanonical(nil)))
		e.StatusAsOf = &s
	}), good, func(v *vector) {
		f := v.Expect.Findings
		f.Observation, f.ObservedStatus, f.ObservedAt = Valid, pointer(Current), pointer(FormatTime(late))
	})
	b.add("as of: not reached", b.envelope(func(f *fixture, e *Envelope) {
		s := must(f.signer.SignPayload(standard.AppendCanonical(nil)))
		e.StatusObservation, e.StatusAsOf, e.Signature = nil, &s, strings.Repeat("A", 86)
	}), recordFails(Invalid), func(v *vector) {
		v.Expect.Findings.Observation, v.Expect.Findings.StatusAsOf = NotSupplied, NotChecked
	})
	for name, change := range map[string]func(p *StatusAsOfPayload){
		"before the record":          func(p *StatusAsOfPayload) { p.AsOf = early.Add(-time.Microsecond) },
		"after it was observed":      func(p *StatusAsOfPayload) { p.AsOf = testNow.Add(time.Hour) },
		"beyond the sequence":        func(p *StatusAsOfPayload) { p.AsOfSequence = 42 },
		"sequence zero":              func(p *StatusAsOfPayload) { p.AsOfSequence = 0 },
		"unknown status":             func(p *StatusAsOfPayload) { p.Status = "valid" },
		"another publicId":           func(p *StatusAsOfPayload) { p.PublicID = strings.Repeat("a", 26) },
		"another payload":            func(p *StatusAsOfPayload) { p.PayloadSHA256 = sha256.Sum256(nil) },
		"time in an offset":          func(p *StatusAsOfPayload) { p.AsOf = p.AsOf.In(time.FixedZone("", 3600)) },
		"observed beyond this clock": func(p *StatusAsOfPayload) { p.ObservedAt = testNow.Add(301 * time.Second) },
	} {
		b.add("as of: "+name, then(change), fails(Invalid))
	}
	canonical := string(standard.AppendCanonical(nil))
	b.add(
		"as of: observation in its place", export(must(b.f.signer.SignPayload(b.f.status.AppendCanonical(nil)))), fails(Invalid),
	)
	b.add("as of: not canonical", export(must(b.f.signer.SignPayload([]byte(canonical+" ")))), fails(Invalid))
	b.add(
		"as of: a member more",
		export(must(b.f.signer.SignPayload([]byte(strings.Replace(canonical, `"sequence"`, `"reason":"x","sequence"`, 1))))),
		fails(Invalid),
	)
	b.add("as of: by a foreign key", export(must(b.f.foreign.SignPayload([]byte(canonical)))), fails(Untrusted))
	b.add("as of: by a revoked key", export(must(b.f.revoked.SignPayload([]byte(canonical)))), fails(Untrusted))
	b.add("as of: by a retired key", export(must(b.f.retired.SignPayload([]byte(canonical)))), good)
	b.add(
		"as of: a member more in its envelope", b.replaced(`"statusObservation":{`, `"statusAsOf":{"alg":"none",`), refused,
	)
	b.add("as of: null", b.replaced(`"statusObservation":{`, `"statusAsOf":null,"x":{`), refused)
	for name, text := range b.otherMembers([]byte(canonical)) {
		s := must(b.f.signer.SignPayload([]byte(canonical)))
		s.Payload = text
		b.add("tampered as of: "+name, export(s), fails(Invalid))
	}
}

func observationAbsent(v *vector) {
	f := v.Expect.Findings
	f.Observation, f.ObservedStatus, f.ObservedAt = NotSupplied, nil, nil
}

// TestHistoryIsNotThePresent: a state as of a moment never sets the observed status, and the notes say that it is
// history.
func TestHistoryIsNotThePresent(t *testing.T) {
	f := newFixture(t)
	for _, status := range []Status{Current, Superseded, Revoked} {
		p := StatusAsOfPayload{f.status, f.status.ObservedAt, 41}
		p.Status = status
		e := f.envelope()
		s := must(f.signer.SignPayload(p.AppendCanonical(nil)))
		e.StatusObservation, e.StatusAsOf = nil, &s
		found := Verify(marshal(t, e), f.trust, Options{Now: testNow})
		words := say.Join(append(found.Notes, found.Reasons...), " ").String()
		if found.StatusAsOf != Valid || found.Observation != NotSupplied || found.ObservedStatus != nil ||
			found.ObservedAt != nil ||
			(status != Revoked) != strings.Contains(words, "History: ") || !strings.Contains(words, FormatTime(p.AsOf)) {
			t.Errorf("%+v", found)
		}
	}
}
