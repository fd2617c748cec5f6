package transparency

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
)

// LogName is the origin of the checkpoints of a ledger: its issuer without scheme, with /log at its end. An issuer that
// is no address is taken as it is; what a note cannot hold in a name is percent-encoded.
func LogName(issuer string) string {
	name := strings.TrimRight(issuer, "/")
	if u, err := url.Parse(issuer); err == nil && u.Host != "" {
		name = strings.ToLower(u.Host) + strings.TrimRight(u.EscapedPath(), "/")
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c <= ' ' || c == '+' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + "/log"
}

// Signer signs checkpoints.
type Signer struct {
	evidence.LogKey
	private *evidence.Signer
}

// NewSigner names the key of a log.
func NewSigner(name string, private *evidence.Signer) (*Signer, error) {
	public, err := base64.RawURLEncoding.DecodeString(private.Key().JWK.X)
	if err != nil {
		return nil, fmt.Errorf("log key: %w", err)
	}
	key, err := evidence.NewLogKey(name, public)
	if err != nil {
		return nil, fmt.Errorf("log key: %w", err)
	}
	return &Signer{key, private}, nil
}

// noteSigner is a Signer as the note package asks for one.
type noteSigner struct{ *Signer }

func (s noteSigner) Name() string { return s.LogKey.Name }
func (s noteSigner) KeyHash() uint32 {
	hash, _ := strconv.ParseUint(s.LogKey.KeyHash, 16, 32) // four bytes in hexadecimal, as NewLogKey wrote them
	return uint32(hash)
}
func (s noteSigner) Sign(text []byte) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(s.private.Sign(text))
}

// sign makes a checkpoint (C2SP tlog-checkpoint) without extension lines: a signed note.
func (s *Signer) sign(size int64, root tlog.Hash) (string, error) {
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", s.Name, size, root)}, noteSigner{s})
	if err != nil {
		return "", fmt.Errorf("sign a checkpoint: %w", err)
	}
	return string(signed), nil
}
