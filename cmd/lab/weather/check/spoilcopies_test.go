package check_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/check/checktest"
	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain/evidence"
)

func versionOf(e *history.LogEvent) string {
	var data struct {
		VersionID string `json:"versionId"`
	}
	_ = json.Unmarshal(e.Data, &data)
	return data.VersionID
}

// pageOf finds a page of several events.
func (s spoiled) pageOf(n int) *history.Call {
	return s.find(func(c *history.Call) bool { return answered(history.FeedPage)(c) && len(c.Answer.Events) >= n })
}

// spoilCopies are ways in which feed, stream, webhooks, searches and usage may differ from the log.
func spoilCopies() []spoil {
	return []spoil{
		{"a reader that passes a hole", check.FeedPage, func(s spoiled) bool {
			c := s.pageOf(3)
			c.Answer.Events = slices.Delete(c.Answer.Events, 1, 2)
			return true
		}},
		{"a cursor beyond the page", check.FeedPage, func(s spoiled) bool {
			s.pageOf(2).Answer.NextCursor++
			return true
		}},
		{"a page in the wrong order", check.FeedPage, func(s spoiled) bool {
			slices.Reverse(s.pageOf(2).Answer.Events)
			return true
		}},
		{"a page that goes back", check.FeedPage, func(s spoiled) bool {
			c := s.pageOf(1)
			c.Request.After = c.Answer.Events[0].Sequence
			return true
		}},
		{"a page with an event that the log lacks", check.FeedPage, func(s spoiled) bool {
			s.pageOf(1).Answer.Events[0].ID = "phantom"
			return true
		}},
		{"a page with another status", check.FeedPage, func(s spoiled) bool {
			s.pageOf(1).Answer.Events[0].RecordStatus = "another"
			return true
		}},
		{"a page with another hash", check.FeedPage, func(s spoiled) bool {
			s.pageOf(1).Answer.Events[0].SHA256 = strings.Repeat("0", 64)
			return true
		}},
		{"a page without a hash", check.FeedPage, func(s spoiled) bool {
			s.pageOf(1).Answer.Events[0].SHA256 = ""
			return true
		}},
		{"a page that says more where nothing follows", check.FeedPage, func(s spoiled) bool {
			c := s.pageOf(1)
			c.Answer.Events = []history.FeedEvent{s.End.Feed[s.lastOf(c)]}
			c.Answer.NextCursor, c.Request.After, c.Answer.HasMore = c.Answer.Events[0].Sequence, c.Answer.Events[0].Sequence-
				1, true
			c.End = 1 << 60
			return true
		}},
		{"a page of the future", check.FeedPage, func(s spoiled) bool {
			c := s.pageOf(1)
			c.Answer.Events = []history.FeedEvent{s.End.Feed[s.lastOf(c)]}
			c.Answer.NextCursor, c.Request.After = c.Answer.Events[0].Sequence, c.Answer.Events[0].Sequence-1
			c.Start, c.End = 1, 2
			return true
		}},
		{"a feed that ends too early", check.FeedPage, func(s spoiled) bool {
			c := s.pageOf(1)
			c.Answer.Events, c.Answer.NextCursor, c.Answer.HasMore = nil, c.Request.After, false
			c.Start, c.End = 1<<60, 1<<60
			return true
		}},
		{"a feed with Read-After that ends before it", check.ReadAfter, func(s spoiled) bool {
			c := s.pageOf(1)
			c.Request.ReadAfter = new(c.Answer.Events[0].Sequence)
			c.Answer.Events, c.Answer.NextCursor, c.Answer.HasMore = nil, c.Request.After, false
			return true
		}},
		{"a search with Read-After that shows less", check.ReadAfter, func(s spoiled) bool {
			c := s.fullSearch()
			if c == nil {
				return false
			}
			c.Request.ReadAfter = new(int64(1 << 40))
			c.Answer.Records = nil
			return true
		}},
		{"a feed without an event", check.Feed, func(s spoiled) bool {
			s.End.Feed = slices.Delete(s.End.Feed, 5, 6)
			return true
		}},
		{"a feed with an event twice", check.Feed, func(s spoiled) bool {
			s.End.Feed = slices.Insert(s.End.Feed, 5, s.End.Feed[5])
			return true
		}},
		{"a feed of another order", check.Feed, func(s spoiled) bool {
			slices.Reverse(s.End.Feed)
			return true
		}},
		{"a feed that shows another version", check.Feed, func(s spoiled) bool {
			s.End.Feed[3].Version = 77
			return true
		}},
		{"a stream without an event", check.Stream, func(s spoiled) bool {
			s.End.Stream = slices.Delete(s.End.Stream, 5, 6)
			return true
		}},
		{"a stream with an event twice", check.Stream, func(s spoiled) bool {
			m := s.End.Stream[5]
			m.Number = 1 << 40
			s.End.Stream = append(s.End.Stream, m)
			return true
		}},
		{"a stream of another order", check.Stream, func(s spoiled) bool {
			s.End.Stream[5].Number = 1 << 40
			return true
		}},
		{"a message with the id of another", check.Stream, func(s spoiled) bool {
			s.End.Stream[5].ID = s.End.Stream[6].ID
			return true
		}},
		{"a message to another organization", check.Stream, func(s spoiled) bool {
			s.End.Stream[5].Organization = "org_other"
			return true
		}},
		{"a search that misses a record", check.Search, func(s spoiled) bool {
			c := s.fullSearch()
			if c != nil {
				c.Answer.Records = nil
			}
			return c != nil
		}},
		{"a search that shows a record that the log lacks", check.Search, func(s spoiled) bool {
			s.find(answered(history.Search)).Answer.Records = []history.RecordAnswer{{PublicID: "phantom", Status: "current"}}
			return true
		}},
		{"a search that shows a record twice", check.Search, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Search)(c) && len(c.Answer.Records) > 0 })
			if c != nil {
				c.Answer.Records = append(c.Answer.Records, c.Answer.Records[0])
			}
			return c != nil
		}},
		{"an event with two deliveries", check.Webhook, func(s spoiled) bool {
			d := s.End.Deliveries[3]
			d.ID = "dlv_other"
			s.End.Deliveries = append(s.End.Deliveries, d)
			return true
		}},
		{"a delivery that is listed twice", check.Webhook, func(s spoiled) bool {
			s.End.Deliveries = append(s.End.Deliveries, s.End.Deliveries[3])
			return true
		}},
		{"a delivery of an event that the log lacks", check.Webhook, func(s spoiled) bool {
			s.End.Deliveries[3].EventID = "phantom"
			return true
		}},
		{"a webhook that never came", check.Webhook, func(s spoiled) bool {
			id := s.End.Receipts[3].EventID
			s.End.Receipts = slices.DeleteFunc(s.End.Receipts, func(r history.Receipt) bool { return r.EventID == id })
			return true
		}},
		{"a webhook that comes again in fair weather", check.Webhook, func(s spoiled) bool {
			s.Faults = nil
			i := slices.IndexFunc(s.End.Receipts, func(r history.Receipt) bool { return r.Status == 200 })
			s.End.Receipts = append(s.End.Receipts, s.End.Receipts[i])
			return true
		}},
		{"one webhook id with two bodies", check.Webhook, func(s spoiled) bool {
			i := slices.IndexFunc(s.End.Receipts, func(r history.Receipt) bool { return r.Status == 503 })
			s.End.Receipts[i].BodySHA256 = "another"
			return true
		}},
		{"a webhook with a bad signature", check.Webhook, func(s spoiled) bool {
			s.End.Receipts[3].Signed = false
			return true
		}},
		{"a webhook of an event that the log lacks", check.Webhook, func(s spoiled) bool {
			s.End.Receipts[3].EventID = "phantom"
			return true
		}},
		{"a webhook with another status", check.Webhook, func(s spoiled) bool {
			s.End.Receipts[3].RecordStatus = "another"
			return true
		}},
		{"a webhook of another record", check.Webhook, func(s spoiled) bool {
			s.End.Receipts[3].PublicID = "another"
			return true
		}},
		{"a webhook of another version", check.Webhook, func(s spoiled) bool {
			s.End.Receipts[3].Version = 77
			return true
		}},
		{"a webhook of the future", check.Webhook, func(s spoiled) bool {
			s.End.Receipts[len(s.End.Receipts)-1].At = 0
			return true
		}},
		{"no webhooks at all", check.Webhook, func(s spoiled) bool {
			s.End.Webhooks = nil
			return true
		}},
		{"a doubled unit", check.Usage, func(s spoiled) bool {
			u := &s.End.Usage[0]
			u.Entries = append(u.Entries, u.Entries[0])
			return true
		}},
		{"a unit too many", check.Usage, func(s spoiled) bool {
			s.End.Usage[0].Used++
			return true
		}},
		{"a unit that is no registration", check.Usage, func(s spoiled) bool {
			s.End.Usage[0].Entries = append(s.End.Usage[0].Entries, s.End.Log[0].ID)
			return true
		}},
		{"a registration that is no unit", check.Usage, func(s spoiled) bool {
			s.End.Usage[0].Entries = s.End.Usage[0].Entries[1:]
			return true
		}},
		{"a unit of another company", check.Usage, func(s spoiled) bool {
			s.End.Usage[0].Companies["c-0"]++
			return true
		}},
		{"a company that is charged nothing", check.Usage, func(s spoiled) bool {
			delete(s.End.Usage[0].Companies, "c-0")
			return true
		}},
		{"no usage", check.Usage, func(s spoiled) bool {
			s.End.Usage = nil
			return true
		}},
	}
}

