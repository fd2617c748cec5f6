package evidence

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestAuditMark: a mark is read back unchanged with its key, and refused with any byte changed or with another key.
func TestAuditMark(t *testing.T) {
	key, other := GenerateSigner(), GenerateSigner()
	now := time.Date(2026, 11, 29, 3, 0, 0, 123_000_000, time.UTC)
	want := AuditMarkPayload{
		Issuer: "https://ledger.example", CreatedAt: now, Program: "1.2.3", Events: 7, TreeSize: 6, TreeRoot: Hash{1},
		Shards:      []AuditMarkShard{{7, Hash{2}, 6, Hash{3}}, {}},
		StateSHA256: Hash{4}, TrustedKeysSHA256: Hash{6}, Since: &FormerAuditMark{now.Add(-time.Hour), 5, Hash{5}}, WholeAt: now.Add(-24 * time.Hour),
	}
	file, err := SignAuditMark(want, key)
	if err != nil {
		t.Fatal(err)
	}
	got, sum, err := OpenAuditMark(file, key.Key().KeyID)
	if err != nil || !reflect.DeepEqual(got, want) || sum.String() != hexSHA256(want.AppendCanonical(nil)) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, _, err := OpenAuditMark(file, other.Key().KeyID); err == nil ||
		!strings.Contains(err.Error(), "signed by the key") {
		t.Errorf("with another key: %v", err)
	}
	for i := range file {
		changed := bytes.Clone(file)
		if changed[i] ^= 1; bytes.Equal(bytes.TrimSpace(changed), bytes.TrimSpace(file)) {
			continue
		}
		if p, _, err := OpenAuditMark(changed, key.Key().KeyID); err == nil && !reflect.DeepEqual(p, want) {
			t.Fatalf("byte %d, %q: read as %+v", i, changed[max(0, i-20):min(len(file), i+20)], p)
		} else if err == nil && !strings.ContainsAny(string(changed[i]), "\n\t\r\v !") {
			t.Errorf("byte %d, %q: read", i, changed[max(0, i-20):min(len(file), i+20)])
		}
	}
	want.Since, want.Shards = nil, []AuditMarkShard{}
	if got, err := ParseAuditMarkPayload(want.AppendCanonical(nil)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("whole: %+v, %v", got, err)
	}
	// The names in the file are of the key that signed, the payload of another mark.
	swapped := bytes.Replace(file, []byte(`\"events\":7`), []byte(`\"events\":8`), 1)
	if _, _, err := OpenAuditMark(swapped, key.Key().KeyID); err == nil ||
		!strings.Contains(err.Error(), "does not belong to the payload") {
		t.Errorf("with another payload: %v", err)
	}
}
