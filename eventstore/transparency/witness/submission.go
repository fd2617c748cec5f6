package witness

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
)

// Logs holds the keys of the logs whose checkpoints are cosigned, by origin.
type Logs map[string][]note.Verifier

// ParseLogs reads logs, one per line or separated by commas: a verifier key (C2SP signed-note, Ed25519) and, if the
// origin is not the key's name, a space and the origin. A log with several keys has several lines. Lines that begin
// with # are comments.
func ParseLogs(text string) (Logs, error) {
	logs := Logs{}
	for entry := range transparency.Entries(text) {
		text, origin, _ := strings.Cut(entry, " ")
		key, err := note.NewVerifier(text)
		if err != nil {
			return nil, say.Errorf(
				"each log must be an Ed25519 verifier key <name>+<8 hexadecimal digits>+<base64> and, if its origin "+
					"differs from that name, a space and the origin: %w",
				err,
			)
		}
		if err := evidence.CheckListedName(key.Name()); err != nil {
			return nil, say.Errorf("%s: %w", strconv.QuoteToASCII(key.Name()), err)
		}
		origin = cmp.Or(strings.TrimSpace(origin), key.Name())
		if slices.ContainsFunc(logs[origin], func(k note.Verifier) bool {
			return k.Name() == key.Name() && k.KeyHash() == key.KeyHash()
		}) {
			return nil, say.Errorf("the key %s+%08x of %s is named twice", key.Name(), key.KeyHash(), origin)
		}
		logs[origin] = append(logs[origin], key)
	}
	return logs, nil
}

// Reasons why a submission is refused, in the order in which they are checked. StaleError is checked after ErrOldSize.
var (
	ErrMalformed = say.New(
		"the body must be the line \"old <size>\", at most 63 lines of the consistency proof, an empty line, and a " +
			"checkpoint",
	)
	ErrUnknownLog = say.New("checkpoints of this origin are not cosigned here")
	ErrUnsigned   = say.New("the checkpoint must be signed by a key of its log that is known here")
	ErrOldSize    = say.New("the old size must not be greater than the size of the checkpoint")
	ErrProof      = say.New(
		"the consistency proof does not lead from the last cosigned checkpoint to this one",
	)
	ErrOtherRoot = say.New("a checkpoint of this size with another root was cosigned")
	// ErrRestored means that this ledger's database was restored and may lack checkpoints cosigned since the backup.
	ErrRestored = say.New(
		"cosigned checkpoints may have been lost in a restore of this witness's database: nothing is cosigned until its " +
			"operator runs integrity log cosigned --resume",
	)
)

// StaleError means that the old size differs from the size of the last cosigned checkpoint.
type StaleError struct{ Size int64 }

func (e *StaleError) sentence() say.Sentence {
	return say.Sentencef("the last cosigned checkpoint has %d entries", e.Size)
}

