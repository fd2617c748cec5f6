package check_test

import (
	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/history"
)

// registeredBefore finds a look-up of a record that was acknowledged before the look-up began.
func (s spoiled) registeredBefore(good func(c *history.Call) bool) *history.Call {
	return s.find(func(c *history.Call) bool {
		return answered(history.Lookup)(c) && good(c) && s.find(func(r *history.Call) bool {
			return created(r) && r.Answer.PublicID == c.Answer.PublicID && r.End < c.Start
		}) != nil
	})
}

func fresh(c *history.Call) bool { return c.Request.ReadAfter == nil }

func notFound(c *history.Call) {
	c.Outcome, c.Status, c.Code, c.Answer = history.Refused, 404, "RECORD_NOT_FOUND", history.Answer{}
}

// lonely finds a key's refusal with no change of the key nearby.
func (s spoiled) lonely(o history.Operation, code, kind string) *history.Call {
	return s.find(func(c *history.Call) bool {
		if !refused(o, code)(c) {
			return false
		}
		near := s.find(func(d *history.Call) bool {
			return (d.Operation == history.Grant || d.Operation == history.KeyRotate ||
				d.Operation == history.KeyRevoke) && d.Request.Target == c.Key && d.Start <= c.End+1e4 && d.End+1e4 >= c.Start
		})
		return near == nil
	})
}

