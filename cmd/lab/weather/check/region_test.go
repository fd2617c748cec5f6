package check_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/history"
)

// lossStory is a run in which a region is lost: record a is kept, b and c are lost. b is healed, and c, which its origin
// registered anew, becomes an alias.
type lossStory struct {
	h   *history.History
	now int64
}

func (s *lossStory) event(position int64, kind, document, id, request, actor string, more map[string]any) history.LogEvent {
	data := map[string]any{
		"companyReference": "alpha", "source": "s", "documentReference": document, "version": 1, "documentId": document,
		"publicId": id, "status": "current", "period": "2026-11",
		"payload": map[string]any{"sha256": hashOf(document), "sizeBytes": 1},
	}
	for name, value := range more {
		data[name] = value
	}
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return history.LogEvent{
		Position: position, Organization: "org_1", Sequence: position, ID: fmt.Sprintf("evt_%s-%d", id, position), Type: kind,
		Company: new("com_1"), Subject: id, RequestID: request, Actor: actor, Data: text,
	}
}

func hashOf(document string) string { return strings.Repeat(document, 64) }

func (s *lossStory) call(operation history.Operation, region, document, id string, status int, more func(*history.Call)) {
	s.now += 100
	n := int64(len(s.h.Calls) + 1)
	c := history.Call{
		Number: n, RequestID: fmt.Sprint("r-", n), Client: "c", Organization: "org_1", Company: "alpha", Operation: operation,
		Service: region + "service-1", Start: s.now, End: s.now + 50, Status: status, Outcome: history.Judge(status, true),
	}
	switch operation {
	case history.Register:
		c.Request = history.Request{Source: "s", Document: document, Version: 1, Hash: hashOf(document), SizeBytes: 1}
		c.Answer = history.Answer{Applied: 1, RecordAnswer: history.RecordAnswer{PublicID: id}}
	default:
		c.Organization, c.Company = "", ""
		c.Request = history.Request{PublicID: id, Hash: hashOf(document)}
		if c.Answer.Result = "MATCH_CURRENT"; status == 404 {
			c.Code, c.Answer.Result = "RECORD_NOT_FOUND", ""
		}
	}
	if more != nil {
		more(&c)
	}
	s.h.Calls = append(s.h.Calls, c)
}

func newLossStory() *lossStory {
	s := &lossStory{h: &history.History{Header: history.Header{
		StartedAt: "x", Organizations: []history.Organization{{
			ID: "org_1", Companies: []history.Company{{ID: "com_1", Reference: "alpha"}},
		}},
	}}}
	const second = "region-2 "
	loss := &history.Loss{Region: second, Kept: map[int]int64{0: 1}, Planned: []string{"idb", "idc"}}
	s.h.End.Loss = loss
	for _, document := range []string{"a", "b", "c"} {
		s.call(history.Register, "", document, "id"+document, 201, nil)
	}
	s.call(history.Compare, "", "b", "idb", 200, nil)
	s.now += 1000
	loss.At = s.now
	s.call(history.Compare, second, "a", "ida", 200, nil)
	s.call(history.Compare, second, "b", "idb", 404, nil)
	s.call(history.Register, second, "c", "new", 201, nil)
	loss.HealedFrom = s.now + 60
	s.now += 1000
	loss.HealedTo = s.now
	s.call(history.Compare, second, "b", "idb", 200, nil)
	s.call(history.Compare, second, "c", "idc", 200, nil)
	loss.Lost = []history.LogEvent{
		s.event(2, "integrity.registered", "b", "idb", "r-2", "key_1", nil),
		s.event(3, "integrity.registered", "c", "idc", "r-3", "key_1", nil),
	}
	s.h.End.Log = []history.LogEvent{
		s.event(1, "integrity.registered", "a", "ida", "r-1", "key_1", nil),
		s.event(2, "integrity.registered", "c", "new", "r-7", "key_1", nil),
		s.event(3, "integrity.healed", "b", "idb", "cli", "operator", nil),
		s.event(4, "integrity.aliased", "c", "idc", "cli", "operator", map[string]any{"aliasOf": "new", "payload": nil}),
	}
	return s
}

// batch replaces the registration of c after the loss by a batch of two items that name it.
func (s *lossStory) batch(statuses ...int) {
	of := s.h.Calls[6]
	of.Batch = 1
	s.h.Calls = slices.Delete(s.h.Calls, 6, 7)
	for i, status := range statuses {
		item := of
		item.Number, item.Status, item.Outcome = of.Number+int64(100*i), status, history.Judge(status, true)
		if item.Answer.Replayed = status == 200; item.Answer.Replayed {
			item.Answer.Applied = 0
		}
		s.h.Calls = slices.Insert(s.h.Calls, 6+i, item)
	}
}

