package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// masks are all single bits, all bits, and the two masks that turn one white space character into another.
var masks = []byte{0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff, 0x29, 0x07}

// fewMasks are for slow verifications: a neighbour, the other case of a letter, all bits.
var fewMasks = []byte{0x01, 0x20, 0xff}

// TestEveryByteOfTheEvidence changes every byte of a private export: the receipt fails, or its JSON still means the
// same.
func TestEveryByteOfTheEvidence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	compact := marshal(t, f.envelope())
	indented, err := json.MarshalIndent(f.envelope(), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Now: testNow, Document: &Document{f.record.SHA256.String(), f.record.SizeBytes}}
	for _, receipt := range [][]byte{compact, indented} {
		if got := Verify(receipt, f.trust, opts); got.ExitCode() != 0 || got.Signature != Valid ||
			got.References != Valid || got.Observation != Valid {
			t.Fatalf("%s", marshal(t, got))
		}
		everyByte(t, f.trust, receipt, opts, masks)
	}
}

// everyByte changes each byte of a receipt that verifies, by each mask.
func everyByte(t *testing.T, trust *TrustedKeys, receipt []byte, opts Options, masks []byte) {
	t.Helper()
	if got := Verify(receipt, trust, opts); got.ExitCode() != 0 || got.Signature != Valid {
		t.Fatalf("%s", marshal(t, got))
	}
	want, harmless := decodeAny(receipt), 0
	for i := range receipt {
		for _, mask := range masks {
			changed := bytes.Clone(receipt)
			changed[i] ^= mask
			if Verify(changed, trust, opts).ExitCode() == 1 {
				continue
			}
			if got := decodeAny(changed); got == nil || !reflect.DeepEqual(got, want) {
				t.Errorf("byte %d xor %#x: …%q was accepted", i, mask, changed[max(0, i-20):min(len(changed), i+20)])
			}
			harmless++
		}
	}
	t.Logf("%d bytes, %d changes that mean nothing", len(receipt), harmless)
}

func decodeAny(data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// TestEveryByteOfTheSignedParts changes the signed texts themselves rather than the JSON that carries them.
func TestEveryByteOfTheSignedParts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	payload, signature := f.record.AppendCanonical(nil), must(f.signer.Sign(f.record.AppendCanonical(nil)))
	for i := range payload {
		for _, mask := range masks {
			changed := bytes.Clone(payload)
			changed[i] ^= mask
			if CheckSignature(f.trust, f.signer.Key().KeyID, changed, signature) != Invalid {
				t.Errorf("payload byte %d xor %#x was accepted", i, mask)
			}
		}
	}
	for i := range signature {
		for c := range 256 {
			if byte(c) == signature[i] {
				continue
			}
			changed := signature[:i] + string([]byte{byte(c)}) + signature[i+1:]
			if CheckSignature(f.trust, f.signer.Key().KeyID, payload, changed) != Invalid {
				t.Errorf("signature character %d as %#x was accepted", i, c)
			}
		}
	}
}

func TestEveryByteOfTheDocument(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	receipt := marshal(t, f.envelope())
	for i := range testContent {
		for mask := 1; mask < 256; mask++ {
			changed := bytes.Clone(testContent)
			changed[i] ^= byte(mask)
			got := Verify(receipt, f.trust, Options{Now: testNow, Document: &Document{hexSHA256(changed), int64(len(changed))}})
			if got.FileMatch == nil || *got.FileMatch || got.ExitCode() != 1 || got.Signature != Valid {
				t.Fatalf("document byte %d xor %#x: %s", i, mask, marshal(t, got))
			}
		}
	}
}

// FuzzVerify: no receipt causes a panic, a receipt that differs in meaning from the good one is never accepted, and
// exit 0 implies a valid signature.
func FuzzVerify(f *testing.F) {
	x := newFixture(f)
	good := marshal(f, x.envelope())
	f.Add(good)
	f.Add(marshal(f, NewEnvelope(must(x.signer.SignPayload(x.record.AppendCanonical(nil))))))
	f.Add(bytes.ReplaceAll(good, []byte(`,"`), []byte(", \"")))
	f.Add([]byte(
		`{"contract":"integrity-evidence-v1","payload":"{}","references":{},"statusObservation":{},"inclusion":{}}`,
	))
	f.Fuzz(func(t *testing.T, receipt []byte) {
		got := Verify(receipt, x.trust, Options{Now: testNow})
		if got.ExitCode() != 0 {
			return
		}
		if got.Signature != Valid || got.Record == nil || *got.Record != x.record {
			t.Fatalf("%q: %s", receipt, marshal(t, got))
		}
		if got.References == Invalid || got.Observation == Invalid || got.Observation == Untrusted {
			t.Fatalf("%s", marshal(t, got))
		}
	})
}

func TestLimits(t *testing.T) {
	for _, text := range []struct {
		title  func(Language) string
		limits func(Language, string) []string
		points int
	}{{LimitsTitle, Limits, 13}, {CertificateLimitsTitle, CertificateLimits, 11}} {
		for _, language := range []Language{Spanish, English} {
			plain, told := text.limits(language, " "), text.limits(language, "Acme runs both.")
			if len(plain) != len(told) || len(plain) != text.points {
				t.Fatalf("%d and %d points", len(plain), len(told))
			}
			if last := told[len(told)-1]; last != plain[len(plain)-1]+" Acme runs both." {
				t.Error(last)
			}
			for _, point := range plain {
				if !strings.HasSuffix(point, ".") || strings.Contains(point, "  ") {
					t.Errorf("%q", point)
				}
			}
			if text.title(language) == "" {
				t.Error("no title")
			}
		}
		if text.limits(Spanish, "")[0] == text.limits(English, "")[0] {
			t.Error("the languages do not correspond")
		}
	}
}

// plusL adds the group order to S, which RFC 8032, section 5.1.7 refuses: another encoding of the same signature.
func plusL(t *testing.T, signature string) string {
	t.Helper()
	raw, ok := decodeBase64URL(signature, 64)
	if !ok {
		t.Fatal("signature")
	}
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	s := bytes.Clone(raw[32:])
	slices.Reverse(s)
	sum := new(big.Int).Add(new(big.Int).SetBytes(s), order).FillBytes(make([]byte, 32))
	slices.Reverse(sum)
	return base64.RawURLEncoding.EncodeToString(append(raw[:32:32], sum...))
}
