package worm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
)

// Limits of the trusted-keys files in a bucket. Operators change their file a few times a year.
const (
	maxSets     = 1000     // different ones
	maxSetBytes = 64 << 20 // in total
)

// sets are the different trusted-keys files of exports, by SHA-256. The readings use it in the order of their names.
type sets struct {
	known map[string]*keySet
	bytes int
}

// parse parses a file unless it is known. surplus means that there are too many files, so this one is not compared: a
// writer of the bucket must not be able to end an audit. Files that cannot be parsed do not count.
func (s *sets) parse(file []byte) (set *keySet, surplus bool, err error) {
	sum := sha256Of(file)
	if set := s.known[sum]; set != nil {
		return set, false, nil
	}
	if len(s.known) == maxSets || s.bytes+len(file) > maxSetBytes {
		return nil, true, nil
	}
	trusted, err := evidence.ParseTrustedKeys(file)
	if err != nil {
		return nil, false, err
	}
	s.bytes += len(file)
	if s.known == nil {
		s.known = map[string]*keySet{}
	}
	set = newKeySet(trusted)
	s.known[sum] = set
	return set, false, nil
}

// step is a set of keys in the order of time.
type step struct {
	*keySet
	at    time.Time
	place string
	from  say.Sentence
}

// keysCheck compares sets of keys.
type keysCheck struct {
	*Report
	pinned   *keySet
	first    map[string]time.Time // when a member was seen first, by its ID
	reported map[string]bool      // findings, by place and ID
	missing  []say.Sentence       // notes about sets that lack what an earlier one has
}

// keys compares the keys of each export with those of the next one, and with the keys that the ledger and the auditor
// have. A key that was exported must never differ or vanish later. Operators may remove witnesses and replace the
// certificates of authorities, so these count only if the auditor has pinned them and the newest keys lack them. An
// export may have keys that nobody has pinned, such as one that is staged.
func (r *Report) keys(ctx context.Context, read []*reading, q Question) error {
	var line []step
	surplus, first := 0, ""
	for _, e := range read {
		if e.surplus {
			if surplus++; surplus == 1 {
				first = e.Name
			}
		}
		if e.keys != nil && !e.future() {
			line = append(line, step{e.keys, e.At, e.place(bundle.TrustedKeysFile), say.Sentencef("the export %s", e.Name)})
		}
	}
	if surplus > 0 {
		r.bucket(
			say.Sentencef("at most %d different trusted-keys files, of %d bytes in total", maxSets, maxSetBytes),
			say.Sentencef("more. Exports whose file was not compared: %d. The first: %s", surplus, first),
		)
		r.NotChecked = append(r.NotChecked, say.Sentencef(
			"whether keys vanished or changed: the exports contain too many different trusted-keys files",
		))
	}
	if len(line) == 0 {
		return nil
	}
	c := keysCheck{Report: r, pinned: newKeySet(q.Trusted), first: map[string]time.Time{}, reported: map[string]bool{}}
	defer func() { r.note(c.missing) }()
	for i, s := range line[1:] {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.follows(line[i], s, nil)
	}
	all, newest := line, line[len(line)-1:]
	if q.Ledger.TrustedKeys == nil {
		r.NotChecked = append(r.NotChecked, say.Sentencef("whether the exported keys are the ledger's: %v", q.Ledger.Missing))
	} else {
		ledger := step{newKeySet(q.Ledger.TrustedKeys), q.Ledger.At, q.Ledger.Place, say.Sentencef("the keys of the ledger")}
		i, _ := slices.BinarySearchFunc(line, ledger.at, func(s step, at time.Time) int { return s.at.Compare(at) })
		all, newest = slices.Insert(slices.Clone(line), i, ledger), append(slices.Clone(newest), ledger)
		if i > 0 {
			c.follows(line[i-1], ledger, nil)
		}
		if i < len(line) {
			c.follows(ledger, line[i], line[i+1:])
		}
	}
	sets := c.see(all)
	// The pinned keys may be older than these, or have keys and revocations that are newer.
	for _, s := range newest {
		var faults []difference
		for _, d := range compare(c.pinned, s.keySet) {
			first, seen := c.first[d.id]
			newer := d.since.After(s.at) && (d.missing || d.retired)
			lost := seen && !first.After(s.at) && (d.keyID != "" || d.removable)
			if newer || d.missing && !lost {
				continue
			}
			if d.removable {
				d.found = say.Sentencef("none: it was removed or replaced; ask the operator")
			}
			faults = append(faults, d)
		}
		c.differ(s, say.Sentencef("the trusted keys"), faults)
	}
	c.unpinned(sets)
	c.unexported()
	return nil
}