// lastOf returns the index of the last event of the feed that a call reads.
func (s spoiled) lastOf(c *history.Call) int {
	last := -1
	for i, f := range s.End.Feed {
		if f.CompanyReference == c.Company && s.End.Stream[i].Organization == c.Organization {
			last = i
		}
	}
	return last
}

// fullSearch finds a search, by a key that keeps its companies, that shows a record acknowledged before it.
func (s spoiled) fullSearch() *history.Call {
	return s.find(func(c *history.Call) bool {
		if !answered(history.Search)(c) || len(c.Answer.Records) != 1 {
			return false
		}
		ack := s.find(func(r *history.Call) bool {
			return created(r) && r.Answer.PublicID == c.Answer.Records[0].PublicID && r.End < c.Start
		})
		return ack != nil && s.find(func(g *history.Call) bool {
			return g.Operation == history.Grant && g.Request.Target == c.Key && g.End >= c.Start-1e5
		}) == nil
	})
}

// spoilProofs are faults in evidence, in the tree, and in the reports of monitors and witnesses.
func spoilProofs() []spoil {
	sign := func(s spoiled, size int64, change byte) {
		signer, err := checktest.Signer()
		if err != nil {
			s.t.Fatal(err)
		}
		s.End.Checkpoints = append(
			s.End.Checkpoints, history.Checkpoint{By: "liar", Note: checktest.SignCheckpoint(signer, size, tlog.Hash{change})},
		)
	}
	verdict := func(name string) func(s spoiled) bool {
		return func(s spoiled) bool {
			s.End.Verdicts = slices.DeleteFunc(s.End.Verdicts, func(v history.Verdict) bool { return v.Name == name })
			return true
		}
	}
	return []spoil{
		{"evidence with a changed byte", check.Evidence, func(s spoiled) bool {
			return s.rewrite(s.End.Evidence[0].File, func(text []byte) []byte {
				i := slices.Index(text, 'a')
				text[i] = 'b'
				return text
			})
		}},
		{"evidence of another record", check.Evidence, func(s spoiled) bool {
			s.End.Evidence[0].File = s.End.Evidence[1].File
			s.End.Evidence = s.End.Evidence[:1]
			return true
		}},
		{"evidence that is missing", check.Evidence, func(s spoiled) bool {
			s.End.Evidence[0].File = "evidence/none"
			return true
		}},
		{"evidence outside of the run", check.Evidence, func(s spoiled) bool {
			s.End.Evidence[0].File = "../evidence"
			return true
		}},
		{"a public receipt for an export", check.Evidence, func(s spoiled) bool {
			return s.rewrite(s.End.Evidence[0].File, func(text []byte) []byte {
				var e map[string]any
				if err := json.Unmarshal(text, &e); err != nil {
					s.t.Fatal(err)
				}
				delete(e, "references")
				delete(e, "statusObservation")
				text, err := json.Marshal(e)
				if err != nil {
					s.t.Fatal(err)
				}
				return text
			})
		}},
		{"a second payload of one record, signed", check.Evidence, func(s spoiled) bool {
			return s.rewrite(s.End.Evidence[0].File, func(text []byte) []byte {
				e, err := evidence.ParseEnvelope(text)
				if err != nil {
					s.t.Fatal(err)
				}
				sign := func(into *evidence.Signed, payload string) {
					if *into, err = checktest.Sign([]byte(payload)); err != nil {
						s.t.Fatal(err)
					}
				}
				before := sha256.Sum256([]byte(e.Payload))
				sign(&e.Signed, strings.Replace(e.Payload, `"sizeBytes":10`, `"sizeBytes":11`, 1))
				after := sha256.Sum256([]byte(e.Payload))
				sign(
					e.StatusObservation,
					strings.Replace(e.StatusObservation.Payload, hex.EncodeToString(before[:]), hex.EncodeToString(after[:]), 1),
				)
				if text, err = json.Marshal(e); err != nil {
					s.t.Fatal(err)
				}
				return text
			})
		}},
		{"evidence of another state", check.Evidence, func(s spoiled) bool {
			return s.reobserve(func(p *evidence.StatusPayload) {
				p.Status = map[evidence.Status]evidence.Status{
					"current": "superseded", "superseded": "current", "revoked": "current",
				}[p.Status]
			})
		}},
		{"evidence of a state that is yet to come", check.Evidence, func(s spoiled) bool {
			s.Calls = append(s.Calls,
				history.Call{Operation: history.EvidenceRead, Organization: "org_a", Outcome: history.Answered, Start: 1, End: 2,
					Request: history.Request{PublicID: s.End.Evidence[0].PublicID},
					Answer:  history.Answer{File: s.End.Evidence[0].File}})
			s.End.Evidence = nil
			return true
		}},
		{"evidence of an old state", check.Evidence, func(s spoiled) bool {
			s.Calls = append(s.Calls,
				history.Call{Operation: history.EvidenceRead, Organization: "org_a", Outcome: history.Answered, Start: 1 << 60,
					End:     1 << 60,
					Request: history.Request{PublicID: s.End.Evidence[0].PublicID},
					Answer:  history.Answer{File: s.End.Evidence[0].File}})
			s.End.Evidence = nil
			return s.reobserve(func(p *evidence.StatusPayload) { p.Sequence-- })
		}},
		{"evidence of a state before the one that was asked for", check.ReadAfter, func(s spoiled) bool {
			s.Calls = append(s.Calls,
				history.Call{Operation: history.EvidenceRead, Organization: "org_a", Outcome: history.Answered, Start: 1 << 60,
					End:     1 << 60,
					Request: history.Request{PublicID: s.End.Evidence[0].PublicID, ReadAfter: new(int64(1 << 40))},
					Answer:  history.Answer{File: s.End.Evidence[0].File}})
			s.End.Evidence = nil
			return s.reobserve(func(p *evidence.StatusPayload) { p.Sequence-- })
		}},
		{"evidence in a log of its own", check.Checkpoint, func(s spoiled) bool {
			return s.reform(func(e *evidence.Envelope) {
				leaf := evidence.Leaf{
					ID: "evt_01m8bs7qz4e2vb4vqnwzmdn75b", Type: "integrity.registered",
					OccurredAt:    time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC),
					PayloadSHA256: new(evidence.Hash(sha256.Sum256([]byte(e.Payload)))),
				}.AppendCanonical(nil)
				signer, err := checktest.Signer()
				if err != nil {
					s.t.Fatal(err)
				}
				e.Inclusion = &evidence.Inclusion{
					Leaf: string(leaf), TreeSize: 1, Hashes: []string{},
					Checkpoint: checktest.SignCheckpoint(signer, 1, tlog.RecordHash(leaf)),
				}
			})
		}},
		{"a signature in the log that does not hold", check.Evidence, func(s spoiled) bool {
			s.End.Evidence = nil
			return s.setText(s.index(ofType("integrity.registered")), `"erp"`, `"crm"`)
		}},
		{"a payload in the log that was changed", check.Evidence, func(s spoiled) bool {
			s.End.Evidence = nil
			return s.setText(s.index(ofType("integrity.registered")), `"sizeBytes":10`, `"sizeBytes":11`)
		}},
		{"another hash than was declared", check.Evidence, func(s spoiled) bool {
			s.find(created).Request.Hash = "another"
			return true
		}},
		{"no trusted keys", check.Evidence, func(s spoiled) bool {
			s.End.Trust = nil
			return true
		}},
		{"a forked checkpoint", check.Checkpoint, func(s spoiled) bool {
			sign(s, int64(len(s.End.Log)), 1)
			return true
		}},
		{"a forked checkpoint of a size that nobody else saw", check.Checkpoint, func(s spoiled) bool {
			s.End.Checkpoints = nil
			sign(s, 17, 1)
			return true
		}},
		{"two checkpoints of one size without leaves", check.Checkpoint, func(s spoiled) bool {
			s.End.Leaves = nil
			sign(s, 17, 1)
			sign(s, 17, 2)
			return true
		}},
		{"a tree that was taken back", check.Checkpoint, func(s spoiled) bool {
			sign(s, int64(len(s.End.Log))+1, 1)
			return true
		}},
		{"a checkpoint that the log has not signed", check.Checkpoint, func(s spoiled) bool {
			note := []byte(s.End.Checkpoints[0].Note)
			note[len(note)-10] ^= 1
			s.End.Checkpoints[0].Note = string(note)
			return true
		}},
		{"no checkpoints", check.Checkpoint, func(s spoiled) bool {
			s.End.Checkpoints = nil
			return true
		}},
		{"no trusted log keys", check.Checkpoint, func(s spoiled) bool {
			s.End.Trust = nil
			return true
		}},
		{"an event that is not in the tree", check.Leaf, func(s spoiled) bool {
			return s.rewrite(s.End.Leaves.File, func(text []byte) []byte { return text[:len(text)-tlog.HashSize] })
		}},
		{"a leaf of no event", check.Leaf, func(s spoiled) bool {
			return s.rewrite(s.End.Leaves.File, func(text []byte) []byte { return append(text, make([]byte, tlog.HashSize)...) })
		}},
		{"half a leaf", check.Leaf, func(s spoiled) bool {
			return s.rewrite(s.End.Leaves.File, func(text []byte) []byte { return text[:len(text)-1] })
		}},
		{"no leaves", check.Leaf, func(s spoiled) bool {
			s.End.Leaves = nil
			return true
		}},
		{"an audit with findings", check.Verdict, func(s spoiled) bool {
			s.End.Verdicts[0].Clean = false
			return true
		}},
		{"a command that failed", check.Verdict, func(s spoiled) bool {
			s.End.Verdicts[0].Exit = 2
			return true
		}},
		{"no audit", check.Verdict, verdict(history.AuditVerdict)},
		{"no rebuild", check.Verdict, verdict(history.RebuildVerdict)},
		{"no bundles", check.Verdict, verdict(history.BundleVerdict)},
		{"a monitor's alarm", check.Verdict, func(s spoiled) bool {
			s.End.Monitors[0].Alarm = "a fork"
			return true
		}},
	}
}

