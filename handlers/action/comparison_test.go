package action

import (
	"crypto/sha256"
	"runtime/debug"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// registration makes the stored data of a file's registration.
func registration(t *testing.T, signer *evidence.Signer, id domain.PublicID, file string) []byte {
	t.Helper()
	reference := domain.VersionReference{
		CompanyReference: "company", Source: "billing", DocumentReference: file, Version: 1,
	}
	body := &domain.RecordRegisteredBody{
		VersionReference: reference, Salt: "AAAAAAAAAAAAAAAAAAAAAA", Status: domain.StatusCurrent,
	}
	references := body.References()
	sum := sha256.Sum256([]byte(file))
	body.Record = evidence.RecordPayload{
		Issuer: "https://ledger.example", PublicID: id.String(), SHA256: sum, SizeBytes: 1, MimeType: "application/pdf",
		GeneratedAt: "2026-11-01T10:00:00Z", ReceivedAt: time.Date(2026, 11, 20, 14, 3, 0, 123_400_000, time.UTC),
		ReferencesSHA256: references.SHA256(),
	}
	signed, err := signer.SignPayload(body.Record.AppendCanonical(nil))
	if err != nil {
		t.Fatal(err)
	}
	body.Payload, body.Signature, body.KeyID = []byte(signed.Payload), signed.Signature, signed.KeyID
	data, err := (&domain.Event{Body: body}).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func trusting(t *testing.T, key evidence.PublicKey, revoked ...evidence.RevokedKey) *evidence.TrustedKeys {
	t.Helper()
	trusted, err := evidence.NewTrustedKeys([]evidence.TrustedKey{{PublicKey: key}}, revoked, nil)
	if err != nil {
		t.Fatal(err)
	}
	return trusted
}

// A cached check does not change the result for changed bytes, another public id or other trusted keys.
func TestRememberedCheck(t *testing.T) {
	signer := evidence.GenerateSigner()
	key := signer.Key()
	trusted, id, other := trusting(t, key), domain.PublicID{1}, domain.PublicID{2}
	revoked := trusting(
		t, key,
		evidence.RevokedKey{
			KeyID: key.KeyID, FingerprintSHA256: key.FingerprintSHA256, Reason: evidence.ReasonRevoked,
			Since: "2026-11-20T14:03:00Z",
		},
	)
	data := registration(t, signer, id, "a")
	v := newVerifier()
	for _, state := range []string{"new", "remembered"} {
		record, found := v.verify(trusted, id, data)
		if found != evidence.Valid || record.sha256 != sha256.Sum256([]byte("a")) || record.keyID != key.KeyID ||
			evidence.FormatTime(time.UnixMicro(record.receivedAt)) != "2026-11-20T14:03:00.1234Z" {
			t.Fatalf("%s: %s, %+v", state, found, record)
		}
	}
	for name, c := range map[string]struct {
		trust *evidence.TrustedKeys
		id    domain.PublicID
		want  evidence.Finding
	}{
		"another public id": {trusted, other, evidence.Invalid}, "revoked": {revoked, id, evidence.Untrusted},
		"no keys":       {nil, id, evidence.Untrusted},
		"another key":   {trusting(t, evidence.GenerateSigner().Key()), id, evidence.Untrusted},
		"trusted again": {trusted, id, evidence.Valid},
	} {
		if record, found := v.verify(c.trust, c.id, data); found != c.want ||
			found != evidence.Valid && record.contents != (contents{}) {
			t.Errorf("%s: %s, %+v", name, found, record)
		}
	}
	for i := range data {
		changed := []byte(string(data))
		changed[i] ^= 1
		record, found := v.verify(trusted, id, changed)
		if again, anew := newVerifier().verify(trusted, id, changed); found != anew || record != again {
			t.Errorf("byte %d changed: %s, not %s", i, found, anew)
		}
	}
	if _, found := v.verify(trusted, id, append(data, ' ')); found != evidence.Valid {
		t.Errorf("a space after the data: %s", found) // other bytes, which say the same
	}
}

// The cache is bounded and contains the newest checks.
func TestVerifierForgets(t *testing.T) {
	const most = 3 * pageOfChecks / 2
	v := newVerifier()
	v.maxRecords = most
	name := func(i int) check { return sha256.Sum256([]byte(strconv.Itoa(i))) }
	for i := range 3 * most {
		key := strconv.Itoa(i / pageOfChecks)
		v.remember(name(i), verified{contents: contents{receivedAt: int64(i)}, keyID: key})
		if known, ok := v.recall(name(i)); !ok || known.receivedAt != int64(i) || known.keyID != key {
			t.Fatalf("record %d: %v, %+v", i, ok, known)
		}
		if len(v.known) > 2 || len(v.place) > most {
			t.Fatalf("%d records, %d pages", len(v.place), len(v.known))
		}
	}
	for i := range 3 * most {
		if _, ok := v.recall(name(i)); ok != (i >= 2*most) {
			t.Fatalf("record %d is known: %v", i, ok)
		}
	}
	if size := unsafe.Sizeof(remembered{}); size != 80 {
		t.Errorf("a record has %d bytes", size)
	}
}

// The memory limit of the operator bounds the cache; a limit that the process has set itself does not.
func TestVerifierFollowsTheMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	for allowed, want := range map[string]int{"": maxRemembered, "1GiB": (1 << 25) / rememberedBytes} {
		t.Setenv("GOMEMLIMIT", allowed)
		if got := newVerifier().maxRecords; got != want {
			t.Errorf("%q: %d records, not %d", allowed, got, want)
		}
	}
}