// follows compares a set with the one before. What a later set has again is a note: another host may write the exports,
// and its trusted-keys file may be older than the keys that the ledger has published.
func (c *keysCheck) follows(before, s step, later []step) {
	if before.keySet == s.keySet {
		return
	}
	var faults []difference
	var notes []say.Sentence
	for _, d := range compare(before.keySet, s.keySet) {
		again := slices.ContainsFunc(later, func(l step) bool {
			now, ok := l.byID[d.id]
			return ok && !d.differs(now)
		})
		switch {
		case c.reported[s.place+" "+d.id]:
		case d.removable || again:
			notes = append(notes, d.expected)
		default:
			faults = append(faults, d)
		}
	}
	if notes != nil {
		c.missing = append(
			c.missing, say.Sentencef("%s does not have these, which are in %s: %s", s.place, before.from, shortList(notes)),
		)
	}
	c.differ(s, before.from, faults)
}

// maxListed is the number of names, notes or findings of one kind, or of one export, that are listed.
const maxListed = 20

// differ adds findings about a set.
func (c *keysCheck) differ(s step, from say.Sentence, faults []difference) {
	add := func(expected, found say.Sentence) {
		c.found(audit.Finding{Check: audit.CheckExport, Place: s.place, Expected: expected, Found: found})
	}
	faults = slices.DeleteFunc(faults, func(d difference) bool { return c.reported[s.place+" "+d.id] })
	for i, d := range faults {
		if i == maxListed {
			add(say.Sentencef("the keys in %s", from), say.Sentencef("%d more differences", len(faults)-i))
			break
		}
		c.reported[s.place+" "+d.id] = true
		add(say.Sentencef("%s, as in %s", d.expected, from), d.found)
	}
}

// see notes when each member was seen first, and returns the different sets.
func (c *keysCheck) see(line []step) (different []*keySet) {
	seen := map[*keySet]bool{}
	for _, s := range line {
		if seen[s.keySet] {
			continue
		}
		seen[s.keySet], different = true, append(different, s.keySet)
		for _, m := range s.list {
			if _, ok := c.first[m.id]; !ok {
				c.first[m.id] = s.at
			}
		}
	}
	return different
}

// unexported notes pinned keys that nothing else has, because they are newer, or belong to another service.
func (c *keysCheck) unexported() {
	var names []say.Sentence
	for _, m := range c.pinned.list {
		if _, seen := c.first[m.id]; !seen {
			names = append(names, m.name)
		}
	}
	if names != nil {
		c.Sayf("no export has these, which the trusted keys have: %s", shortList(names))
	}
}

// shortList joins the first names.
func shortList(names []say.Sentence) say.Phrase {
	if more := len(names) - maxListed; more > 0 {
		names = append(names[:maxListed], say.Sentencef("%d more", more))
	}
	return say.Join(names, ", ")
}

// unpinned lists the keys and revocations of the exports and the ledger that the auditor has not pinned.
func (c *keysCheck) unpinned(sets []*keySet) {
	said := map[string]bool{}
	var names []say.Sentence
	for _, set := range sets {
		for _, m := range set.list {
			if _, pinned := c.pinned.byID[m.id]; !pinned && !said[m.id] {
				said[m.id], names = true, append(names, m.name)
			}
		}
	}
	if names != nil {
		c.NotChecked = append(c.NotChecked, say.Sentencef(
			"whether these belong to the service (the trusted keys do not have them): %s", shortList(names),
		))
	}
}

