package domain

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"

	typeid "go.jetify.com/typeid/base32"
)

const (
	apiKeyPrefix   = "ik_"
	linkCodePrefix = "il_" // as long as apiKeyPrefix
	secretLength   = 43    // base62 characters of 256 bits
	checksumLength = 6     // base62 characters of a CRC-32
	apiKeyLength   = len(apiKeyPrefix) + 26 + 1 + secretLength + checksumLength
)

// HasAPIKeyForm tells an API key, well formed or not, from a token of another kind.
func HasAPIKeyForm(text string) bool { return strings.HasPrefix(text, apiKeyPrefix) }

// NewAPIKey draws the secret of a key and returns the text that is shown once
// (contract section 1) with the SHA-256 of the secret, which is all that is stored.
func NewAPIKey(id KeyID) (text string, secretSHA256 [32]byte) { return newSecretText(apiKeyPrefix, id) }

func newSecretText(prefix string, id [16]byte) (text string, secretSHA256 [32]byte) {
	secret := randomBase62()
	text = prefix + typeid.Encode(id) + "_" + secret
	return text + checksum(text), sha256.Sum256([]byte(secret))
}

// ParseAPIKey splits a key into its id and the SHA-256 of its secret. A wrong
// form or checksum is refused here, before any query.
func ParseAPIKey(text string) (id KeyID, secretSHA256 [32]byte, ok bool) {
	return parseSecretText[KeyID](text, apiKeyPrefix)
}

func parseSecretText[I ID[K], K kind](text, prefix string) (id I, secretSHA256 [32]byte, ok bool) {
	if len(text) != apiKeyLength || !strings.HasPrefix(text, prefix) {
		return id, secretSHA256, false
	}
	body, sum := text[:apiKeyLength-checksumLength], text[apiKeyLength-checksumLength:]
	if checksum(body) != sum {
		return id, secretSHA256, false
	}
	suffix, secret, found := strings.Cut(body[len(prefix):], "_")
	if !found || len(secret) != secretLength {
		return id, secretSHA256, false
	}
	var k K
	id, err := ParseID[I, K](k.prefix() + "_" + suffix)
	return id, sha256.Sum256([]byte(secret)), err == nil
}

const base62 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// checksum is on the way of every request, so it needs no big numbers.
func checksum(text string) string {
	var out [checksumLength]byte
	sum := crc32.ChecksumIEEE([]byte(text))
	for i := range out {
		out[checksumLength-1-i], sum = base62[sum%62], sum/62
	}
	return string(out[:])
}

// randomBase62 draws 256 bits and writes them in secretLength characters.
func randomBase62() string {
	var raw [32]byte
	rand.Read(raw[:])
	digits := new(big.Int).SetBytes(raw[:]).Text(62) // the digits of base62
	return strings.Repeat("0", secretLength-len(digits)) + digits
}
