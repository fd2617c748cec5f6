package keyfiles

import (
	"strings"
	"testing"
	"time"

	"integrityledger/domain/evidence"
)

// TestAdviceForAMissingSigningKey: keys generate makes the first key only, so a lost key is replaced by a rotation.
func TestAdviceForAMissingSigningKey(t *testing.T) {
	s := Source{DataDir: t.TempDir(), Name: SigningKeyFile, Variable: "INTEGRITY_SIGNING_KEY"}
	s.Trusted = s.DataDir + "/" + TrustedKeysFile
	if _, _, _, err := s.Read(); err == nil || !strings.Contains(err.Error(), "keys generate") {
		t.Errorf("the first key: %v", err)
	}
	if err := WriteFirstTrusted(s.Trusted, evidence.GenerateSigner().Key(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.Read(); err == nil || strings.Contains(err.Error(), "keys generate") ||
		!strings.Contains(err.Error(), "keys rotate --stage") {
		t.Errorf("a lost key: %v", err)
	}
}
