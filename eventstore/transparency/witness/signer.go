package witness

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"integrityledger/domain/evidence"
)

// Signer makes cosignatures.
type Signer struct {
	Name        string
	VerifierKey string // C2SP signed-note, of type 0x04 (tlog-cosignature); for whoever pins the witness
	hash        []byte
	private     *evidence.Signer
}

const cosignatureType = 0x04

// NewSigner names the key of a witness.
func NewSigner(name string, private *evidence.Signer) (*Signer, error) {
	public, err := base64.RawURLEncoding.DecodeString(private.Key().JWK.X)
	if err != nil || len(public) != ed25519.PublicKeySize {
		return nil, errors.New("witness key: must be Ed25519")
	}
	typed := append([]byte{cosignatureType}, public...)
	sum := sha256.Sum256(append([]byte(name+"\n"), typed...))
	return &Signer{name, fmt.Sprintf("%s+%x+%s", name, sum[:4], base64.StdEncoding.EncodeToString(typed)), sum[:4], private}, nil
}

// cosign is the signature line of the text of a checkpoint, as of a time in whole seconds.
func (s *Signer) cosign(text string, at time.Time) (string, error) {
	seconds := at.Unix()
	if seconds <= 0 {
		return "", fmt.Errorf("cosign: the clock must be past 1970, not at %s", at)
	}
	signature, err := base64.RawURLEncoding.DecodeString(s.private.Sign(fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", seconds, text)))
	if err != nil {
		return "", fmt.Errorf("cosign: %w", err)
	}
	line := append(binary.BigEndian.AppendUint64(append([]byte{}, s.hash...), uint64(seconds)), signature...)
	return "— " + s.Name + " " + base64.StdEncoding.EncodeToString(line) + "\n", nil
}
