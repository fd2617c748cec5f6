package judges

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain/evidence"
)

// publishKeys runs integrity keys publish and returns the proof once a witness has cosigned a checkpoint with the keys.
func (s *service) publishKeys(t *testing.T, witness string) (proof []byte) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	publish := exec.Command(path, "keys", "publish", "--data-dir", s.dir)
	if out, err := publish.CombinedOutput(); err != nil {
		t.Fatalf("keys publish: %v: %s", err, out)
	}
	integritytest.Eventually(t, "the keys are in a cosigned tree", func() error {
		response, err := http.Get(s.base + "/api/public/log/keys")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		proof, err = io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || !bytes.Contains(proof, []byte("\n— "+witness+" ")) {
			return fmt.Errorf("%d %s: %w", response.StatusCode, proof, err)
		}
		return nil
	})
	return proof
}

// TestKeySetProof: libraries that do not know this service verify the proof of its published keys, under the keys of
// the log and of a witness which one of them makes, and refuse it after a change of any byte that they read.
func TestKeySetProof(t *testing.T) {
	t.Parallel()
	witnessKey, address := witness(t)
	s := serve(t, "INTEGRITY_DATABASE_URL=", "INTEGRITY_WITNESSES="+witnessKey+" "+address)
	proof := s.publishKeys(t, "witness.example/judge")
	logKey := s.trusted(t, witnessKey).LogKeys()[0]
	judges := proofLibraries(t, logKey.VerifierKey, witnessKey, keySetApplication)
	pins, err := evidence.NewTrustedKeys(nil, nil, []evidence.LogKey{logKey})
	if err != nil {
		t.Fatal(err)
	}
	key, err := evidence.ParseWitnessKey(witnessKey)
	if err != nil {
		t.Fatal(err)
	}
	if pins, err = pins.AddWitnessKey(key); err != nil {
		t.Fatal(err)
	}
	ours := func(text []byte) (evidence.ProvenKeySet, error) {
		return evidence.VerifyKeySet(text, evidence.KeySetPins{Trusted: pins, Witnesses: 1, Now: time.Now()})
	}
	found, err := ours(proof)
	if err != nil || found.CosignedAt == nil || !found.Trusted.TrustsLogKey(logKey) ||
		!strings.HasPrefix(string(found.Payload), `{"contract":"integrity-key-set-v1"`) {
		t.Fatalf("%+v, %v", found, err)
	}
	for name, verify := range judges {
		if err := verify(proof); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for at := range proof {
		changed := bytes.Clone(proof)
		changed[at] ^= 0x01
		if _, err := ours(changed); err == nil {
			t.Errorf("byte %d is accepted by our verifier", at)
		}
		for name, verify := range judges {
			// Extra data is not authenticated by itself: the application here reads two of its members.
			if of := class(proof, at); verify(changed) == nil && of != "extra" && !sameMeaning(proof, changed) {
				t.Errorf("%s: byte %d is accepted by %s", of, at, name)
			}
		}
	}
}
