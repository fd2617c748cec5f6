package domain

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	typeid "go.jetify.com/typeid/base32"

	"integrityledger/domain/say"
)

const (
	apiKeyPrefix     = "ik_"
	linkCodePrefix   = "il_" // as long as apiKeyPrefix
	invitationPrefix = "in_" // as long as apiKeyPrefix
	signInPrefix     = "is_" // as long as apiKeyPrefix
	secretLength     = 43    // base62 characters of 256 bits
	webhookLength    = 44    // base62 characters of a webhook secret: the base64 of 33 bytes, with no padding
	checksumLength   = 6     // base62 characters of a CRC-32
	apiKeyLength     = len(apiKeyPrefix) + 26 + 1 + secretLength + checksumLength
)

// HasAPIKeyForm reports whether a text is an API key, even a malformed one, and not a token of another kind.
func HasAPIKeyForm(text string) bool { return strings.HasPrefix(text, apiKeyPrefix) }

// NewAPIKey generates the secret of a key. It returns the text that is shown once (contract, section 1) and the SHA-256
// of the secret; only the hash is stored.
func NewAPIKey(id KeyID) (text string, secretSHA256 [32]byte) { return newSecretText(apiKeyPrefix, id) }

// NewSignInLink generates the id and secret of a link that signs a person in to the console. It returns its code, which
// is only in the link, and the SHA-256 of the secret; only the hash is stored.
func NewSignInLink(now time.Time, shard Shard) (id SignInID, code string, secretSHA256 [32]byte) {
	id = newShardID[SignInID](now, shard)
	code, secretSHA256 = newSecretText(signInPrefix, id)
	return id, code, secretSHA256
}

// ParseSignInCode splits the code of a sign-in link into its id and the SHA-256 of its secret. A wrong form or checksum
// is refused here, before any query.
func ParseSignInCode(text string) (id SignInID, secretSHA256 [32]byte, ok bool) {
	return parseSecretText[SignInID](text, signInPrefix)
}

// NewKnownBrowser returns the value that a browser stores after a sign-in with an address: the time until which the
// browser is known, and the HMAC-SHA-256, with the ledger's secret, of the address's hash and that time. It does not
// reveal the address.
func NewKnownBrowser(secret LedgerSecret, emailSHA256 [32]byte, until time.Time) string {
	end := strconv.FormatInt(until.Unix(), 10)
	return end + "." + secret.digest("known-browser", emailSHA256[:], []byte(end))
}

// digest returns the HMAC-SHA-256 of a label and parts. Only the last part may vary in length.
func (s LedgerSecret) digest(label string, parts ...[]byte) string {
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(label))
	for _, part := range parts {
		mac.Write(part)
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// SignText returns data for a browser to keep: readable, and signed with the ledger's secret for the purpose in label.
func SignText(secret LedgerSecret, label string, data []byte) string {
	return base64.RawURLEncoding.EncodeToString(data) + "." + secret.digest(label, data)
}

// SignedText returns the data of a text from SignText with the same label. ok is false for any other text.
func SignedText(secret LedgerSecret, label, text string) (data []byte, ok bool) {
	kept, _, _ := strings.Cut(text, ".")
	data, err := base64.RawURLEncoding.DecodeString(kept)
	return data, err == nil && hmac.Equal([]byte(text), []byte(SignText(secret, label, data)))
}

// KnowsBrowser reports whether a text from a browser was created for the address and has not expired.
func KnowsBrowser(secret LedgerSecret, text string, emailSHA256 [32]byte, now time.Time) bool {
	end, _, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(end, 10, 64)
	until := time.Unix(seconds, 0)
	return err == nil && now.Before(until) && hmac.Equal([]byte(text), []byte(NewKnownBrowser(secret, emailSHA256, until)))
}

func newSecretText(prefix string, id [16]byte) (text string, secretSHA256 [32]byte) {
	secret := randomBase62(secretLength)
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

// checksum runs for every request, so it avoids big numbers.
func checksum(text string) string {
	var out [checksumLength]byte
	sum := crc32.ChecksumIEEE([]byte(text))
	for i := range out {
		out[checksumLength-1-i], sum = base62[sum%62], sum/62
	}
	return string(out[:])
}

// randomBase62 returns uniformly random base62 characters.
func randomBase62(length int) string {
	most := new(big.Int).Exp(big.NewInt(62), big.NewInt(int64(length)), nil)
	drawn, err := rand.Int(rand.Reader, most)
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	digits := drawn.Text(62) // the digits of base62
	return strings.Repeat("0", length-len(digits)) + digits
}

// SecretKey seals webhook secrets and the codes of invitations at rest with AES-256-GCM (NIST SP 800-38D). The owner's
// id is the associated data, so that a sealed secret cannot be opened for another owner.
//
// Sealed form: one byte of version (1), the first four bytes of the key's SHA-256, a random nonce of twelve bytes,
// ciphertext and tag. The four bytes name the key, so that several keys can be in use during a rotation.
type SecretKey [32]byte

// SecretKeys are the keys of a service. The first one seals; the others only open what they sealed before a rotation.
// No two have the same ID. Without keys nothing can be sealed or opened.
type SecretKeys []SecretKey

// FixedSecretKeys returns a source of keys that never change.
func FixedSecretKeys(keys ...SecretKey) func() SecretKeys { return func() SecretKeys { return keys } }

// ParseSecretKeys reads one key or several, separated by white space or commas.
func ParseSecretKeys(text string) (keys SecretKeys, err error) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		key, err := ParseSecretKey(word)
		if err != nil {
			return nil, err
		}
		if slices.Contains(keys.IDs(), key.ID()) {
			return nil, say.Errorf("must not name the key %s twice", key.ID())
		}
		keys = append(keys, key)
	}
	if keys == nil {
		_, err = ParseSecretKey("")
	}
	return keys, err
}

