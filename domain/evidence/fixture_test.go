package evidence

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	testNow     = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	testContent = []byte("%PDF-1.7 a document\n")
)

// fixture is one record with all parts of a private export. Tests change a copy of its parts and sign again with the
// key they need.
type fixture struct {
	signer, retired, revoked, both, foreign *Signer
	logSigner, retiredLog, foreignLog       logSigner
	trust                                   *TrustedKeys
	references                              References
	record                                  RecordPayload
	status                                  StatusPayload
}

// testSigner returns a key that is the same in every run.
func testSigner(t testing.TB, seed byte) *Signer {
	t.Helper()
	s, err := NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const testLogName = "ledger.example/log"

// logSigner signs checkpoints of a test's log.
type logSigner struct {
	key     LogKey
	private ed25519.PrivateKey
}

func testLogSigner(t testing.TB, name string, seed byte) logSigner {
	t.Helper()
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	key, err := NewLogKey(name, private.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return logSigner{key, private}
}

// instant parses a time in a test.
func instant(text string) time.Time {
	at, err := parseServiceTime(text)
	if err != nil {
		panic(err)
	}
	return at
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	f := fixture{
		signer: testSigner(t, 1), retired: testSigner(t, 2), revoked: testSigner(t, 3), both: testSigner(t, 4),
		foreign: testSigner(t, 5),
		references: References{
			CompanyReference: "c-7f3a", Source: "erp", DocumentReference: "inv:2026.11-0001", Version: 2,
			Salt: base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, 16)),
		},
	}
	f.record = RecordPayload{
		Issuer: "https://ledger.example/<é>", PublicID: "abcdefghijklmnopqrstuvwxya", SHA256: sha256.Sum256(testContent),
		SizeBytes: int64(len(testContent)), MimeType: "application/pdf", GeneratedAt: "2026-11-19T09:30:00.123456789Z",
		ReceivedAt: instant("2026-11-19T09:30:05.25Z"), ReferencesSHA256: f.references.SHA256(),
	}
	f.status = StatusPayload{
		PublicID: f.record.PublicID, PayloadSHA256: sha256.Sum256(f.record.AppendCanonical(nil)), Status: Current,
		ObservedAt: instant("2026-11-20T12:00:00Z"), Sequence: 41,
	}
	barred := func(s *Signer, reason string) RevokedKey {
		return RevokedKey{s.Key().KeyID, s.Key().FingerprintSHA256, reason, "2026-10-01T00:00:00Z"}
	}
	f.logSigner, f.retiredLog, f.foreignLog = testLogSigner(t, testLogName, 11), testLogSigner(t, testLogName, 12),
		testLogSigner(t, testLogName, 13)
	var err error
	f.trust, err = NewTrustedKeys([]TrustedKey{
		{PublicKey: f.signer.Key(), Status: KeyActive, Since: "2026-11-01T00:00:00Z"},
		{PublicKey: f.retired.Key(), Status: KeyRetired, Since: "2026-11-01T00:00:00Z"},
		{PublicKey: f.both.Key()},
	}, []RevokedKey{barred(f.revoked, ReasonRevoked), barred(f.both, ReasonCompromised)},
		[]LogKey{f.logSigner.key, f.retiredLog.key})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// envelope signs the fixture's parts into a private export.
func (f fixture) envelope() Envelope {
	e := NewEnvelope(must(f.signer.SignPayload(f.record.AppendCanonical(nil))))
	references, observation := f.references, must(f.signer.SignPayload(f.status.AppendCanonical(nil)))
	e.References, e.StatusObservation = &references, &observation
	return e
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden compares got with a file under testdata, or writes the file with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\ngot  %s\nwant %s", name, got, want)
	}
}

// must returns v; the error would be a fault of the test's own key.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
