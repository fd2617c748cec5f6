package worm

import (
	"cmp"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
)

// Head is a signed size and root of the log, and the object that contains it.
type Head struct {
	Place string
	Size  int64
	Root  tlog.Hash
}

// Report is what the exports in a bucket prove by themselves.
type Report struct {
	Place       string // of the exports
	Exports     int    // complete ones
	First, Last time.Time
	TreeSize    int64 // of the last
	Tokens      int
	Heads       []Head
	Findings    []audit.Finding // the first maxFindings, those that concern single exports last
	More        int64           // number of the others
	room        int             // number of findings up to which Findings may grow now; 0: maxFindings
	Notes       []say.Sentence  // facts that are no faults
	NotChecked  []say.Sentence
}

// Sayf adds a note.
func (r *Report) Sayf(format string, args ...any) {
	r.Notes = append(r.Notes, say.Sentencef(format, args...))
}

// note adds notes of one kind, of which a writer of the bucket can cause any number.
func (r *Report) note(list []say.Sentence) {
	if more := len(list) - maxListed; more > 0 {
		list = append(list[:maxListed], say.Sentencef("and %d more exports", more))
	}
	r.Notes = append(r.Notes, list...)
}

// maxFindings is the number of findings that are listed, about half of what an audit lists.
const maxFindings = 500

// begin begins findings of another kind, of which n are listed: a writer of the bucket can cause any number of some
// kinds, and these must not hide the others.
func (r *Report) begin(n int) { r.room = len(r.Findings) + n }

// found adds findings.
func (r *Report) found(list ...audit.Finding) {
	kept := min(len(list), cmp.Or(r.room, maxFindings)-len(r.Findings))
	r.Findings, r.More = append(r.Findings, list[:kept]...), r.More+int64(len(list)-kept)
}

// bucket adds a finding about the whole bucket.
func (r *Report) bucket(expected, found say.Sentence) {
	r.found(audit.Finding{Check: audit.CheckExport, Place: r.Place, Expected: expected, Found: found})
}

// refused reports the objects that the storage has refused. It is an error if it has refused all of them: then the
// credentials are wrong.
func (r *Report) refused(read []*reading) (err error) {
	answered, n, first := false, 0, ""
	for _, e := range read {
		answered = answered || e.answered
		if n += e.unreads; first == "" {
			first = e.unread
		}
		if err == nil && e.refused != nil {
			err = say.Errorf(
				"%s: the storage refuses every object. These credentials need s3:GetObject and s3:GetObjectVersion: %w", r.Place,
				e.refused,
			)
		}
	}
	if n > 0 {
		r.NotChecked = append(r.NotChecked, say.Sentencef("objects that cannot be read: %d. The first: %s", n, first))
	}
	if answered {
		err = nil
	}
	return err
}

// locks reports how far the storage itself protects the exports.
func (r *Report) locks(read []*reading) {
	var unlocked, governed int
	var first string
	var deleted []say.Sentence
	for _, e := range read {
		if e.unlocked > 0 {
			unlocked++
			if first == "" {
				first = e.Name
			}
		}
		if e.governed > 0 {
			governed++
		}
		if e.deleted {
			deleted = append(deleted, say.Sentencef(
				"objects of the export %s were deleted later; their locked versions were read", e.Name,
			))
		}
	}
	r.note(deleted)
	if unlocked > 0 {
		r.Sayf(
			"exports that are not locked, or no longer, or whose lock these credentials may not read (s3:GetObjectRetention): "+
				"%d. The owner of the bucket could have replaced them. The first: %s", unlocked, first,
		)
	}
	if governed > 0 {
		r.Sayf(
			"exports that are locked in governance mode only: %d. Privileged users of the bucket could have replaced them", governed,
		)
	}
}

// order reports days without an export, and exports that do not continue the one before. whole is false if a limit
// ended the list: then the days after the last export are not known.
func (r *Report) order(read []*reading, now time.Time, whole bool) {
	var before *reading
	var missing, dated int
	var otherwise string
	gaps, future := []say.Sentence{}, []say.Sentence{}
	missed := func(until time.Time) {
		from, to := before.At.Truncate(24*time.Hour).AddDate(0, 0, 1), until.Truncate(24*time.Hour).AddDate(0, 0, -1)
		if days := int(to.Sub(from)/(24*time.Hour)) + 1; days > 0 {
			missing += days
			gap := say.Sentencef("%s", from.Format(nameDay))
			if days > 1 {
				gap = say.Sentencef("%s to %s", from.Format(nameDay), to.Format(nameDay))
			}
			gaps = append(gaps, gap)
		}
	}
	for _, e := range read {
		if !e.Complete() {
			continue
		}
		if d := e.stored.Sub(e.At).Abs(); !e.stored.IsZero() && d > 24*time.Hour {
			if dated++; dated == 1 {
				otherwise = e.Name
			}
		}
		r.Exports++
		if e.future() {
			future = append(future, say.Sentencef("the export %s is dated in the future", e.Name))
			continue
		}
		if before == nil {
			// The writer chooses the name, but not the time at which the store took the export.
			if r.First = e.At; e.stored.After(r.First) {
				r.First = e.stored
			}
		} else {
			missed(e.At)
			if e.Size < before.Size && !e.stored.Before(before.stored) {
				r.found(e.finding(
					audit.CheckExport, bundle.CheckpointFile,
					say.Sentencef("a log of at least %d leaves, as in the export %s", before.Size, before.Name),
					say.Sentencef("one of %d", e.Size),
				))
			}
		}
		r.Last, r.TreeSize, before = e.At, e.Size, e
	}
	if before != nil && whole {
		missed(now.UTC())
	}
	r.note(future)
	const most = 20
	if len(gaps) > most {
		gaps = append(gaps[:most], say.Sentencef("…"))
	}
	if missing > 0 {
		r.Sayf("days without an export (%d): %s", missing, say.Join(gaps, ", "))
	}
	if dated > 0 {
		r.Sayf(
			"exports that the storage received on another day than their names say: %d. They were copied, backdated, or made by "+
				"a wrong clock. The first: %s", dated, otherwise,
		)
	}
}