// Text returns the keys in base64, one a line, as ParseSecretKeys reads them.
func (k SecretKeys) Text() string {
	var text strings.Builder
	for _, key := range k {
		text.WriteString(base64.StdEncoding.EncodeToString(key[:]) + "\n")
	}
	return text.String()
}

// IDs lists the IDs of the keys in their order.
func (k SecretKeys) IDs() []string {
	ids := make([]string, len(k))
	for i, key := range k {
		ids[i] = key.ID()
	}
	return ids
}

// Open decrypts the secret of an id with the key that sealed it. It returns ErrOtherSecretKey if that key is missing,
// and another error for a damaged secret.
func (k SecretKeys) Open(id fmt.Stringer, sealed []byte) (string, error) {
	if len(k) == 0 {
		return "", say.New("there is no INTEGRITY_SECRET_KEY")
	}
	for _, key := range k[1:] {
		if secret, err := key.Open(id, sealed); !errors.Is(err, ErrOtherSecretKey) {
			return secret, err
		}
	}
	return k[0].Open(id, sealed)
}

const (
	sealedVersion = 1
	sealedKeyID   = 4
	// webhookSecretPrefix is part of the secret.
	webhookSecretPrefix = "whsec_"
)

// ErrOtherSecretKey means that a secret was sealed with another key.
var ErrOtherSecretKey = say.New("the secret was sealed under another INTEGRITY_SECRET_KEY")

// ParseSecretKey reads 32 bytes in base64 (44 characters) or hexadecimal (64).
func ParseSecretKey(text string) (key SecretKey, err error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if len(text) == 2*len(key) {
		raw, err = hex.DecodeString(text)
	}
	if err != nil || len(raw) != len(key) {
		return key, say.New("must be 32 bytes in base64 or hexadecimal, such as openssl rand -base64 32 prints")
	}
	copy(key[:], raw)
	return key, nil
}

// NewSecretKey generates a key and also returns it in base64.
func NewSecretKey() (key SecretKey, text string) {
	rand.Read(key[:])
	return key, base64.StdEncoding.EncodeToString(key[:])
}

// newSecret generates a webhook secret, whsec_ and webhookLength base62 characters, and seals it.
func (k SecretKey) newSecret(id WebhookID) (secret string, sealed []byte) {
	secret = webhookSecretPrefix + randomBase62(webhookLength)
	return secret, k.Seal(id, secret)
}

// Seal encrypts the secret of an id.
func (k SecretKey) Seal(id fmt.Stringer, secret string) []byte {
	sealed := append([]byte{sealedVersion}, k.id()...)
	return k.gcm().Seal(sealed, nil, []byte(secret), []byte(id.String())) //nolint:gosec // gcm draws the nonce
}

// Open decrypts the secret of an id. It returns ErrOtherSecretKey for a wrong key, and another error for a damaged
// secret.
func (k SecretKey) Open(id fmt.Stringer, sealed []byte) (string, error) {
	switch SealedWith(sealed) {
	case k.ID():
	case "":
		return "", say.New("must be a sealed secret")
	default:
		return "", ErrOtherSecretKey
	}
	secret, err := k.gcm().Open(nil, nil, sealed[1+sealedKeyID:], []byte(id.String()))
	if err != nil {
		return "", say.Errorf("the sealed secret of %s was damaged, or is another's: %w", id, err)
	}
	return string(secret), nil
}

// gcm puts a random nonce before the ciphertext.
func (k SecretKey) gcm() cipher.AEAD {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // cannot happen: the block is an AES block
	}
	return gcm
}

func (k SecretKey) id() []byte {
	sum := sha256.Sum256(k[:])
	return sum[:sealedKeyID]
}

// ID names the key without revealing it: the first four bytes of its SHA-256 in hexadecimal.
func (k SecretKey) ID() string { return hex.EncodeToString(k.id()) }

// SealedWith returns the ID of the key that sealed a secret, or an empty string for a malformed one.
func SealedWith(sealed []byte) string {
	if len(sealed) < 1+sealedKeyID || sealed[0] != sealedVersion {
		return ""
	}
	return hex.EncodeToString(sealed[1 : 1+sealedKeyID])
}

// SignWebhook returns the header Service-Signature of one attempt: t=<unix seconds>,v1=<hex>, with one v1 per secret.
// The HMAC-SHA256 is over "<t>.<body>", and its key is the whole secret including its prefix (specification, Events;
// contract, section 5).
func SignWebhook(at time.Time, body []byte, secrets ...string) string {
	t := strconv.FormatInt(at.Unix(), 10)
	header := "t=" + t
	for _, secret := range secrets {
		header += ",v1=" + hex.EncodeToString(webhookMAC([]byte(secret), t, body))
	}
	return header
}

// SignStandardWebhook returns the header webhook-signature of one attempt (Standard Webhooks 1.0.0): v1,<base64>, one
// per secret, separated by spaces. The HMAC-SHA256 is over "<id>.<unix seconds>.<body>", and its key is the
// base64-decoded secret without its prefix.
func SignStandardWebhook(id EventID, at time.Time, body []byte, secrets ...string) string {
	var signatures []string
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, webhookSecretPrefix))
		if err != nil {
			panic(err) // newSecret draws base64, and a sealed secret opens unchanged or not at all
		}
		mac := webhookMAC(key, id.String()+"."+strconv.FormatInt(at.Unix(), 10), body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac))
	}
	return strings.Join(signatures, " ")
}

// webhookMAC returns the HMAC-SHA256 of "<head>.<body>".
func webhookMAC(key []byte, head string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(head))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return mac.Sum(nil)
}
