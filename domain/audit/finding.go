package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"integrityledger/domain"
)

// Check names what was found wrong. The set only grows.
type Check string

// Checks.
const (
	CheckReadable   Check = "readable"   // the row or line cannot be read
	CheckPosition   Check = "position"   // gapless within a shard
	CheckSequence   Check = "sequence"   // gapless within an organization, from 1
	CheckTime       Check = "time"       // never decreasing, but at a reset
	CheckHash       Check = "hash"       // RFC 6962 leaf hash of the stored members
	CheckCanonical  Check = "canonical"  // data is the RFC 8785 form of what it says
	CheckBinding    Check = "binding"    // members that say the same agree
	CheckSignature  Check = "signature"  // of records and certificates
	CheckText       Check = "text"       // erasable texts by their salted hashes
	CheckHistory    Check = "history"    // an event can follow those before it
	CheckActor      Check = "actor"      // no act of a key or a member that had ended
	CheckUnique     Check = "unique"     // an id means one thing
	CheckFormer     Check = "former"     // history was only extended
	CheckHead       Check = "head"       // what stands beside the log agrees with its end
	CheckProjection Check = "projection" // a row is as the log says
	CheckStray      Check = "stray"      // no rows outside the shards of the ledger
	CheckLog        Check = "log"        // the transparency tree is what the events give, and its checkpoint is signed
	CheckFile       Check = "file"       // a file of a bundle is as its manifest says
)

// Finding is one thing that is not as it must be. Zero members do not apply.
type Finding struct {
	Check        Check  `json:"check"`
	Organization string `json:"organization,omitempty"`
	Sequence     int64  `json:"sequence,omitempty"` // the organization's
	Shard        *int   `json:"shard,omitempty"`
	Position     int64  `json:"position,omitempty"` // the shard's
	Event        string `json:"event,omitempty"`
	// Place is a table with a row's key, or a file, where no event is meant.
	Place    string `json:"place,omitempty"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// String is the finding as a person reads it.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(string(f.Check) + ":")
	if f.Organization != "" {
		b.WriteString(" organization " + f.Organization)
	}
	if f.Sequence != 0 {
		fmt.Fprintf(&b, " sequence %d", f.Sequence)
	}
	if f.Shard != nil {
		fmt.Fprintf(&b, " shard %d", *f.Shard)
		if f.Position != 0 {
			fmt.Fprintf(&b, " position %d", f.Position)
		}
	}
	if f.Place != "" {
		b.WriteString(" " + f.Place)
	}
	fmt.Fprintf(&b, ": expected %s, found %s", f.Expected, f.Found)
	return b.String()
}

// damages reports whether the log cannot be replayed where this was found. An act of a key that had ended is a fact
// like any other: releases that judged keys only when a request began let one finish, and what it wrote stays.
func (f Finding) damages() bool {
	switch f.Check {
	case CheckText, CheckSignature, CheckActor, CheckFormer, CheckStray:
		return false
	}
	return true
}

// InShard sets the shard.
func (f Finding) InShard(shard domain.Shard) Finding {
	n := int(shard)
	f.Shard = &n
	return f
}

// most is how many findings are kept in words; the others are only counted.
const most = 100

// findings keeps the first ones, by sequence.
type findings struct {
	all     []Finding
	count   int64
	damaged bool // whether one of all that were counted leaves the log unfit to be replayed
}

func (f *findings) add(more ...Finding) {
	f.count += int64(len(more))
	f.damaged = f.damaged || slices.ContainsFunc(more, Finding.damages)
	f.all = append(f.all, more...)
	if len(f.all) > 2*most {
		f.trim()
	}
}

// trim puts the findings in the order of sequences; those of one event stay as they were.
func (f *findings) trim() []Finding {
	slices.SortStableFunc(f.all, func(a, b Finding) int { return cmp.Compare(a.Sequence, b.Sequence) })
	f.all = f.all[:min(len(f.all), most)]
	return f.all
}
