package witness

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// Signer signs cosignatures. Logs and verifiers pin its verifier key.
type Signer struct {
	evidence.WitnessKey
	private *evidence.Signer
}

// NewSigner returns a Signer with the witness's name and key.
func NewSigner(name string, private *evidence.Signer) (*Signer, error) {
	key, err := evidence.NewWitnessKey(name, private.Key().Ed25519())
	if err != nil {
		return nil, say.Errorf("witness key: %w", err)
	}
	return &Signer{key, private}, nil
}

// cosign returns the signature line for the text of a checkpoint, dated in whole seconds.
func (s *Signer) cosign(text string, at time.Time) (string, error) {
	seconds := at.Unix()
	if seconds <= 0 {
		return "", say.Errorf("cosign: the clock must be past 1970, not at %s", at)
	}
	signed, err := s.private.Sign(fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", seconds, text))
	if err != nil {
		return "", say.Errorf("cosign: %w", err)
	}
	signature, err := base64.RawURLEncoding.DecodeString(signed)
	if err != nil {
		return "", say.Errorf("cosign: %w", err)
	}
	line, _ := hex.DecodeString(s.KeyHash) // as NewWitnessKey wrote it
	line = append(binary.BigEndian.AppendUint64(line, uint64(seconds)), signature...)
	return "— " + s.Name + " " + base64.StdEncoding.EncodeToString(line) + "\n", nil
}
