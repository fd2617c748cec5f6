package operator

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/edge"
)

// markFlags are the flags about marks. A mark says how far an audit has found the ledger correct. Beside it, in a file
// with the suffix .state, is the state that the audit had then.
type markFlags struct{ write, since, key, keyID string }

// formerMark is the mark that an audit goes on from.
type formerMark struct {
	evidence.AuditMarkPayload
	sum   evidence.Hash // of the payload
	state *savedState
}

// nextMark is the mark that an audit writes.
type nextMark struct {
	path    string
	signer  *evidence.Signer
	state   *stateFile
	trusted evidence.Hash // AuditMarkPayload.TrustedKeysSHA256
}

// sinceView describes the mark that an audit went on from.
type sinceView struct {
	MarkedAt string `json:"markedAt"`
	Events   int64  `json:"events"` // up to the mark, which were not read again
	WholeAt  string `json:"wholeAt"`
}

// markView describes the mark that an audit has written.
type markView struct {
	File        string        `json:"file"`
	KeyID       string        `json:"keyId"`
	Events      int64         `json:"events"`
	StateFile   string        `json:"stateFile"`
	StateBytes  int64         `json:"stateBytes"`
	StateSHA256 evidence.Hash `json:"stateSha256"`
}

// openMarks reads the mark and the key that the flags name. The caller closes them with closeMarks.
func (o *auditOptions) openMarks(a *app, f markFlags, whole bool) error {
	switch marks := f.since != "" || f.write != ""; {
	case !marks && (f.key != "" || f.keyID != ""):
		return say.New("--mark-key and --mark-key-id belong to --mark or --since")
	case !marks:
		return nil
	case !whole:
		return say.New("--mark and --since apply to the whole database: leave out BUNDLE and --organization")
	case f.since != "" && (o.against != nil || o.worm != nil):
		return say.New("--against needs the whole history: leave out --since")
	case f.write != "" && f.write == f.key:
		return say.New("--mark and --mark-key must be different files")
	case f.write != "" && f.key == "":
		return say.New("--mark needs --mark-key, the file of the auditor's own private key")
	case f.key == "" && f.keyID == "":
		return say.New("--since needs --mark-key or --mark-key-id, the key that signed the mark")
	case f.since != "" && f.key != "" && !sshagent.IsAddress(f.key) && !keyfiles.Exists(f.key):
		return say.Errorf("--mark-key: there is no %s, so the mark cannot be checked", f.key)
	}
	if f.write != "" && keyfiles.Exists(f.write) { // such as the trusted keys, by a slip
		former, err := keyfiles.ReadFile(f.write)
		if err != nil || !bytes.Contains(former, []byte(evidence.AuditMarkContract)) {
			return say.Errorf("--mark: %s exists and is no mark: name another file", f.write)
		}
	}
	if f.key != "" {
		signer, err := signingKeys{a}.signerAt(keyfiles.Source{}, f.key)
		if err != nil {
			return say.Errorf("--mark-key: %w", err)
		}
		if f.keyID == "" {
			f.keyID = signer.Key().KeyID
		}
		if f.write != "" {
			o.next = &nextMark{path: f.write, signer: signer}
		}
	}
	if f.since == "" {
		return nil
	}
	file, err := keyfiles.ReadFile(f.since)
	if err != nil {
		return say.Errorf("--since: %w", err)
	}
	o.since = &formerMark{}
	if o.since.AuditMarkPayload, o.since.sum, err = evidence.OpenAuditMark(file, f.keyID); err == nil {
		o.since.state, err = openState(f.since, o.since.StateSHA256)
	}
	if err != nil {
		return say.Errorf("--since %s: %w", f.since, err)
	}
	return nil
}

func (o *auditOptions) closeMarks() {
	if o.since != nil && o.since.state != nil {
		_ = o.since.state.f.Close() // nothing was written
	}
	if o.next != nil && o.next.state != nil {
		o.next.state.discard()
	}
}

// checkMarks refuses a key of the ledger, and a mark that cannot be of it.
func (o *auditOptions) checkMarks(issuer string, shards int) error {
	if err := o.compareKeys(); err != nil {
		return err
	}
	if o.next != nil {
		id := o.next.signer.Key().KeyID
		pinned, _ := o.Trusted.Lookup(id)
		own := pinned.KeyID != ""
		for _, k := range o.Trusted.LogKeys() {
			own = own || k.KeyID() == id
		}
		if own {
			return say.Errorf(
				"--mark-key: %s is a key of the ledger, and a thief of it could make marks: use a key that only the auditor has",
				id,
			)
		}
	}
	switch m := o.since; {
	case m == nil:
		return nil
	case m.Issuer != issuer:
		return say.Errorf("--since: the mark belongs to the ledger %s, not to %s", m.Issuer, issuer)
	case len(m.Shards) > shards:
		return say.Errorf(
			"--since: the mark is of another ledger: its number of shards is %d, here it is %d", len(m.Shards), shards,
		)
	}
	return nil
}

