package check_test

import (
	"slices"

	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/history"
)

// lookUp returns the last look-up of a write with an unknown outcome, after which no event changed the result.
func (s spoiled) lookUp(write, read history.Operation) *history.Call {
	unknown := s.find(func(c *history.Call) bool { return c.Operation == write && c.Outcome == history.Unknown })
	for i := range s.Calls {
		if c := &s.Calls[len(s.Calls)-1-i]; unknown != nil && c.Operation == read && c.Outcome != history.Unknown &&
			about(c, unknown) {
			return c
		}
	}
	return nil
}

// about reports whether two calls' requests name the same object.
func about(c, d *history.Call) bool {
	a, b := c.Request, d.Request
	version := func(c *history.Call) string {
		if c.Operation == history.ArtifactRead {
			return c.Answer.ArtifactVersion
		}
		return c.Request.ArtifactVersion
	}
	return c.Organization == d.Organization && c.Company == d.Company && a.Document == b.Document &&
		a.Version == b.Version && a.Target == b.Target && a.PublicID == b.PublicID && version(c) == version(d)
}

// spoilLookUps are ways in which the outcome of an unknown write stays unknown, or is shown wrongly.
func spoilLookUps() (list []spoil) {
	for write, read := range map[history.Operation]history.Operation{
		history.Reserve: history.ReservationRead, history.Release: history.ReservationRead, history.Revoke: history.Record,
		history.KeyRotate: history.KeyRead, history.KeyRevoke: history.KeyRead, history.Grant: history.KeyRead,
		history.Review: history.ArtifactRead, history.Approve: history.ArtifactRead, history.Certify: history.ArtifactRead,
		history.CertificateEnd: history.CertificateRead,
	} {
		list = append(list,
			spoil{"an unknown " + string(write) + " that nobody looked up", check.Resolved, func(s spoiled) bool {
				found := s.lookUp(write, read)
				if found == nil {
					return false
				}
				is, shown := *found, found.Answer
				s.Calls = slices.DeleteFunc(s.Calls, func(c history.Call) bool {
					return c.Operation == read && about(&c, &is) ||
						write == history.Revoke && (c.Operation == history.Compare && c.Request.PublicID == is.Request.PublicID ||
							c.Operation == history.Lookup && c.Organization == is.Organization && c.Company == shown.Company &&
								c.Request.Document == shown.Document && c.Request.Version == shown.Version)
				})
				return true
			}})
	}
	return append(list,
		spoil{"an unknown registration that was looked up before it was given up", check.Resolved, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return c.Operation == history.Register && c.Outcome == history.Unknown && s.effect(c, "integrity.registered") < 0
			})
			if c == nil {
				return false
			}
			c.End = 1 << 60
			return true
		}},
		spoil{"an unknown registration that was looked up in the past", check.Resolved, func(s spoiled) bool {
			for i := range s.Calls {
				switch c := &s.Calls[i]; c.Operation {
				case history.Lookup, history.Record, history.Compare:
					c.Request.ReadAfter = new(int64(0))
				case history.Register:
					if c.Outcome == history.Answered && c.Answer.Replayed || c.Code == "VERSION_CONFLICT" {
						c.Outcome, c.Code = history.Unknown, ""
					}
				}
			}
			return true
		}},
		spoil{"a reservation that the list lacks", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.ReservationRead)(c) && c.Answer.ReservationStatus == "pending"
			})
			if c != nil {
				c.Answer.ReservationStatus, c.Answer.PublicID = "", ""
			}
			return c != nil
		}},
		spoil{"a reservation that is listed, but never was", check.Version, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.ReservationRead)(c) && c.Answer.ReservationStatus == ""
			})
			if c != nil {
				c.Answer.ReservationStatus = "pending"
			}
			return c != nil
		}},
		spoil{"a revoked key that is shown as working", check.Key, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.KeyRead)(c) && c.Answer.KeyState == "revoked"
			})
			if c != nil {
				c.Answer.KeyState = "working"
			}
			return c != nil
		}},
		spoil{"a key that is shown as rotated, but was not", check.Key, func(s spoiled) bool {
			c := s.find(func(c *history.Call) bool {
				return answered(history.KeyRead)(c) && c.Answer.KeyState == "working"
			})
			if c != nil {
				c.Answer.KeyState = "ending"
			}
			return c != nil
		}},
		spoil{"a grant that is not shown", check.Access, func(s spoiled) bool {
			c := s.lookUp(history.Grant, history.KeyRead)
			if c != nil {
				c.Answer.Granted = !c.Answer.Granted
			}
			return c != nil
		}},
	)
}
