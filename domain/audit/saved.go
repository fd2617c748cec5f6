package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/compact"
	"integrityledger/domain/say"
)

// SectionCount is the number of sections of a saved state: one for the first pass, and one for each part.
const SectionCount = 1 + PartCount

// savedHistory is the part of a history that judges later events. Numbers that depend on the time of the check, such as
// the number of erased texts, stay out.
type savedHistory struct {
	ID       domain.OrganizationID
	Sequence int64
	At       time.Time
	Head     [sha256.Size]byte
	Usage    []savedUsage   // by period and company
	Erasures []savedErasure // by text
}

type savedUsage struct {
	Period  domain.Period
	Company domain.CompanyID
	Used    int64
}

type savedErasure struct {
	Text     domain.TextID
	Sequence int64
}

// save saves the state of the first pass, unless something was found.
func (c *Checker) save() error {
	found := c.findings.count > 0
	histories := make([]savedHistory, 0, len(c.order))
	for _, h := range c.order {
		found = found || h.findings.count > 0
		histories = append(histories, h.saved())
	}
	if found {
		c.Save = nil
	}
	if c.Save == nil {
		return nil
	}
	slices.SortFunc(histories, func(a, b savedHistory) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	shape := c.shape(rules)
	section := compact.AppendAll(compact.AppendAll(shape[:], slices.Values(c.places())), slices.Values(histories))
	return c.Save(c.state.Parties().Append(section))
}

// rules is the number of the rules of a check. Raise it with every change after which the same events could be judged
// otherwise or leave another state although its fields stay the same: a new or stricter check, a check that falls away,
// a repaired fault of a check, another meaning of a saved field, another order of claims or parts. A change of texts or
// speed does not count. A state of other rules is refused, because the events before it were not judged by these: the
// auditor runs a whole audit. The package's tests remind of the number if one of their histories is judged otherwise.
const rules = 1

// shape is at the beginning of a saved state. Its digest differs if another version of the program keeps other fields
// or has other rules.
func (c *Checker) shape(rules int) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join([]string{
		fmt.Sprint("rules ", rules),
		compact.Shape(reflect.TypeFor[place]()), compact.Shape(reflect.TypeFor[savedHistory]()), c.state.Parties().Shape(),
		c.state.Papers().Shape(), fmt.Sprint(claimKinds),
	}, "\n")))
}

// load loads the state of the first pass of the check that this one continues.
func (c *Checker) load() error {
	if c.Since == nil {
		return nil
	}
	section, err := c.Since(0)
	if err != nil {
		return err
	}
	r := compact.NewReader(section)
	if shape := c.shape(rules); !bytes.Equal(r.Bytes(sha256.Size), shape[:]) {
		return errOtherVersion
	}
	compact.ReadAll(r, func(p place) { c.shards[p.Shard], c.since[p.Shard] = &p, p.Position })
	compact.ReadAll(r, func(s savedHistory) {
		h := c.history(s.ID)
		h.sequence, h.at, h.head = s.Sequence, s.At, s.Head
		for _, u := range s.Usage {
			h.usage[usageKey{u.Period, u.Company}] = u.Used
		}
		for _, e := range s.Erasures {
			h.erasures[e.Text] = e.Sequence
		}
	})
	c.state.Parties().Read(r)
	return r.End()
}

var errOtherVersion = say.New(
	"the state of the former audit was written by a version of this program that has other rules or keeps other " +
		"fields: audit the whole ledger (leave out --since)",
)

// places lists the ends of the logs by shard.
func (c *Checker) places() []place {
	places := make([]place, 0, len(c.shards))
	for _, shard := range slices.Sorted(maps.Keys(c.shards)) {
		places = append(places, *c.shards[shard])
	}
	return places
}

func (h *history) saved() savedHistory {
	s := savedHistory{ID: h.id, Sequence: h.sequence, At: h.at, Head: h.head}
	for _, k := range h.months() {
		s.Usage = append(s.Usage, savedUsage{k.period, k.company, h.usage[k]})
	}
	for id, sequence := range h.erasures {
		s.Erasures = append(s.Erasures, savedErasure{id, sequence})
	}
	slices.SortFunc(s.Erasures, func(a, b savedErasure) int { return bytes.Compare(a.Text[:], b.Text[:]) })
	return s
}

// months lists the months and companies of the usage in order.
func (h *history) months() []usageKey {
	return slices.SortedFunc(maps.Keys(h.usage), func(a, b usageKey) int {
		return cmp.Or(cmp.Compare(a.period, b.period), bytes.Compare(a.company[:], b.company[:]))
	})
}

// earlierClaims are the claims of one kind up to the mark, sorted by their keys and searched as they were saved. Each
// is a key and, if the key may be claimed again, its meaning.
type earlierClaims []byte

const claimKeySize = 16

// size returns the size of a claim in a saved state. An event id and a record id are claimed by one event each, so
// their meaning need not be compared: a second claim is a fault.
func (k claimKind) size() int {
	if k == claimEvent || k == claimRecord {
		return claimKeySize
	}
	return 2 * claimKeySize
}

// means returns the meaning of a key, which is zero if the key must not be claimed again.
func (e earlierClaims) means(kind claimKind, key [claimKeySize]byte) (means [16]byte, ok bool) {
	size := kind.size()
	n := len(e) / size
	i := sort.Search(n, func(i int) bool { return bytes.Compare(e[i*size:][:claimKeySize], key[:]) >= 0 })
	if i == n || [claimKeySize]byte(e[i*size:]) != key {
		return means, false
	}
	copy(means[:], e[i*size+claimKeySize:][:size-claimKeySize])
	return means, true
}

// texts returns the number of texts that the history names in this part.
func (p *part) texts() int64 {
	n := len(p.earlier[claimText]) / claimText.size()
	for k := range p.claims {
		if k.kind == claimText {
			n++
		}
	}
	return int64(n)
}

// save returns the section of a part: its documents and artifacts, then the claims by kind.
func (p *part) save() []byte {
	section := p.state.Papers().Append(nil)
	var now [claimKinds][]claimed
	for k, c := range p.claims {
		now[k.kind] = append(now[k.kind], c)
	}
	for kind := claimEvent; kind < claimKinds; kind++ {
		slices.SortFunc(now[kind], func(a, b claimed) int { return bytes.Compare(a.Key[:], b.Key[:]) })
		section = p.earlier[kind].appendMerged(section, kind, now[kind])
	}
	return section
}

// appendMerged appends the number of all claims, and the claims in order.
func (e earlierClaims) appendMerged(dst []byte, kind claimKind, now []claimed) []byte {
	size := kind.size()
	dst = binary.AppendUvarint(dst, uint64(len(e)/size+len(now)))
	for _, c := range now {
		i := 0
		for i < len(e) && bytes.Compare(e[i:][:claimKeySize], c.Key[:]) < 0 {
			i += size
		}
		dst, e = append(dst, e[:i]...), e[i:]
		dst = append(append(dst, c.Key[:]...), c.Means[:size-claimKeySize]...)
	}
	return append(dst, e...)
}

// loadPart loads the section of a part of the check that this one continues.
func (c *Checker) loadPart(p *part, n int) error {
	if c.Since == nil {
		return nil
	}
	section, err := c.Since(1 + n)
	if err != nil {
		return err
	}
	r := compact.NewReader(section)
	p.state.Papers().Read(r)
	for kind := claimEvent; kind < claimKinds; kind++ {
		p.earlier[kind] = r.Bytes(r.Uvarint() * uint64(kind.size()))
	}
	return r.End()
}
