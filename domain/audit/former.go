package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// formerHistory is a former history under comparison.
type formerHistory struct {
	Former
	sequence int64 // of the last hash that was read
	ended    bool  // nothing more to compare: it ended, or has differed once
}

// compareFormer holds an event against the former history, hash by hash. Only the
// first difference is a finding: after it everything may differ.
func (c *Checker) compareFormer(e *Event, h *history) error {
	f := c.former
	if f == nil || f.ended || e.Organization != f.Organization() {
		return nil
	}
	for f.sequence < e.Sequence {
		hash, err := f.Next()
		if errors.Is(err, io.EOF) {
			f.ended = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("former history: %w", err)
		}
		f.sequence++
		if f.sequence < e.Sequence {
			continue // the hole is a finding already
		}
		if hash != e.Hash {
			f.ended = true
			h.findings.add(finding(e, CheckFormer, "the event with hash "+hex.EncodeToString(hash[:])+", as in the former history", hex.EncodeToString(e.Hash[:])))
		}
	}
	return nil
}

// endFormer finds what the former history had beyond this one.
func (c *Checker) endFormer() error {
	f := c.former
	if f == nil || f.ended {
		return nil
	}
	h := c.history(f.Organization())
	first := f.sequence + 1
	var gone int64
	for {
		_, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("former history: %w", err)
		}
		f.sequence++
		gone++
	}
	if gone > 0 {
		h.findings.add(Finding{
			Check: CheckFormer, Organization: h.id.String(), Sequence: first,
			Expected: fmt.Sprintf("a history of at least %d events, as the former one", f.sequence),
			Found:    fmt.Sprintf("%d: its end was cut off, or the database was restored to an earlier state", h.sequence),
		})
	}
	return nil
}
