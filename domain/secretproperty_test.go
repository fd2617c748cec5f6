package domain

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	typeid "go.jetify.com/typeid/base32"
	"pgregory.net/rapid"
)

// TestEveryKeyIsReadAsItWasWritten: any id, including zeros and ones at either end, in any shard, and any secret can be
// parsed from the text of a key.
func TestEveryKeyIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(
			rapid.SampledFrom([]byte{0, 1, 0x1f, 0x20, 0x5f, 0x70, 0x7f, 0x80, 0xfe, 0xff}), 16, 16,
		).Draw(t, "id")
		shard := rapid.OneOf(rapid.Uint16(), rapid.SampledFrom([]uint16{0, 1, 255, 256, 65535})).Draw(t, "shard")
		binary.BigEndian.PutUint16(raw[14:], shard)
		digits := rapid.SliceOfN(rapid.SampledFrom([]byte(base62)), secretLength, secretLength).Draw(t, "secret")
		if zeros := rapid.IntRange(0, secretLength).Draw(t, "zeros"); zeros > 0 {
			copy(digits, strings.Repeat("0", zeros))
		}
		id := KeyID(raw)
		text := apiKeyPrefix + typeid.Encode(id) + "_" + string(digits)
		text += checksum(text)
		got, sum, ok := ParseAPIKey(text)
		if !ok || got != id || got.Shard() != Shard(shard) || sum != sha256.Sum256(digits) {
			t.Fatalf("%s: %v %v %t", text, got, got.Shard(), ok)
		}
	})
	for range 20_000 {
		id := NewKeyID(time.Now(), 7)
		text, want := NewAPIKey(id)
		if got, sum, ok := ParseAPIKey(text); !ok || got != id || sum != want || len(text) != apiKeyLength {
			t.Fatalf("%s: %v %t", text, got, ok)
		}
	}
}
