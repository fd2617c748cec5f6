package worm

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
)

// keys compares the keys of each export with those of the next one, and with the keys that the ledger and the auditor
// have. A key that was exported must never differ or vanish later. Operators may remove witnesses and replace the
// certificates of authorities, so these count only if the auditor has pinned them. An export may have keys that nobody
// has pinned, such as one that is staged.
func (r *Report) keys(read []*reading, q Question) {
	var line []step
	for _, e := range read {
		if e.keys != nil && !e.future() {
			line = append(line, step{e.keys, e.At, e.place(bundle.TrustedKeysFile), say.Sentencef("the export %s", e.Name)})
		}
	}
	if len(line) == 0 {
		return
	}
	newest := line[len(line)-1:]
	if q.Ledger == nil {
		r.NotChecked = append(r.NotChecked, say.Sentencef(
			"whether the exported keys are the ledger's: it has published none in its transparency log (integrity keys "+
				"publish)",
		))
	} else {
		ledger := step{q.Ledger.TrustedKeys, q.Ledger.At, q.Ledger.Place, say.Sentencef("the keys of the ledger")}
		i, _ := slices.BinarySearchFunc(line, ledger.at, func(s step, at time.Time) int { return s.at.Compare(at) })
		line, newest = slices.Insert(slices.Clone(line), i, ledger), append(slices.Clone(newest), ledger)
	}
	pinned := namesOf(q.Trusted)
	for i, s := range line[1:] {
		for _, d := range compare(line[i].TrustedKeys, s.TrustedKeys) {
			if d.removable && !pinned[d.id] {
				r.Sayf(
					"%s does not have %s, which %s has; the trusted keys do not have it either", s.place, d.name, line[i].from,
				)
			} else {
				r.differs(s, line[i].from, d)
			}
		}
	}
	// The pinned keys may be older than these, or have keys and revocations that are newer.
	for _, s := range newest {
		for _, d := range compare(q.Trusted, s.TrustedKeys) {
			newer := d.since.After(s.at) && (d.missing || d.retired)
			if !newer && (!d.missing || d.keyID != "") {
				r.differs(s, say.Sentencef("the trusted keys"), d)
			}
		}
	}
	r.unpinned(line, pinned)
	r.unexported(line, q.Trusted)
}

// step is a set of keys in the order of time.
type step struct {
	*evidence.TrustedKeys
	at    time.Time
	place string
	from  say.Sentence
}

func (r *Report) differs(s step, from say.Sentence, d difference) {
	r.Findings = append(r.Findings, audit.Finding{
		Check: audit.CheckExport, Place: s.place, Expected: say.Sentencef("%s, as in %s", d.expected, from), Found: d.found,
	})
}

// unexported notes pinned keys that nothing else has, because they are newer, or belong to another service.
func (r *Report) unexported(line []step, trusted *evidence.TrustedKeys) {
	known := map[string]bool{}
	for _, s := range line {
		for id := range namesOf(s.TrustedKeys) {
			known[id] = true
		}
	}
	var names []say.Sentence
	for _, m := range membersOf(trusted) {
		if !known[m.id] {
			names = append(names, m.name)
		}
	}
	if names != nil {
		r.Sayf("no export has these, which the trusted keys have: %s", shortList(names))
	}
}

// shortList joins the first names.
func shortList(names []say.Sentence) say.Phrase {
	const most = 20
	if more := len(names) - most; more > 0 {
		names = append(names[:most], say.Sentencef("%d more", more))
	}
	return say.Join(names, ", ")
}

// unpinned says which keys and revocations of the exports and the ledger nobody has pinned.
func (r *Report) unpinned(line []step, pinned map[string]bool) {
	said := map[string]bool{}
	var names []say.Sentence
	for _, k := range line {
		for _, m := range membersOf(k.TrustedKeys) {
			if !pinned[m.id] && !said[m.id] {
				said[m.id], names = true, append(names, m.name)
			}
		}
	}
	if names != nil {
		r.NotChecked = append(r.NotChecked, say.Sentencef(
			"whether these are the service's, because the trusted keys do not have them: %s", shortList(names),
		))
	}
}

// member is a key, certificate or revocation in a set.
type member struct {
	id        string // the same in each set that has it
	keyID     string // of a signing key
	name      say.Sentence
	value     say.Sentence // what must not change
	since     time.Time    // zero if nothing says since when
	removable bool         // an operator may remove it
	retired   bool
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
		}, k.Since)
	}
	return list
}

func namesOf(set *evidence.TrustedKeys) map[string]bool {
	names := map[string]bool{}
	for _, m := range membersOf(set) {
		names[m.id] = true
	}
	return names
}

// difference is a member that a later set lacks, or has with another value.
type difference struct {
	member
	expected, found say.Sentence
	missing         bool
}

// compare lists the members of a set that differ in a later one, or have vanished. A key may be retired, and a revoked
// key may be left out.
func compare(earlier, later *evidence.TrustedKeys) (list []difference) {
	found := map[string]member{}
	for _, m := range membersOf(later) {
		found[m.id] = m
	}
	for _, m := range membersOf(earlier) {
		now, ok := found[m.id]
		_, revoked := found["revoked "+m.keyID]
		switch {
		case !ok && !revoked:
			list = append(list, difference{m, m.name, say.Sentencef("none"), true})
		case ok && now.value.String() != m.value.String() && (m.retired || !now.retired):
			list = append(list, difference{m, say.Sentencef("%s, %s", m.name, m.value), now.value, false})
		}
	}
	return list
}
