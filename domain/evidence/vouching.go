package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// CosignedAt returns the time of the key's valid cosignature on a checkpoint. The time is the witness's own claim; a
// cosignature from the future does not count.
func (k WitnessKey) CosignedAt(note string, now time.Time) (at time.Time, ok bool) {
	_, signed, signatures, err := readCheckpoint(note)
	if err != nil {
		return at, false
	}
	for _, s := range signatures {
		if s.name == k.Name && s.keyHash == k.KeyHash {
			if at, ok = k.Verify([]byte(signed), s.signature); ok && at.Before(future(now)) {
				return at, true
			}
		}
	}
	return at, false
}

// FingerprintSHA256 returns the lower-case hexadecimal SHA-256 of the key's SPKI in DER, like that of a signing key.
func (k LogKey) FingerprintSHA256() string { return k.names().FingerprintSHA256 }

// FingerprintSHA256 returns the lower-case hexadecimal SHA-256 of the key's SPKI in DER, like that of a signing key.
func (k WitnessKey) FingerprintSHA256() string { return LogKey(k).FingerprintSHA256() }

// Fingerprints returns the lower-case hexadecimal SHA-256 of each pinned certificate in DER.
func (a Authority) Fingerprints() []string {
	texts := make([]string, len(a.Certificates))
	for i, der := range a.Certificates {
		sum := sha256.Sum256(der)
		texts[i] = hex.EncodeToString(sum[:])
	}
	return texts
}

// CheckStamp checks a token over a checkpoint. It returns the latest time at which the checkpoint came into existence.
func (a Authority) CheckStamp(der []byte, checkpoint string) (before time.Time, err error) {
	token, err := a.CheckToken(der, sha256.Sum256([]byte(checkpoint)))
	return token.Latest(), err
}

// ExistedBefore returns the earliest time before which a pinned authority says that the record existed, and the
// authority. It checks the timestamps of the envelope like Verify, for an envelope whose record is already verified; ok
// is false unless the finding is valid.
func (e Envelope) ExistedBefore(
	trust *TrustedKeys, receivedAt, now time.Time,
) (authority string, before time.Time, ok bool) {
	t := judgeTime(e, trust, receivedAt, now)
	if t == nil || t.finding != Valid {
		return "", before, false
	}
	return t.stamp.authority, t.stamp.before, true
}