// reform changes an evidence.
func (s spoiled) reform(change func(*evidence.Envelope)) bool {
	name := "evidence/" + s.reformed() + ".json"
	return s.rewrite(name, func(text []byte) []byte {
		e, err := evidence.ParseEnvelope(text)
		if err == nil {
			change(&e)
			text, err = json.Marshal(e)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return text
	})
}

// reformed returns the record whose evidence is changed.
func (s spoiled) reformed() string {
	for _, c := range s.Calls {
		if c.Answer.File != "" {
			return c.Request.PublicID
		}
	}
	return s.End.Evidence[0].PublicID
}

// reobserve signs an evidence's observation again.
func (s spoiled) reobserve(change func(*evidence.StatusPayload)) bool {
	return s.reform(func(e *evidence.Envelope) {
		p, err := evidence.ParseStatusPayload([]byte(e.StatusObservation.Payload))
		if err != nil {
			s.t.Fatal(err)
		}
		change(&p)
		if *e.StatusObservation, err = checktest.Sign(p.AppendCanonical(nil)); err != nil {
			s.t.Fatal(err)
		}
	})
}

// setText changes the data of an event as text.
func (s spoiled) setText(i int, from, to string) bool {
	s.End.Log[i].Data = bytes.Replace(s.End.Log[i].Data, []byte(from), []byte(to), 1)
	return true
}
