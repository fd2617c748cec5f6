package judges

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/transparency-dev/formats/log"
	cosignatures "github.com/transparency-dev/formats/note"
	tlogproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain/evidence"
	integrity "integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// witness is a witness made with torchwood, which cosigns every checkpoint.
func witness(t *testing.T) (verifierKey, address string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := torchwood.NewCosignatureSigner("witness.example/judge", key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, checkpoint, _ := strings.Cut(string(body), "\n\n")
		text, _, _ := strings.Cut(checkpoint, "\n\n")
		signed, err := note.Sign(&note.Note{Text: text + "\n"}, signer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, line, _ := strings.Cut(string(signed), "\n\n")
		_, _ = io.WriteString(w, line) // the log reports a missing answer
	}))
	t.Cleanup(server.Close)
	return signer.Verifier().String(), server.URL
}

// application is what a reader of proofs does besides its library: it takes the leaf from the extra data, which no
// library authenticates, and checks that the leaf commits to a receipt that a pinned key has signed.
func application(extra []byte, signing ed25519.PublicKey) (leaf []byte, err error) {
	var data struct{ Leaf, Payload, Signature string }
	var commitment struct{ PayloadSHA256 string }
	if err := errors.Join(json.Unmarshal(extra, &data), json.Unmarshal([]byte(data.Leaf), &commitment)); err != nil {
		return nil, err
	}
	if sum := sha256.Sum256([]byte(data.Payload)); commitment.PayloadSHA256 != hex.EncodeToString(sum[:]) {
		return nil, errors.New("the leaf belongs to another payload")
	}
	signature, err := base64.RawURLEncoding.DecodeString(data.Signature)
	if err != nil || !ed25519.Verify(signing, []byte(data.Payload), signature) {
		return nil, fmt.Errorf("the payload is not signed: %w", err)
	}
	return []byte(data.Leaf), nil
}

// keySetApplication is what a reader of the published keys does: it takes the leaf from the extra data, and checks that
// the leaf commits to the keys.
func keySetApplication(extra []byte) (leaf []byte, err error) {
	var data struct{ Leaf, Payload string }
	var commitment struct{ Type, PayloadSHA256 string }
	if err := errors.Join(json.Unmarshal(extra, &data), json.Unmarshal([]byte(data.Leaf), &commitment)); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(data.Payload))
	if commitment.PayloadSHA256 != hex.EncodeToString(sum[:]) || commitment.Type != "keys.published" {
		return nil, errors.New("the leaf belongs to something else")
	}
	return []byte(data.Leaf), nil
}

// proofLibraries returns how each library verifies a proof under the key of the log and the key of a witness.
func proofLibraries(
	t *testing.T, logKey, witnessKey string, application func(extra []byte) (leaf []byte, err error),
) map[string]func(text []byte) error {
	t.Helper()
	policy, err := torchwood.ParsePolicy([]byte("log " + logKey + "\nwitness w " + witnessKey + "\nquorum w\n"))
	if err != nil {
		t.Fatal(err)
	}
	logVerifier, err := note.NewVerifier(logKey)
	if err != nil {
		t.Fatal(err)
	}
	witnessVerifier, err := cosignatures.NewVerifierForCosignatureV1(witnessKey)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func(text []byte) error{
		"torchwood": func(text []byte) error {
			extra, err := torchwood.ProofExtraData(text)
			if err != nil {
				return err
			}
			leaf, err := application(extra)
			if err != nil {
				return err
			}
			return torchwood.VerifyProof(policy, tlog.RecordHash(leaf), text)
		},
		"transparency-dev": func(text []byte) error {
			var p tlogproof.TLogProof
			if err := p.Unmarshal(text); err != nil {
				return err
			}
			leaf, err := application(p.ExtraData)
			if err != nil {
				return err
			}
			checkpoint, _, opened, err := log.ParseCheckpoint(p.Checkpoint, logVerifier.Name(), logVerifier, witnessVerifier)
			if err != nil {
				return err
			}
			if len(opened.Sigs) != 2 {
				return fmt.Errorf("%d signatures", len(opened.Sigs))
			}
			hashes := make([][]byte, len(p.Hashes))
			for i := range hashes {
				hashes[i] = p.Hashes[i][:]
			}
			return proof.VerifyInclusion(
				rfc6962.DefaultHasher, p.Index, checkpoint.Size, rfc6962.DefaultHasher.HashLeaf(leaf), hashes, checkpoint.Hash,
			)
		},
	}
}

// class names the part of a proof at a position.
func class(text []byte, at int) string {
	line, start := bytes.Count(text[:at], []byte("\n")), bytes.LastIndexByte(text[:at], '\n')+1
	blank := bytes.Count(text[:bytes.Index(text, []byte("\n\n"))], []byte("\n")) + 1
	switch {
	case text[at] == '\n':
		return "newline"
	case line == 0:
		return "header"
	case line == 1 && at-start < len("extra "), line == 2 && at-start < len("index "):
		return "keyword"
	case line == 1:
		return "extra"
	case line == 2:
		return "index"
	case line < blank:
		return "hash"
	}
	return []string{"origin", "size", "root", "", "log signature", "cosignature"}[line-blank-1]
}

