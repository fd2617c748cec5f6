package evidence

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"integrityledger/domain/strictjson"
	"integrityledger/domain/strictjson/jsontest"
)

// stepsPerByte bounds the worst case, a list of empty objects: three bytes each, with four missing members.
const stepsPerByte = 64

// TestWorkOfForeignFiles: the work for receipts and trusted-keys files of maximum size is proportional to their size,
// whatever their content, and the report about them is bounded.
func TestWorkOfForeignFiles(t *testing.T) {
	f := newFixture(t)
	receipt, trusted := 64<<10, 1<<20
	whole := string(marshal(t, f.envelope()))
	for _, c := range []struct {
		name, begin, end string
		size             int
		members          []string
		read             func(*strictjson.Meter, []byte) error
	}{
		{
			"receipt", "", "", receipt,
			[]string{
				"contract", "payload", "signature", "publicKeyJwk", "references", "statusObservation", "statusAsOf", "inclusion",
			},
			verifyText,
		},
		{"receipt, JWK", strings.SplitAfter(whole, `"publicKeyJwk":`)[0], "}", receipt, []string{"kty", "x"}, verifyText},
		{
			"receipt, inclusion", strings.TrimSuffix(whole, "}") + `,"inclusion":`, "}", receipt,
			[]string{"leaf", "leafIndex", "hashes", "checkpoint"}, verifyText,
		},
		{"trusted keys", "", "", trusted, nil, trustText},
		{"trusted keys, members", "", "", receipt, []string{"keys", "keyStatus", "revokedKeys", "logKeys"}, trustText},
		{"trusted keys, status", `{"keys":[],"keyStatus":`, "}", trusted, []string{"a"}, trustText},
		{"trusted keys, a revoked key", `{"keys":[],"revokedKeys":[`, "]}", receipt, []string{"keyId", "since"}, trustText},
	} {
		var worst int64
		of := ""
		for _, shape := range jsontest.Shapes(c.size-len(c.begin)-len(c.end), c.members...) {
			var meter strictjson.Meter
			text := []byte(c.begin + string(shape.Text) + c.end)
			if err := c.read(&meter, text); err != nil && len(err.Error()) > 64<<10 {
				t.Errorf("%s, %s: %d bytes of words: %.200v", c.name, shape.Name, len(err.Error()), err)
			}
			if steps := meter.Steps(); steps < int64(len(text)) || steps > stepsPerByte*int64(len(text))+50_000 {
				t.Errorf("%s, %s: %d bytes took %d steps", c.name, shape.Name, len(text), steps)
			}
			if meter.Steps() > worst {
				worst, of = meter.Steps(), shape.Name
			}
		}
		t.Logf("%s: %d bytes, at most %d steps (%.1f a byte: %s)", c.name, c.size, worst, float64(worst)/float64(c.size), of)
	}
}

func verifyText(m *strictjson.Meter, text []byte) error {
	o, err := openReceipt(m, text)
	if err == nil {
		_, err = readEnvelope(o)
	}
	return err
}

func trustText(m *strictjson.Meter, text []byte) error {
	_, err := parseTrustedKeys(m, text)
	return err
}

// TestLongTexts: payloads and leaves are signed, but possibly with another party's key.
func TestLongTexts(t *testing.T) {
	for _, shape := range jsontest.Shapes(
		60<<10, "contract", "issuer", "publicId", "mimeType", "generatedAt", "sizeBytes", "title", "nonce",
	) {
		for name, read := range map[string]func([]byte) error{
			"record":      func(b []byte) error { _, err := ParseRecordPayload(b); return err },
			"status":      func(b []byte) error { _, err := ParseStatusPayload(b); return err },
			"certificate": func(b []byte) error { _, err := ParseCertificatePayload(b); return err },
			"leaf":        func(b []byte) error { _, err := ParseLeaf(b); return err },
		} {
			if err := read(shape.Text); err == nil {
				t.Errorf("%s: %s was accepted", name, shape.Name)
			}
		}
	}
	// The text of a note has no nesting.
	for _, note := range []string{
		strings.Repeat("\n", 60<<10), strings.Repeat("— a AAAA\n", 7<<10),
		fmt.Sprintf("a\n1\n%s\n\n%s", strings.Repeat("A", 44), bytes.Repeat([]byte("— a AAAAAAA=\n"), 5000)),
	} {
		if _, err := OpenCheckpoint(note, nil); err == nil {
			t.Errorf("%.20q was accepted", note)
		}
	}
}