// member is a key, certificate or revocation in a set.
type member struct {
	id        string // the same in each set that has it
	keyID     string // of a signing key
	name      say.Sentence
	value     say.Sentence // status and time, which must not change
	reason    string       // of a revocation
	since     time.Time    // zero if nothing says since when
	removable bool         // an operator may remove it
	retired   bool
}

// differs reports whether the same member has changed in a later set. A key may be retired. A file that does not say
// since when a key is used contradicts none that does.
func (m member) differs(now member) bool {
	switch {
	case now.retired && !m.retired:
		return false
	case m.retired && !now.retired, m.reason != now.reason:
		return true
	}
	return !m.since.IsZero() && !now.since.IsZero() && !m.since.Equal(now.since)
}

// keySet is a trusted-keys file with its members.
type keySet struct {
	list []member
	byID map[string]member
}

func newKeySet(trusted *evidence.TrustedKeys) *keySet {
	set := &keySet{list: membersOf(trusted), byID: map[string]member{}}
	for _, m := range set.list {
		set.byID[m.id] = m
	}
	return set
}

// membersOf lists the members of a set.
func membersOf(set *evidence.TrustedKeys) (list []member) {
	add := func(m member, since string) {
		m.since, _ = time.Parse(time.RFC3339Nano, since) // checked when the set was created
		list = append(list, m)
	}
	for _, k := range set.Keys() {
		value := say.Sentencef("active since %s", k.Since)
		switch {
		case k.Status == evidence.KeyRetired:
			value = say.Sentencef("retired since %s", k.Since)
		case k.Since == "":
			value = say.Sentencef("active")
		}
		add(member{
			id: "key " + k.KeyID, keyID: k.KeyID, name: say.Sentencef("the signing key %s", k.KeyID), value: value,
			retired: k.Status == evidence.KeyRetired,
		}, k.Since)
	}
	for _, k := range set.LogKeys() {
		add(member{id: "log " + k.VerifierKey, name: say.Sentencef("the log key %s", k.VerifierKey)}, "")
	}
	for _, k := range set.WitnessKeys() {
		add(member{
			id: "witness " + k.VerifierKey, name: say.Sentencef("the witness key %s", k.VerifierKey), removable: true,
		}, "")
	}
	for _, a := range set.Authorities() {
		for _, der := range a.Certificates {
			sum := sha256.Sum256(der)
			fingerprint := hex.EncodeToString(sum[:])
			add(member{
				id:   "authority " + a.Name + " " + fingerprint,
				name: say.Sentencef("the certificate %s of %s", fingerprint, a.Name), removable: true,
			}, "")
		}
	}
	for _, k := range set.Revoked() {
		value := say.Sentencef("revoked since %s", k.Since)
		if k.Reason == evidence.ReasonCompromised {
			value = say.Sentencef("compromised since %s", k.Since)
		}
		add(member{
			id: "revoked " + k.KeyID, name: say.Sentencef("the revocation of the key %s", k.KeyID), value: value,
			reason: k.Reason,
		}, k.Since)
	}
	return list
}

// difference is a member that a later set lacks, or has with another value.
type difference struct {
	member
	expected, found say.Sentence
	missing         bool
}

// compare lists the members of a set that differ in a later one, or have vanished. A key may be retired, and a revoked
// key may be left out.
func compare(earlier, later *keySet) (list []difference) {
	for _, m := range earlier.list {
		now, ok := later.byID[m.id]
		_, revoked := later.byID["revoked "+m.keyID]
		switch {
		case !ok && !revoked:
			list = append(list, difference{m, m.name, say.Sentencef("none"), true})
		case ok && m.differs(now):
			list = append(list, difference{m, say.Sentencef("%s, %s", m.name, m.value), now.value, false})
		}
	}
	return list
}