func (e *StaleError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e *StaleError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

// Limits of a submission: bytes of the body and lines of the proof.
const (
	MaxBodyBytes = 64 << 10
	maxProof     = 63
)

// Submission is a checkpoint signed by a known log, with the proof that it continues an older one.
type Submission struct {
	Origin string
	Size   int64
	Root   tlog.Hash
	old    int64
	proof  tlog.TreeProof
	text   string // to be cosigned
	note   string // the text with the signatures of the log's known keys
}

var sizePattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,18})$`)

// maxSize is the largest tree that tlog can handle. With a larger one it would loop forever.
const maxSize = 1<<62 - 1

func parseSize(text string) (int64, error) {
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size > maxSize || !sizePattern.MatchString(text) {
		return 0, say.New("a size must be digits without a leading zero, below 2^62")
	}
	return size, nil
}

// Open reads the body of a request and checks the log's signature. The error is, or wraps, ErrMalformed, ErrUnknownLog,
// ErrUnsigned or ErrOldSize.
func (logs Logs) Open(body []byte) (s Submission, err error) {
	malformed := func(format string, args ...any) (Submission, error) {
		return Submission{}, say.Errorf("%w: %s", ErrMalformed, say.Sentencef(format, args...))
	}
	head, signed, found := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	old, isOld := strings.CutPrefix(lines[0], "old ")
	if !found || !isOld || len(lines)-1 > maxProof {
		return malformed("it has another form")
	}
	if s.old, err = parseSize(old); err != nil {
		return malformed("old: %s", err)
	}
	for i, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil || hash.String() != line {
			return malformed("line %d of the proof must be 32 bytes in base64", i+1)
		}
		s.proof = append(s.proof, hash)
	}
	origin, _, _ := bytes.Cut(signed, []byte("\n"))
	s.Origin = string(origin)
	keys, known := logs[s.Origin]
	if !known {
		return Submission{}, ErrUnknownLog
	}
	opened, err := note.Open(signed, note.VerifierList(keys...))
	switch {
	case errors.As(err, new(*note.UnverifiedNoteError)), errors.As(err, new(*note.InvalidSignatureError)):
		return Submission{}, ErrUnsigned
	case err != nil:
		return malformed("the checkpoint must be a signed note")
	}
	text := strings.Split(strings.TrimSuffix(opened.Text, "\n"), "\n")
	if len(text) < 3 || slices.Contains(text, "") {
		return malformed("the checkpoint must have three lines or more, none of them empty")
	}
	if s.Size, err = parseSize(text[1]); err != nil {
		return malformed("checkpoint: %s", err)
	}
	if s.Root, err = tlog.ParseHash(text[2]); err != nil || s.Root.String() != text[2] {
		return malformed("the third line of the checkpoint must be its root, 32 bytes in base64")
	}
	if s.old > s.Size {
		return Submission{}, ErrOldSize
	}
	s.text = opened.Text
	s.note = opened.Text + "\n"
	for _, signature := range opened.Sigs {
		s.note += "— " + signature.Name + " " + signature.Base64 + "\n"
	}
	return s, nil
}

// Grows reports whether the submission has a larger tree than the one that it continues.
func (s Submission) Grows() bool { return s.old < s.Size }

// emptyRoot is the root of a tree without entries (RFC 6962, section 2.1).
var emptyRoot = tlog.Hash(sha256.Sum256(nil))

// judge returns an error unless the submission continues the tree of its old size, whose root is known.
func (s Submission) judge(known tlog.Hash) error {
	if s.old == 0 || s.old == s.Size {
		switch {
		case len(s.proof) > 0:
			return ErrProof
		case s.old == s.Size && s.Root != known:
			return ErrOtherRoot
		}
		return nil
	}
	if tlog.CheckTree(s.proof, s.Size, s.Root, s.old, known) != nil {
		return ErrProof
	}
	return nil
}

// rewritten reports whether the submission itself proves that its tree does not contain the tree of the old size, whose
// root is known. It does if its proof leads to the signed root and, at the old size, to another root (RFC 9162, section
// 2.1.4.2). A proof from a power of two does not contain the older root and so proves nothing. A proof that does not
// lead to the signed root proves nothing either, because any client could have sent it.
func (s Submission) rewritten(known tlog.Hash) bool {
	switch {
	case s.old == 0:
		return false
	case s.old == s.Size:
		return s.Root != known
	case len(s.proof) == 0 || s.old&(s.old-1) == 0:
		return false
	}
	first, second := s.old-1, s.Size-1
	for ; first&1 == 1; first, second = first>>1, second>>1 {
	}
	older, newer := s.proof[0], s.proof[0]
	for _, hash := range s.proof[1:] {
		if second == 0 {
			return false
		}
		if first&1 == 1 || first == second {
			older, newer = tlog.NodeHash(hash, older), tlog.NodeHash(hash, newer)
			for ; first != 0 && first&1 == 0; first, second = first>>1, second>>1 {
			}
		} else {
			newer = tlog.NodeHash(newer, hash)
		}
		first, second = first>>1, second>>1
	}
	return second == 0 && newer == s.Root && older != known
}