// histories checks that no two exports name different roots for one size.
func (r *Report) histories(read []*reading) {
	roots := map[int64]Head{}
	for _, e := range read {
		for _, h := range e.heads {
			if first, known := roots[h.Size]; !known {
				roots[h.Size] = h
			} else if first.Root != h.Root {
				r.found(audit.Finding{
					Check: audit.CheckExport, Place: h.Place,
					Expected: say.Sentencef("the root %s of %d leaves, as in %s", first.Root, h.Size, first.Place),
					Found:    say.Sentencef("%s: the log has signed two histories", h.Root),
				})
			}
		}
	}
}

// chain checks that each export still has the one that its manifest names as the previous.
func (r *Report) chain(read []*reading) {
	byName := map[string]*reading{}
	for _, e := range read {
		byName[e.Name] = e
	}
	for _, e := range read {
		if e.manifest == nil || e.manifest.Previous == nil {
			continue
		}
		p := e.manifest.Previous
		switch before := byName[p.Export]; {
		case before == nil && p.Export < read[0].Name:
			r.Sayf("the exports before %s are gone", e.Name)
		case before == nil || !before.Complete():
			r.found(e.finding(
				audit.CheckExport, manifestFile, say.Sentencef("the export %s, which came before", p.Export),
				say.Sentencef("no such export"),
			))
		case before.manifestSHA256 == "": // it cannot be read, which is a finding
		case before.manifestSHA256 != p.SHA256:
			r.found(before.finding(
				audit.CheckExport, manifestFile, say.Sentencef("the manifest of SHA-256 %s that %s names", p.SHA256, e.Name),
				say.Sentencef("%s", before.manifestSHA256),
			))
		}
	}
}

// vouching reports what witnesses and authorities have signed, and what could not be checked.
func (r *Report) vouching(read []*reading, trusted *evidence.TrustedKeys) {
	cosigned, revoked, unsigned := 0, 0, false
	uncounted, unpinned := map[string]bool{}, map[string]bool{}
	var names, authorities []say.Sentence
	for _, e := range read {
		if e.cosigned > 0 {
			cosigned++
		}
		if e.revoked {
			revoked++
		}
		unsigned = unsigned || e.unsigned
		for _, name := range e.uncounted {
			if !uncounted[name] {
				uncounted[name], names = true, append(names, say.Sentencef("%s", name))
			}
		}
		for _, name := range e.unpinned {
			if !unpinned[name] {
				unpinned[name], authorities = true, append(authorities, say.Sentencef("%s", name))
			}
		}
	}
	if len(trusted.Witnesses()) > 0 {
		r.Sayf("exports that are cosigned by a pinned witness: %d", cosigned)
	}
	if names != nil {
		r.Sayf("cosignatures that are not by a pinned witness, or do not hold, were not counted: %s", shortList(names))
	}
	if revoked > 0 {
		r.Sayf("exports with a checkpoint of a log key that was revoked later: %d", revoked)
	}
	if unsigned {
		r.NotChecked = append(r.NotChecked, say.Sentencef(
			"the signatures of the exported checkpoints: the trusted-keys file has no log key",
		))
	}
	if authorities != nil {
		r.NotChecked = append(r.NotChecked, say.Sentencef(
			"who signed the exported tokens of %s: the trusted keys pin no certificate under the name",
			shortList(authorities),
		))
	}
	if r.First.IsZero() {
		r.NotChecked = append(
			r.NotChecked, say.Sentencef("whether the history was rewritten: no export with a past date was read"),
		)
		return
	}
	r.NotChecked = append(r.NotChecked,
		say.Sentencef("whether the history was rewritten before the first export, of %s", evidence.FormatTime(r.First)),
		say.Sentencef("the history since the last export, of %s with %d leaves", evidence.FormatTime(r.Last), r.TreeSize))
}