// sees heals b by a proof, and lets a client see how many versions are used afterwards.
func (s *lossStory) sees(used int64, proof string) {
	s.h.End.Log[2] = s.event(3, "integrity.healed", "b", "idb", "cli", "operator", map[string]any{"proof": proof})
	s.call(history.Register, "region-2 ", "a", "ida", 200, func(c *history.Call) {
		c.Answer.Replayed, c.Answer.Applied, c.Answer.Period, c.Answer.Used = true, 0, "2026-11", &used
	})
}

// TestRegion: a loss that was declared exactly, and healed exactly, is accepted, and nothing else.
func TestRegion(t *testing.T) {
	t.Parallel()
	const second = "region-2 "
	for name, story := range map[string]struct {
		spoil func(s *lossStory)
		want  check.Name // empty: nothing is found
	}{
		"good":                    {func(*lossStory) {}, ""},
		"the plan forgets a loss": {func(s *lossStory) { s.h.End.Loss.Planned = []string{"idb"} }, check.Region},
		"the plan prints what is there": {func(s *lossStory) {
			s.h.End.Loss.Planned = append(s.h.End.Loss.Planned, "ida")
		}, check.Region},
		"a record is not healed": {func(s *lossStory) {
			s.h.End.Log = slices.Delete(s.h.End.Log, 2, 3)
			s.h.End.Log[2].Position, s.h.End.Log[2].Sequence = 3, 3
		}, check.Region},
		"a record is healed as another": {func(s *lossStory) {
			s.h.End.Log[2] = s.event(3, "integrity.healed", "d", "idb", "cli", "operator", nil)
		}, check.Region},
		"an alias is missing": {func(s *lossStory) { s.h.End.Log = s.h.End.Log[:3] }, check.Region},
		"a record is healed that no answer named": {func(s *lossStory) {
			s.h.End.Log = append(s.h.End.Log, s.event(5, "integrity.healed", "d", "idd", "cli", "operator", nil))
		}, check.Region},
		"a record of the standby is missing": {func(s *lossStory) {
			s.call(history.Compare, second, "a", "ida", 404, nil)
		}, check.Version},
		"a lost record is missing after healing": {func(s *lossStory) {
			s.call(history.Compare, second, "b", "idb", 404, nil)
		}, check.Version},
		"an alias is missing after healing": {func(s *lossStory) {
			s.call(history.Compare, second, "c", "idc", 404, nil)
		}, check.Version},
		"a lost record is there before healing": {func(s *lossStory) {
			s.h.Calls[5].Status, s.h.Calls[5].Outcome, s.h.Calls[5].Code = 200, history.Answered, ""
			s.h.Calls[5].Answer.Result = "MATCH_CURRENT"
		}, check.Version},
		"an acknowledged write is in neither log": {func(s *lossStory) {
			s.h.End.Loss.Lost = s.h.End.Loss.Lost[:1]
		}, check.Acknowledged},
		"a write after the loss is missing": {func(s *lossStory) {
			s.call(history.Register, second, "e", "ide", 201, nil)
		}, check.Acknowledged},
		"two items of a batch for a lost version, of which one registers it": {func(s *lossStory) { s.batch(201, 200) }, ""},
		"two items of a batch that are one registration":                     {func(s *lossStory) { s.batch(201, 201) }, check.Acknowledged},
		"two items of a batch that are repetitions of nothing":               {func(s *lossStory) { s.batch(200, 200) }, check.Acknowledged},
		"two items of a batch that are refused, and register":                {func(s *lossStory) { s.batch(422, 422) }, check.Refusal},
		"two items of a batch, of which one sees too few used": {func(s *lossStory) {
			s.batch(201, 200)
			s.h.Calls[6].Answer.Period, s.h.Calls[6].Answer.Used = "2026-11", new(int64(1))
		}, check.Quota},
		"a healed receipt is charged":         {func(s *lossStory) { s.sees(3, "receipt") }, ""},
		"a healed receipt is not charged":     {func(s *lossStory) { s.sees(2, "receipt") }, check.Quota},
		"a healed declaration is charged":     {func(s *lossStory) { s.sees(3, "declaration") }, check.Quota},
		"a healed declaration is not charged": {func(s *lossStory) { s.sees(2, "declaration") }, ""},
		"a lost event is in the log": {func(s *lossStory) {
			s.h.End.Loss.Lost[0].ID = s.h.End.Log[2].ID
		}, check.Region},
		"the log is shorter than the standby's": {func(s *lossStory) {
			s.h.End.Loss.Kept[1] = 4
		}, check.Region},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLossStory()
			story.spoil(s)
			r, err := check.Check(s.h, check.Options{Skip: []check.Name{
				check.Evidence, check.Feed, check.Usage, check.Verdict,
			}})
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(r.Violations, func(v check.Violation) bool { return v.Check == story.want })
			if story.want == "" && !r.Good() || story.want != "" && !found {
				t.Errorf("it finds %v", r.Violations)
			}
		})
	}
}