// compareKeys notes whether the auditor trusts other keys than when the mark was written. The audit goes on, because
// a ledger rotates its keys. The new keys have not judged the events up to the mark, and every audit says so until the
// next whole one.
func (o *auditOptions) compareKeys() error {
	keys, err := o.Trusted.Marshal()
	if err != nil {
		return err
	}
	now := evidence.Hash(sha256.Sum256(keys))
	o.otherKeys = o.since != nil && o.since.TrustedKeysSHA256 != now
	if o.next != nil && !o.otherKeys {
		o.next.trusted = now
	}
	return nil
}

// config sets the states that a check begins with and saves.
func (o *auditOptions) config(c *audit.Config) (err error) {
	if o.since != nil {
		c.Since = o.since.state.section
	}
	if o.next != nil {
		if o.next.state, err = createState(o.next.path); err == nil {
			c.Save = func(section []byte) error {
				o.next.state.add(section)
				return nil
			}
		}
	}
	return err
}

// prefix returns the tree at the mark.
func (m *formerMark) prefix() (p transparency.Prefix) {
	if m == nil {
		return p
	}
	p.Size, p.Root = m.TreeSize, [sha256.Size]byte(m.TreeRoot)
	for i, s := range m.Shards {
		if s.TreePosition > 0 {
			p.Shards = append(p.Shards, audit.Log{Shard: domain.Shard(i), Position: s.TreePosition, Head: s.TreeChain})
		}
	}
	return p
}

// position returns the last position of a shard that the mark covers.
func (m *formerMark) position(shard domain.Shard) (position int64, ok bool) {
	if m == nil || int(shard) >= len(m.Shards) {
		return 0, false
	}
	return m.Shards[shard].Position, true
}

func (m *formerMark) view() *sinceView {
	if m == nil {
		return nil
	}
	return &sinceView{cli.TimeText(m.CreatedAt), m.Events, cli.TimeText(m.WholeAt)}
}

// write signs and writes the mark. The three steps can be interrupted anywhere: openState finds the state that belongs
// to the mark.
func (n *nextMark) write(
	issuer string, at time.Time, shards int, logs []audit.Log, tree transparency.Prefix, since *formerMark,
) (*markView, error) {
	p := evidence.AuditMarkPayload{
		Issuer: issuer, CreatedAt: at.UTC().Truncate(time.Microsecond), Program: edge.ReadBuild().Version,
		TreeSize: tree.Size, TreeRoot: evidence.Hash(tree.Root), Shards: make([]evidence.AuditMarkShard, shards),
		TrustedKeysSHA256: n.trusted,
	}
	for _, log := range logs {
		p.Events += log.Position
		p.Shards[log.Shard].Position, p.Shards[log.Shard].Chain = log.Position, log.Head
	}
	for _, log := range tree.Shards {
		p.Shards[log.Shard].TreePosition, p.Shards[log.Shard].TreeChain = log.Position, log.Head
	}
	if p.WholeAt = p.CreatedAt; since != nil {
		p.WholeAt = since.WholeAt
		p.Since = &evidence.FormerAuditMark{CreatedAt: since.CreatedAt, Events: since.Events, PayloadSHA256: since.sum}
	}
	state := statePath(n.path)
	var err error
	if p.StateSHA256, err = n.state.finish(state + nextState); err != nil {
		return nil, err
	}
	file, err := evidence.SignAuditMark(p, n.signer)
	if err == nil {
		err = keyfiles.Replace(n.path, file, 0o600)
	}
	if err == nil {
		err = replaceState(state)
	}
	if err != nil {
		return nil, say.Errorf("--mark: %w", err)
	}
	return &markView{n.path, n.signer.Key().KeyID, p.Events, state, n.state.size, p.StateSHA256}, nil
}

// A state file has a header, then the sections of audit.Config.Save. The header is stateMagic, then the length of each
// section in eight bytes and its SHA-256. The digest of the state is the SHA-256 of the header.
const (
	stateMagic      = "integrity-audit-state-v1\n"
	stateEntry      = 8 + sha256.Size
	stateHeaderSize = len(stateMagic) + audit.SectionCount*stateEntry
	nextState       = ".next" // suffix of a state whose mark may not be in place yet
)

