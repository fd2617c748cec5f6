package check_test

import (
	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/history"
)

// spoilWrites are ways in which the log may contradict the answers to writers.
func spoilWrites() []spoil {
	return []spoil{
		{"a lost acknowledgement", check.Acknowledged, func(s spoiled) bool {
			return s.drop(s.effect(s.find(created), "integrity.registered"))
		}},
		{"another public id than was answered", check.Acknowledged, func(s spoiled) bool {
			s.find(created).Answer.PublicID = "another"
			return true
		}},
		{"another record id than was answered", check.Acknowledged, func(s spoiled) bool {
			s.find(created).Answer.RecordID = "another"
			return true
		}},
		{"another hash than was answered", check.Acknowledged, func(s spoiled) bool {
			s.find(created).Answer.Hash = "another"
			return true
		}},
		{"a new record that is answered as a repetition", check.Acknowledged, func(s spoiled) bool {
			s.find(created).Answer.Replayed = true
			return true
		}},
		{"two units for one record", check.Acknowledged, func(s spoiled) bool {
			s.find(created).Answer.Applied = 2
			return true
		}},
		{"a sequence before that of the write", check.Acknowledged, func(s spoiled) bool {
			c := s.find(created)
			c.Answer.Sequence = s.End.Log[s.effect(c, "integrity.registered")].Sequence - 1
			return true
		}},
		{"another version than was asked for", check.Acknowledged, func(s spoiled) bool {
			s.find(created).Request.Version = 77
			return true
		}},
		{"one call with two effects", check.Acknowledged, func(s spoiled) bool {
			c := s.find(created)
			return s.insert(s.effect(c, "integrity.registered"), func(e *history.LogEvent, data map[string]any) {
				e.Subject, data["version"], data["documentId"], data["documentReference"] = "other", 1, "doc_other", "other"
			})
		}},
		{"a repetition that changed something", check.Acknowledged, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Register)(c) && c.Answer.Replayed && c.Batch == 0 })
			return s.insert(0, func(e *history.LogEvent, _ map[string]any) {
				e.RequestID, e.Organization = c.RequestID, c.Organization
			})
		}},
		{"a lost revocation", check.Acknowledged, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Revoke)(c) && !c.Answer.Replayed })
			return c != nil && s.drop(s.effect(c, "integrity.revoked"))
		}},
		{"a lost upload", check.Acknowledged, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Upload)(c) && !c.Answer.Replayed })
			return c != nil && s.drop(s.effect(c, "artifact.version_registered"))
		}},
		{"a key that is not the created one", check.Acknowledged, func(s spoiled) bool {
			c := s.find(answered(history.KeyRotate))
			if c != nil {
				c.Answer.Key = "another"
			}
			return c != nil
		}},
		{"another review than was answered", check.Acknowledged, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Review)(c) && !c.Answer.Replayed })
			c.Answer.Act = "another"
			return true
		}},
		{"another certificate than was answered", check.Acknowledged, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Certify)(c) && !c.Answer.Replayed })
			if c != nil {
				c.Answer.Certificate = "another"
			}
			return c != nil
		}},
		{"another version of an artifact than was answered", check.Acknowledged, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Upload)(c) && !c.Answer.Replayed })
			c.Answer.ArtifactVersion = "another"
			return true
		}},
		{"a refusal that changed something", check.Refusal, func(s spoiled) bool {
			c := s.find(created)
			c.Outcome, c.Status, c.Code, c.Answer = history.Refused, 422, "INVALID_DATA", history.Answer{}
			return true
		}},
		{"a refusal with half an effect", check.Refusal, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return refused(history.Register, "VERSION_CONFLICT")(c) && c.Batch == 0 })
			return c != nil && s.insert(0, func(e *history.LogEvent, _ map[string]any) {
				e.RequestID, e.Organization = c.RequestID, c.Organization
			})
		}},
		{"an unknown call that happened twice", check.Resolved, func(s spoiled) bool {
			c := s.happened(history.Register, "integrity.registered")
			return c != nil && s.insert(s.effect(c, "integrity.registered"), func(e *history.LogEvent, data map[string]any) {
				e.Subject, data["version"], data["documentId"], data["documentReference"] = "other", 1, "doc_other", "other"
			})
		}},
		{"an unknown call with half an effect", check.Resolved, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return c.Operation == history.Register && c.Outcome == history.Unknown && c.Batch == 0 &&
					s.effect(c, "integrity.registered") < 0
			})
			return c != nil && s.insert(0, func(e *history.LogEvent, _ map[string]any) {
				e.RequestID, e.Organization = c.RequestID, c.Organization
			})
		}},
		{"an unknown call that declared another version", check.Resolved, func(s spoiled) bool {
			c := s.happened(history.Register, "integrity.registered")
			if c != nil {
				c.Request.Version = 77
			}
			return c != nil
		}},
		{"an Idempotency-Key with two answers", check.Idempotency, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return c.Request.IdempotencyKey != "" && c.Answer.Replayed })
			if c == nil {
				return false
			}
			again := *c
			again.Number, again.RequestID, again.Answer.Act, again.Answer.ArtifactVersion = 0, "again", "another", "another"
			s.Calls = append(s.Calls, again)
			return true
		}},
		{"an Idempotency-Key with two effects", check.Idempotency, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Review)(c) && !c.Answer.Replayed })
			d := s.find(func(d *history.Call) bool {
				return answered(history.Review)(d) && !d.Answer.Replayed &&
					d.Request.ArtifactVersion == c.Request.ArtifactVersion && d.RequestID != c.RequestID &&
					d.Organization == c.Organization
			})
			if d != nil {
				d.Request.IdempotencyKey = c.Request.IdempotencyKey
			}
			return d != nil
		}},
		{"an answer that was kept without an effect", check.Idempotency, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Upload)(c) && !c.Answer.Replayed })
			c.Answer.Replayed = true
			return s.drop(s.effect(c, "artifact.version_registered"))
		}},
		{"two records for one version", check.Log, func(s spoiled) bool {
			return s.insert(s.index(ofType("integrity.registered")), func(e *history.LogEvent, data map[string]any) {
				data["recordId"] = "rec_other"
			})
		}},
		{"a version with two public ids", check.Log, func(s spoiled) bool {
			c := s.find(answered(history.Reserve))
			return s.insert(s.effect(c, "integrity.reserved"), func(e *history.LogEvent, data map[string]any) {
				e.Subject = "other"
			})
		}},
		{"a public id of two versions", check.Log, func(s spoiled) bool {
			return s.insert(s.index(ofType("integrity.registered")), func(e *history.LogEvent, data map[string]any) {
				data["version"] = 9
			})
		}},
		{"a reservation of a registered version", check.Log, func(s spoiled) bool {
			return s.insert(s.index(ofType("integrity.registered")), func(e *history.LogEvent, data map[string]any) {
				e.Type = "integrity.reserved"
			})
		}},
		{"a second release", check.Version, func(s spoiled) bool {
			return s.insert(s.index(ofType("integrity.released")), func(*history.LogEvent, map[string]any) {})
		}},
		{"a second revocation", check.Log, func(s spoiled) bool {
			return s.insert(s.index(ofType("integrity.revoked")), func(*history.LogEvent, map[string]any) {})
		}},
		{"a missing supersession", check.Log, func(s spoiled) bool {
			return s.drop(s.index(ofType("integrity.superseded")))
		}},
		{"a second supersession", check.Log, func(s spoiled) bool {
			return s.insert(s.index(ofType("integrity.superseded")), func(*history.LogEvent, map[string]any) {})
		}},
		{"a wrong status from birth", check.Log, func(s spoiled) bool {
			return s.setData(s.index(ofType("integrity.registered")), "status", "superseded")
		}},
		{"a hole in the sequence", check.Log, func(s spoiled) bool {
			for i := range s.End.Log {
				if e := &s.End.Log[i]; e.Organization == "org_a" && e.Sequence > 40 {
					e.Sequence++
				}
			}
			return true
		}},
		{"a hole in the positions", check.Log, func(s spoiled) bool {
			for i := range s.End.Log {
				if e := &s.End.Log[i]; e.Shard == 0 && e.Position > 40 {
					e.Position++
				}
			}
			return true
		}},
		{"an event that stands twice", check.Log, func(s spoiled) bool {
			return s.insert(20, func(e *history.LogEvent, _ map[string]any) { e.ID = s.End.Log[20].ID })
		}},
		{"a record that nobody asked for", check.Log, func(s spoiled) bool {
			s.End.Log[s.index(ofType("integrity.registered"))].RequestID = "of nobody"
			return true
		}},
		{"two events in the wrong order", check.Order, func(s spoiled) bool {
			first := s.find(func(c *history.Call) bool { return created(c) && c.Organization == "org_a" })
			last := s.find(func(c *history.Call) bool {
				return created(c) && c.Organization == "org_a" && c.Start > first.End+1e4
			})
			i, j := s.effect(first, "integrity.registered"), s.effect(last, "integrity.registered")
			s.End.Log[i].RequestID, s.End.Log[j].RequestID = last.RequestID, first.RequestID
			return true
		}},
		{"more versions than the plan allows", check.Quota, func(s spoiled) bool {
			*s.Header.Organizations[1].VersionsPerMonth = 19
			return true
		}},
		{"a unit that is counted twice in an answer", check.Quota, func(s spoiled) bool {
			*s.find(created).Answer.Used++
			return true
		}},
	}
}