// spoilReads are wrong answers to readers.
func spoilReads() []spoil {
	return []spoil{
		{"a stale read", check.Version, func(s spoiled) bool {
			c := s.registeredBefore(fresh)
			notFound(c)
			return true
		}},
		{"a read with Read-After that shows less", check.Version, func(s spoiled) bool {
			c := s.registeredBefore(fresh)
			c.Request.ReadAfter = new(s.End.Log[s.index(func(e *history.LogEvent) bool {
				return e.Subject == c.Answer.PublicID && e.Type == "integrity.registered"
			})].Sequence)
			notFound(c)
			return true
		}},
		{"a look-up of what never happened", check.Version, func(s spoiled) bool {
			c := s.find(refused(history.Lookup, "RECORD_NOT_FOUND"))
			c.Outcome, c.Status, c.Code = history.Answered, 200, ""
			c.Answer.RecordAnswer = history.RecordAnswer{PublicID: "phantom", Status: "current", Hash: c.Request.Hash}
			return true
		}},
		{"a look-up that shows another hash", check.Version, func(s spoiled) bool {
			s.registeredBefore(fresh).Answer.Hash = "another"
			return true
		}},
		{"two versions that share a record's id", check.Version, func(s spoiled) bool {
			s.registeredBefore(fresh).Answer.PublicID = "another"
			return true
		}},
		{"a revoked record that is shown as current", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Lookup)(c) && c.Answer.Status == "revoked" })
			if c != nil {
				c.Answer.Status = "current"
			}
			return c != nil
		}},
		{"a repetition of another declaration", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Register)(c) && c.Answer.Replayed })
			c.Request.SizeBytes++
			return true
		}},
		{"a repetition that names another record", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Register)(c) && c.Answer.Replayed })
			c.Answer.PublicID = "another"
			return true
		}},
		{"a conflict with the same declaration", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Register)(c) && c.Answer.Replayed })
			c.Outcome, c.Status, c.Code, c.Answer = history.Refused, 409, "VERSION_CONFLICT", history.Answer{}
			return true
		}},
		{"a refused quota for a repetition", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.Register)(c) && c.Answer.Replayed && s.find(func(r *history.Call) bool {
					return created(r) && r.Answer.PublicID == c.Answer.PublicID && r.End < c.Start
				}) != nil
			})
			c.Outcome, c.Status, c.Code, c.Answer = history.Refused, 429, "REGISTRATION_QUOTA_EXHAUSTED", history.Answer{}
			return true
		}},
		{"a reservation that is pending for ever", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.Reserve)(c) && c.Answer.ReservationStatus == "finalized"
			})
			if c != nil {
				c.Answer.ReservationStatus = "pending"
			}
			return c != nil
		}},
		{"a match of another file", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Compare)(c) && c.Answer.Result == "HASH_MISMATCH" })
			c.Answer.Result = "MATCH_CURRENT"
			return true
		}},
		{"a mismatch of the same file", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Compare)(c) && c.Answer.Result == "MATCH_CURRENT" })
			c.Answer.Result = "HASH_MISMATCH"
			return true
		}},
		{"a revoked result of a record that is not", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Compare)(c) && c.Answer.Result == "MATCH_CURRENT" })
			c.Answer.Result = "RECORD_REVOKED"
			return true
		}},
		{"an invalid signature", check.Version, func(s spoiled) bool {
			s.find(answered(history.Compare)).Answer.Result = "SIGNATURE_INVALID"
			return true
		}},
		{"an unknown public id that is registered", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Compare)(c) && c.Answer.Result == "MATCH_CURRENT" })
			notFound(c)
			return true
		}},
		{"a pending link of a record", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Compare)(c) && c.Answer.Result == "MATCH_CURRENT" })
			c.Answer.Result = "REGISTRATION_PENDING"
			return true
		}},
		{"a comparison of a record that the log lacks", check.Version, func(s spoiled) bool {
			s.find(answered(history.Compare)).Request.PublicID = "phantom"
			return true
		}},
		{"a revocation that was repeated before it happened", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Revoke)(c) && c.Answer.Replayed })
			return c != nil && s.drop(s.index(func(e *history.LogEvent) bool {
				return e.Type == "integrity.revoked" && e.Subject == c.Request.PublicID
			}))
		}},
		{"a superseded version that is shown as current", check.Document, func(s spoiled) bool {
			c := s.registeredBefore(func(c *history.Call) bool {
				return fresh(c) && c.Answer.Status == "superseded" && s.find(func(r *history.Call) bool {
					return created(r) && r.Request.Document == c.Request.Document && r.Company == c.Company &&
						r.Request.Version == *c.Answer.SupersededBy && r.End < c.Start
				}) != nil
			})
			if c != nil {
				c.Answer.Status, c.Answer.SupersededBy = "current", nil
			}
			return c != nil
		}},
		{"superseded by another version", check.Document, func(s spoiled) bool {
			c := s.registeredBefore(func(c *history.Call) bool { return c.Answer.SupersededBy != nil })
			*c.Answer.SupersededBy += 10
			return true
		}},
		{"a registration that says that it is superseded by another", check.Document, func(s spoiled) bool {
			s.find(created).Answer.SupersededBy = new(int32(99))
			return true
		}},
		{"a historical match of the current version", check.Document, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Compare)(c) && c.Answer.Result == "MATCH_CURRENT" })
			c.Answer.Result = "MATCH_HISTORICAL"
			return true
		}},
		{"an old sequence after an acknowledged write", check.Sequence, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.Register)(c) && c.Answer.Replayed && c.Answer.Sequence > 60
			})
			c.Answer.Sequence -= 40
			return true
		}},
		{"a sequence in the midst of a write", check.Sequence, func(s spoiled) bool {
			i := s.index(ofType("integrity.superseded"))
			e := s.End.Log[i]
			w := s.find(func(c *history.Call) bool { return c.RequestID == e.RequestID && c.Batch == 0 })
			if w == nil {
				return false
			}
			c := s.find(func(c *history.Call) bool {
				return answered(history.Register)(c) && c.Answer.Replayed && c.Organization == e.Organization && c.Batch == 0
			})
			c.Start, c.End, c.Answer.Sequence = w.Start, w.End, e.Sequence-1
			return true
		}},
		{"a stale usage", check.Quota, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.UsageRead)(c) && *c.Answer.Used > 15 && c.Organization == "org_a"
			})
			*c.Answer.Used -= 10
			return true
		}},
		{"a refusal for the quota with room", check.Quota, func(s spoiled) bool {
			c := s.find(refused(history.Register, "REGISTRATION_QUOTA_EXHAUSTED"))
			c.Start, c.End = 1, 2
			return true
		}},
		{"a success after an acknowledged revocation", check.Key, func(s spoiled) bool {
			c := s.lonely(history.KeyUse, "INVALID_KEY", "key.revoked")
			if c != nil {
				c.Outcome, c.Status, c.Code = history.Answered, 200, ""
			}
			return c != nil
		}},
		{"a working key that is refused", check.Key, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.KeyUse)(c) && s.effectOn(c.Key, "key.revoked") < 0
			})
			c.Outcome, c.Status, c.Code = history.Refused, 401, "INVALID_KEY"
			return true
		}},
		{"a key that exists before it is made", check.Key, func(s spoiled) bool {
			c := s.find(answered(history.KeyRotate))
			d := s.find(answered(history.KeyUse))
			if c == nil || d.End >= c.Start {
				return false
			}
			d.Key = c.Answer.Key
			return true
		}},
		{"a success without access to the company", check.Access, func(s spoiled) bool {
			c := s.lonely(history.FeedPage, "COMPANY_NOT_AUTHORIZED", "company.access_changed")
			if c != nil {
				c.Outcome, c.Status, c.Code, c.Answer.NextCursor = history.Answered, 200, "", c.Request.After
			}
			return c != nil
		}},
		{"a refused company that the key has", check.Access, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.FeedPage)(c) && s.find(func(d *history.Call) bool {
					return d.Operation == history.Grant && d.Request.Target == c.Key
				}) == nil
			})
			if c != nil {
				c.Outcome, c.Status, c.Code, c.Answer = history.Refused, 403, "COMPANY_NOT_AUTHORIZED", history.Answer{}
			}
			return c != nil
		}},
		{"a certificate without approval", check.Certification, func(s spoiled) bool {
			return s.drop(s.index(func(e *history.LogEvent) bool { return e.Type == "version.approved" && s.certified(e) }))
		}},
		{"an approval without an accepted review", check.Certification, func(s spoiled) bool {
			return s.drop(s.index(func(e *history.LogEvent) bool { return e.Type == "review.declared" && s.certified(e) }))
		}},
		{"a revoked certificate that is valid", check.Certification, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.CertificateRead)(c) && c.Answer.Result == "CERTIFICATE_REVOKED"
			})
			if c != nil {
				c.Answer.Result = "MATCH"
			}
			return c != nil
		}},
		{"a replaced certificate that is valid", check.Certification, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.CertificateRead)(c) && c.Answer.Result == "CERTIFICATE_REPLACED"
			})
			if c != nil {
				c.Answer.Result = "MATCH"
			}
			return c != nil
		}},
		{"an approval that was refused without a reason", check.Certification, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Approve)(c) && !c.Answer.Replayed })
			if c == nil {
				return false
			}
			again := *c
			again.RequestID, again.Outcome, again.Status, again.Code, again.Answer = "again", history.Refused, 409,
				"INVALID_STATE", history.Answer{}
			// After the review that it needs, and before the approval was requested.
			review := s.find(func(r *history.Call) bool {
				return answered(history.Review)(r) && r.Request.ArtifactVersion == c.Request.ArtifactVersion &&
					r.Request.ReviewOutcome == "accepted" && r.End < c.Start
			})
			if review == nil {
				return false
			}
			again.Start, again.End = c.Start-1, c.Start-1
			s.Calls = append(s.Calls, again)
			return true
		}},
		{"an answer with another state of the version", check.Certification, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool { return answered(history.Review)(c) && !c.Answer.Replayed })
			c.Answer.State = "approved"
			return true
		}},
		{"an artifact that is shown as it never was", check.Certification, func(s spoiled) bool {
			s.find(answered(history.ArtifactRead)).Answer.State = "registered"
			return true
		}},
		{"a version of an artifact that is missing", check.Certification, func(s spoiled) bool {
			return s.setData(s.index(ofType("artifact.version_registered")), "version", 2)
		}},
		{"a certificate that the log lacks", check.Certification, func(s spoiled) bool {
			c := s.find(answered(history.CertificateRead))
			if c != nil {
				c.Request.PublicID = "phantom"
			}
			return c != nil
		}},
	}
}

func (s spoiled) effectOn(key, kind string) int {
	return s.index(func(e *history.LogEvent) bool { return e.Type == kind && e.Subject == key })
}

// certified reports whether an event is the only one of its kind for a version that is certified later.
func (s spoiled) certified(e *history.LogEvent) bool {
	same := 0
	issued := false
	for i := range s.End.Log {
		f := &s.End.Log[i]
		if versionOf(f) == versionOf(e) {
			if f.Type == e.Type {
				same++
			}
			issued = issued || f.Type == "certificate.issued"
		}
	}
	return same == 1 && issued
}