// sameMeaning reports whether a changed proof decodes to the same parts: libraries ignore the unused last bits of
// base64, and carriage returns.
func sameMeaning(text, changed []byte) bool {
	var a, b tlogproof.TLogProof
	if errors.Join(a.Unmarshal(text), b.Unmarshal(changed)) != nil || a.Index != b.Index || len(a.Hashes) != len(b.Hashes) {
		return false
	}
	for i := range a.Hashes {
		if a.Hashes[i] != b.Hashes[i] {
			return false
		}
	}
	lines, others := strings.Split(string(a.Checkpoint), "\n"), strings.Split(string(b.Checkpoint), "\n")
	for i := range lines {
		x, y := strings.Fields(lines[i]), strings.Fields(others[i])
		if i < 4 && lines[i] != others[i] || len(x) != len(y) {
			return false
		}
		for j := range x {
			p, errP := base64.StdEncoding.DecodeString(x[j])
			q, errQ := base64.StdEncoding.DecodeString(y[j])
			if x[j] != y[j] && (i < 4 || j != 2 || errP != nil || errQ != nil || !bytes.Equal(p, q)) {
				return false
			}
		}
	}
	return true
}

// TestProofs: libraries that do not know this service verify the proofs of 1,000 records, cosigned by a witness that one
// of them makes, and refuse them after a change of any byte that they read. The service's own verifier refuses every
// change.
func TestProofs(t *testing.T) {
	t.Parallel()
	const records, batch = 1000, 500
	witnessKey, address := witness(t)
	s := serve(t, "INTEGRITY_DATABASE_URL=", "INTEGRITY_WITNESSES="+witnessKey+" "+address)
	var ids []string
	for first := 0; first < records; first += batch {
		var declarations []wire.Declaration
		for i := range batch {
			declarations = append(declarations, s.declaration(fmt.Sprintf("p-%d", first+i)))
		}
		results, err := s.worker.RegisterBatch(t.Context(), declarations)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			ids = append(ids, r.Registration.PublicID)
		}
	}
	integritytest.Eventually(t, "the last record is in a cosigned tree", func() error {
		text, err := s.worker.TlogProof(t.Context(), ids[records-1], 25*time.Second)
		if err == nil && !strings.Contains(string(text), "\n— witness.example/judge ") {
			err = errors.New("the checkpoint is not cosigned")
		}
		return err
	})
	trusted := s.trusted(t, witnessKey)
	signing, err := base64.RawURLEncoding.DecodeString(trusted.Keys()[0].JWK.X)
	if err != nil {
		t.Fatal(err)
	}
	judges := proofLibraries(t, trusted.LogKeys()[0].VerifierKey, witnessKey, func(extra []byte) ([]byte, error) {
		return application(extra, signing)
	})
	ours := func(text []byte) evidence.Findings {
		return evidence.Verify(text, trusted, evidence.Options{Now: time.Now(), RequireWitnesses: 1})
	}
	tried, passedOver := map[string]int{}, map[string]int{}
	flip := func(text []byte, at int, mask byte) {
		changed := bytes.Clone(text)
		changed[at] ^= mask
		of := class(text, at)
		tried[of]++
		if ours(changed).ExitCode() == 0 {
			t.Errorf("%s: byte %d xor %#x is accepted by our verifier", of, at, mask)
		}
		for name, verify := range judges {
			if verify(changed) != nil {
				continue
			}
			// Extra data is not authenticated: the application here reads three of its members.
			if passedOver[name+", "+of]++; of != "extra" && !sameMeaning(text, changed) {
				t.Errorf("%s: byte %d xor %#x is accepted by %s", of, at, mask, name)
			}
		}
	}
	for i, id := range ids {
		text, err := s.fetchProof(t, i, id)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if found := ours(text); found.ExitCode() != 0 || found.Record.PublicID != id || *found.Witnessed != 1 {
			t.Fatalf("%s: %+v", id, found)
		}
		for name, verify := range judges {
			if err := verify(text); err != nil {
				t.Fatalf("%s: %s: %v", name, id, err)
			}
		}
		var read tlogproof.TLogProof
		if err := read.Unmarshal(text); err != nil || !bytes.Equal(read.Marshal(), text) {
			t.Fatalf("%s is written differently by transparency-dev: %v", id, err)
		}
		if i == 0 || i == records-1 {
			for at := range text {
				for _, mask := range []byte{0x01, 0x20, 0xff} {
					flip(text, at, mask)
				}
			}
			continue
		}
		for k := range 8 { // other positions for each record
			flip(text, (i*131+k*len(text)/8)%len(text), 0x01)
		}
	}
	for _, of := range []string{
		"header", "keyword", "extra", "index", "hash", "newline", "origin", "size", "root", "log signature", "cosignature",
	} {
		if tried[of] == 0 {
			t.Errorf("no byte of %s was changed", of)
		}
	}
	t.Logf("changes by class: %v; passed over by a library: %v", tried, passedOver)
}

// fetchProof fetches the private proof or, for some records, the public one. It waits when the minute is used up.
func (s *service) fetchProof(t *testing.T, i int, id string) (text []byte, err error) {
	t.Helper()
	for {
		if i%4 == 0 {
			text, err = s.worker.PublicTlogProof(t.Context(), id)
		} else {
			text, err = s.worker.TlogProof(t.Context(), id, 0)
		}
		if refused, ok := errors.AsType[*integrity.Error](err); !ok || refused.Status != http.StatusTooManyRequests {
			return text, err
		}
		time.Sleep(integrity.RetryAfter(err))
	}
}

// trusted returns the service's published keys with the key of a witness.
func (s *service) trusted(t *testing.T, witnessKey string) *evidence.TrustedKeys {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "trusted-keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := evidence.ParseTrustedKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	key, err := evidence.ParseWitnessKey(witnessKey)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(trusted.WitnessKeys(), key) {
		return trusted
	}
	if trusted, err = trusted.AddWitnessKey(key); err != nil {
		t.Fatal(err)
	}
	return trusted
}
