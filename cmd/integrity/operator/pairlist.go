package operator

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/witness"
)

// pairing is what pairing with an installation changes: the service asks its witness, this witness cosigns its log, and
// its witness key is pinned. What these files named for it before is removed.
type pairing struct {
	other           peer
	witnesses, logs peerList
	trusted         string                // file of the trusted keys
	unpinned        []evidence.WitnessKey // its former keys
}

// planPair returns the pairing, and refuses one after which the service or the witness could not start, or with which
// the peer would speak for another installation. It writes nothing.
func planPair(cfg *config.Config, other peer) (p pairing, err error) {
	p.other, p.trusted = other, cfg.TrustedKeysPath()
	if p.witnesses, err = openList("WITNESSES", cfg.Witnesses, cfg.InDataDir(config.WitnessesFile)); err != nil {
		return p, err
	}
	if p.logs, err = openList("WITNESS_LOGS", cfg.WitnessLogs, cfg.InDataDir(config.WitnessLogsFile)); err != nil {
		return p, err
	}
	trusted, err := keyfiles.ReadTrusted(p.trusted)
	if err != nil {
		return p, err
	}
	for _, k := range trusted.LogKeys() {
		if slices.Contains(other.origins(), k.Name) {
			return p, say.Errorf("%s publishes a key of %s, which is this installation's own log", other.base, k.Name)
		}
	}
	if err := p.replaceWitness(); err != nil {
		return p, err
	}
	if err := p.replaceLogs(); err != nil {
		return p, err
	}
	for _, k := range trusted.WitnessKeys() {
		listed := func(line string) bool { return strings.HasPrefix(line, k.VerifierKey+" ") }
		if k != other.witness &&
			(k.Name == other.witness.Name || slices.ContainsFunc(p.witnesses.removed, listed)) {
			p.unpinned = append(p.unpinned, k)
		}
	}
	_, err = p.pin(trusted)
	return p, err
}

// replaceWitness replaces the peer's line in the list of witnesses. A line under its name or with its key is its own,
// unless it was written for another service.
func (p *pairing) replaceWitness() error {
	own := func(entry, pairedWith string) (bool, error) {
		word, _, _ := strings.Cut(entry, " ")
		key, err := evidence.ParseWitnessKey(word)
		same := err == nil && (key.Name == p.other.witness.Name ||
			evidence.LogKey(key).KeyID() == evidence.LogKey(p.other.witness).KeyID())
		if same && pairedWith != "" && pairedWith != p.other.base {
			return false, p.claimed(p.witnesses, key.Name, say.Sentencef("which was paired with %s", pairedWith))
		}
		return same || pairedWith == p.other.base, nil
	}
	line := p.other.witness.VerifierKey + " " + p.other.address
	if err := p.witnesses.replace([]string{line}, p.other.base, own); err != nil {
		return err
	}
	_, err := transparency.ParseWitnesses(p.witnesses.text)
	return p.witnesses.fault(err)
}

// replaceLogs replaces the peer's lines in the list of logs. All keys of an origin speak for one log, so the peer must
// not add a key to an origin that it does not have: it could sign another history there.
func (p *pairing) replaceLogs() error {
	var lines, foreign []string
	for _, k := range p.other.logs {
		lines = append(lines, k.VerifierKey)
	}
	own := func(entry, pairedWith string) (bool, error) {
		key, origin, named := strings.Cut(entry, " ")
		if !named {
			origin, _, _ = strings.Cut(key, "+")
		}
		if pairedWith != p.other.base && slices.Contains(p.other.origins(), origin) {
			if pairedWith != "" {
				return false, p.claimed(p.logs, origin, say.Sentencef("which was paired with %s", pairedWith))
			}
			foreign = append(foreign, origin)
		}
		return pairedWith == p.other.base, nil
	}
	if err := p.logs.replace(lines, p.other.base, own); err != nil {
		return err
	}
	for _, k := range p.other.logs {
		if slices.Contains(foreign, k.Name) && slices.Contains(p.logs.added, k.VerifierKey) {
			return p.claimed(p.logs, k.Name, say.Sentencef("with a key that this command has not written"))
		}
	}
	_, err := witness.ParseLogs(p.logs.text)
	return p.logs.fault(err)
}

// claimed refuses a peer that uses a name which a list has already.
func (p *pairing) claimed(l peerList, name string, how say.Sentence) error {
	return say.Errorf(
		"%s publishes a key of %s, but %s has that name already, %s: if both are the same installation, remove those lines "+
			"from the file first",
		p.other.base, name, l.path, how,
	)
}

// pin pins the peer's witness key instead of its former ones.
func (p *pairing) pin(trusted *evidence.TrustedKeys) (changed *evidence.TrustedKeys, err error) {
	changed = trusted
	for _, k := range p.unpinned {
		if slices.Contains(changed.WitnessKeys(), k) {
			if changed, err = changed.RemoveWitnessKey(k.Name); err != nil {
				return nil, keyRefusal(err)
			}
		}
	}
	changed, err = changed.AddWitnessKey(p.other.witness)
	return changed, keyRefusal(err)
}

