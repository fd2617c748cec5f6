package evidence

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/strictjson"
)

// Reasons why a checkpoint was not opened. Any other is that of a pinned key's signature.
var (
	// ErrMalformedCheckpoint says that a text is no checkpoint at all.
	ErrMalformedCheckpoint = errors.New("not a checkpoint")
	// ErrUnknownLogKey says that no pinned log key signed a checkpoint.
	ErrUnknownLogKey = errors.New("no pinned log key of its origin signed the checkpoint")
)

// Checkpoint is the log's signed statement of its size and root (C2SP tlog-checkpoint).
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash // RFC 6962, section 2.1
	// SignedBy are the key hashes of the pinned keys of the log that signed it, at least one.
	SignedBy []string
	// Witnesses are the names on cosignatures. No cosignature is checked here.
	Witnesses []string
}

// A note as this service writes it: three lines, a blank one, signatures. White space
// in a name is refused by Unicode's property White_Space, spelled out.
var (
	noteSignaturePattern  = regexp.MustCompile(`^— ([^+ \x{0085}\x{00a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+) ([A-Za-z0-9+/]+=*)$`)
	checkpointSizePattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,15})$`)
)

const (
	maxNoteSignatures = 100
	keyHashSize       = 4
	cosignatureSize   = keyHashSize + 8 + ed25519.SignatureSize // C2SP tlog-cosignature, cosignature/v1
)

// noteSignature is one line of a note: whose it claims to be, and what follows the key hash.
type noteSignature struct {
	name, keyHash string
	signature     []byte
}

// OpenCheckpoint reads a checkpoint without extension lines and checks the log's own signature. Every line by a pinned
// key of the checkpoint's origin must verify, and none may stand twice. Without such a line the error is
// ErrUnknownLogKey and the checkpoint is as it was written; after any other error it is zero.
func OpenCheckpoint(note string, trust *TrustedKeys) (Checkpoint, error) {
	c, signed, signatures, err := readCheckpoint(note)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrMalformedCheckpoint, err)
	}
	var seen []LogKey
	for _, s := range signatures {
		key, pinned := trust.logKey(s.name, s.keyHash)
		switch {
		case !pinned || s.name != c.Origin:
			if len(s.signature) == cosignatureSize-keyHashSize && logNamePattern.MatchString(s.name) {
				c.Witnesses = append(c.Witnesses, s.name)
			}
			continue
		case slices.Contains(seen, key):
			return Checkpoint{}, errors.New("checkpoint: a signature of the log stands twice")
		case !key.Verify([]byte(signed), s.signature):
			return Checkpoint{}, errors.New("checkpoint: the log's signature does not belong to it")
		}
		seen, c.SignedBy = append(seen, key), append(c.SignedBy, key.KeyHash)
	}
	if len(seen) == 0 {
		return c, ErrUnknownLogKey
	}
	return c, nil
}

func (t *TrustedKeys) logKey(name, keyHash string) (LogKey, bool) {
	if t == nil {
		return LogKey{}, false
	}
	i := slices.IndexFunc(t.logKeys, func(k LogKey) bool { return k.Name == name && k.KeyHash == keyHash })
	if i < 0 {
		return LogKey{}, false
	}
	return t.logKeys[i], true
}

// readCheckpoint takes a note apart: signed is the text that was signed, which ends with its newline.
func readCheckpoint(note string) (c Checkpoint, signed string, signatures []noteSignature, err error) {
	if !utf8.ValidString(note) || strings.ContainsFunc(note, func(r rune) bool { return r < ' ' && r != '\n' }) {
		return c, "", nil, errors.New("must be UTF-8 without controls but newlines")
	}
	lines := strings.Split(note, "\n")
	last := len(lines) - 1
	if last < 5 || lines[0] == "" || lines[3] != "" || lines[last] != "" || last-4 > maxNoteSignatures {
		return c, "", nil, fmt.Errorf("must be three lines, a blank one and 1 to %d signatures, each ended by a newline", maxNoteSignatures)
	}
	c.Origin = lines[0]
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || !checkpointSizePattern.MatchString(lines[1]) || size > strictjson.MaxInteger {
		return c, "", nil, errors.New("its size must be digits without a leading zero, within 2^53-1")
	}
	root, ok := decodeHash(lines[2])
	if !ok {
		return c, "", nil, errors.New("its root must be 32 bytes in the one spelling of base64")
	}
	c.Size, c.Root = size, root
	for _, line := range lines[4:last] {
		found := noteSignaturePattern.FindStringSubmatch(line)
		if found == nil {
			return c, "", nil, errors.New("a signature line is not of the form of a signed note")
		}
		raw, err := base64.StdEncoding.DecodeString(found[2])
		if err != nil || len(raw) <= keyHashSize || base64.StdEncoding.EncodeToString(raw) != found[2] {
			return c, "", nil, errors.New("a signature is not in the one spelling of base64")
		}
		signatures = append(signatures, noteSignature{found[1], hex.EncodeToString(raw[:keyHashSize]), raw[keyHashSize:]})
	}
	return c, strings.Join(lines[:3], "\n") + "\n", signatures, nil
}

// decodeHash reads standard base64 of exactly 32 bytes in its one spelling.
func decodeHash(text string) (h tlog.Hash, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != tlog.HashSize || base64.StdEncoding.EncodeToString(raw) != text {
		return tlog.Hash{}, false
	}
	return tlog.Hash(raw), true
}