func statePath(mark string) string { return mark + ".state" }

// replaceState puts the next state in the place of the former one.
func replaceState(path string) error {
	if err := os.Rename(path+nextState, path); err != nil {
		return err
	}
	return keyfiles.Sync(filepath.Dir(path))
}

// stateFile is a state that is being written.
type stateFile struct {
	f      *os.File // temporary; nil once it was moved
	header []byte
	size   int64
	err    error // of add
}

func createState(mark string) (*stateFile, error) {
	f, err := os.CreateTemp(filepath.Dir(mark), "."+filepath.Base(mark)+".state.*") // with mode 0600
	if err != nil {
		return nil, say.Errorf("--mark: %w", err)
	}
	return &stateFile{f: f, header: []byte(stateMagic), size: int64(stateHeaderSize)}, nil
}

// add adds a section. If that fails, finish returns the error: the audit goes on, because its result is worth more than
// the mark.
func (s *stateFile) add(section []byte) {
	if s.err != nil {
		return
	}
	sum := sha256.Sum256(section)
	s.header = append(binary.BigEndian.AppendUint64(s.header, uint64(len(section))), sum[:]...)
	n, err := s.f.WriteAt(section, s.size)
	s.size, s.err = s.size+int64(n), err
}

// finish moves the file to its path, durably, and returns the digest of the state.
func (s *stateFile) finish(path string) (digest evidence.Hash, err error) {
	if s.err != nil {
		return digest, say.Errorf("--mark: %w", s.err)
	}
	if len(s.header) != stateHeaderSize {
		return digest, say.New("--mark: the audit did not save its state")
	}
	if _, err = s.f.WriteAt(s.header, 0); err == nil {
		err = s.f.Sync()
	}
	if err == nil {
		err = os.Rename(s.f.Name(), path)
	}
	if err != nil {
		return digest, say.Errorf("--mark: %w", err)
	}
	err = errors.Join(s.f.Close(), keyfiles.Sync(filepath.Dir(path)))
	s.f = nil
	return sha256.Sum256(s.header), err
}

// discard removes the file unless finish has moved it.
func (s *stateFile) discard() {
	if s.f != nil {
		_ = s.f.Close()           // it is removed
		_ = os.Remove(s.f.Name()) // a leftover does no harm
	}
}

// savedState is a state whose header was verified. Each section is verified when it is read.
type savedState struct {
	f      *os.File
	header []byte
}

// openState opens the state of a mark. If the program was interrupted while it wrote the mark, the state is the next
// one.
func openState(mark string, digest evidence.Hash) (*savedState, error) {
	path := statePath(mark)
	s, err := openStateFile(path, digest)
	if err == nil {
		return s, nil
	}
	next, missing := openStateFile(path+nextState, digest)
	if missing != nil {
		return nil, err
	}
	_ = replaceState(path) // otherwise the next audit does it
	return next, nil
}

func openStateFile(path string, digest evidence.Hash) (*savedState, error) {
	f, err := keyfiles.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	s := &savedState{f, make([]byte, stateHeaderSize)}
	_, err = f.ReadAt(s.header, 0)
	if err != nil || sha256.Sum256(s.header) != digest || !bytes.HasPrefix(s.header, []byte(stateMagic)) {
		_ = f.Close() // nothing was written
		return nil, errOtherState(path)
	}
	return s, nil
}

func errOtherState(path string) error {
	return say.Errorf(
		"%s is not the state that the mark names: put the right file in place, or audit the whole ledger (leave out --since)",
		path,
	)
}

func (s *savedState) section(n int) ([]byte, error) {
	at := int64(stateHeaderSize)
	entry := s.header[len(stateMagic):]
	for range n {
		at += int64(binary.BigEndian.Uint64(entry))
		entry = entry[stateEntry:]
	}
	info, err := s.f.Stat()
	if err != nil {
		return nil, err
	}
	length := int64(binary.BigEndian.Uint64(entry))
	if at+length > info.Size() || n == audit.SectionCount-1 && at+length != info.Size() {
		return nil, errOtherState(s.f.Name())
	}
	section := make([]byte, length)
	if _, err := s.f.ReadAt(section, at); err != nil {
		return nil, say.Errorf("read %s: %w", s.f.Name(), err)
	}
	if sha256.Sum256(section) != [sha256.Size]byte(entry[8:]) {
		return nil, errOtherState(s.f.Name())
	}
	return section, nil
}