// removed lists what the files no longer have.
func (p *pairing) removed() []RemovedLine {
	removed := []RemovedLine{}
	for _, l := range []peerList{p.logs, p.witnesses} {
		for _, line := range l.removed {
			removed = append(removed, RemovedLine{l.path, line})
		}
	}
	for _, k := range p.unpinned {
		removed = append(removed, RemovedLine{p.trusted, k.VerifierKey})
	}
	return removed
}

// write returns the changed files. The lists are read again, because the question may have waited for long.
func (p *pairing) write(cfg *config.Config) (changed []string, err error) {
	changed = []string{}
	source := cfg.SigningSource()
	if err := source.Change(func(
		_ keyfiles.Files, trusted *evidence.TrustedKeys,
	) (pinned *evidence.TrustedKeys, err error) {
		if pinned, err = p.pin(trusted); err == nil && pinned != trusted {
			changed = append(changed, source.Trusted)
		}
		return pinned, err
	}); err != nil {
		return nil, err
	}
	unlock, err := keyfiles.LockKeys(keyfiles.Absolute(cfg.DataDir))
	if err != nil {
		return changed, err
	}
	defer unlock()
	now, err := planPair(cfg, p.other)
	if err != nil {
		return changed, err
	}
	for _, l := range []peerList{now.logs, now.witnesses} {
		wrote, err := l.write()
		if err != nil {
			return changed, err
		}
		if wrote {
			changed = append(changed, l.path)
		}
	}
	return changed, nil
}

// peerList is the file of a list of witnesses or logs. A comment before each line that pairing wrote names the service
// that it was written for.
type peerList struct {
	path           string
	was, text      string
	exists         bool
	added, removed []string
}

const pairedWith = "# paired with "

// openList reads the file of a setting that may also be a list.
func openList(setting, text, standard string) (l peerList, err error) {
	if strings.Contains(text, "+") {
		return l, say.Errorf(
			"%s%s is a list in the settings, which no command can change: write it to %s, one entry per line, and unset the "+
				"variable", config.Prefix, setting, standard,
		)
	}
	if l.path = text; text == "" {
		l.path = standard
	}
	raw, err := keyfiles.ReadFile(l.path)
	if l.exists = err == nil; errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	l.was = string(raw)
	return l, err
}

// replace removes the entries that own says are a peer's own, except the given lines, and adds the lines that are
// missing. Other entries and comments stay as they are.
func (l *peerList) replace(lines []string, base string, own func(entry, pairedWith string) (bool, error)) error {
	l.text, l.added = "", slices.Clone(lines)
	note, service := "", "" // the comment before the line, and the service that it names
	for line := range strings.Lines(l.was) {
		entries := slices.Collect(transparency.Entries(line))
		if len(entries) == 0 {
			l.text += note
			note, service = "", ""
			if named, found := strings.CutPrefix(strings.TrimSpace(line), pairedWith); found {
				note, service = line, named
			} else {
				l.text += line
			}
			continue
		}
		if len(entries) > 1 { // pairing writes one entry per line
			service = ""
		}
		var left []string
		for _, entry := range entries {
			entry = strings.Join(strings.Fields(entry), " ")
			mine, err := own(entry, service)
			if err != nil {
				return err
			}
			at := slices.Index(l.added, entry)
			switch {
			case at >= 0:
				l.added = slices.Delete(l.added, at, at+1)
			case mine, slices.Contains(lines, entry): // a former entry, or a repeated one
				l.removed = append(l.removed, entry)
				continue
			}
			left = append(left, entry)
		}
		switch len(left) {
		case len(entries):
			l.text += note + line
		case 0: // the comment goes with the line
		default: // and does not speak of the rest
			l.text += strings.Join(left, ", ") + "\n"
		}
		note, service = "", ""
	}
	l.text += note
	for _, line := range l.added {
		if l.text != "" && !strings.HasSuffix(l.text, "\n") {
			l.text += "\n"
		}
		l.text += pairedWith + base + "\n" + line + "\n"
	}
	return nil
}

// fault names the file in an error about its text.
func (l *peerList) fault(err error) error {
	if err != nil {
		return say.Errorf("%s: %w", l.path, err)
	}
	return nil
}

// write replaces the file, or creates it. It replaces the file itself, not a symbolic link to it.
func (l *peerList) write() (wrote bool, err error) {
	switch {
	case l.text == l.was:
		return false, nil
	case !l.exists:
		return true, keyfiles.WriteNew(l.path, []byte(l.text), 0o644)
	}
	path, err := filepath.EvalSymlinks(l.path)
	if err != nil {
		return false, err
	}
	return true, keyfiles.ReplaceKept(path, []byte(l.text), path)
}
