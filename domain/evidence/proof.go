package evidence

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// ProofContract is the contract of the extra data in a record's transparency log proof.
const ProofContract = "integrity-tlog-proof-v1"

// ProofExtension ends the name of a proof's file (C2SP tlog-proof).
const ProofExtension = ".tlog-proof"

// The lines of a proof (C2SP tlog-proof@v1).
const (
	proofHeader = "c2sp.org/tlog-proof@v1"
	proofExtra  = "extra "
	proofIndex  = "index "
)

var proofIndexPattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,15})$`)

// proofData is the extra data of a proof: the leaf, whose hash the log contains, and the receipt, to whose payload the
// leaf commits. A leaf reveals no references, organization or people: its bodySha256 covers the record's salt of 128
// random bits, so guessing likely values reveals nothing.
type proofData struct {
	Contract string `json:"contract"` // ProofContract
	Leaf     string `json:"leaf"`
	Signed
	References *References `json:"references,omitempty"` // absent from the public proof
}

func (p proofData) appendCanonical(dst []byte) []byte { return append(dst, canonical(p)...) }

// AppendProof appends the record's transparency log proof (C2SP tlog-proof@v1): its inclusion, with the receipt and the
// references as extra data. The envelope must have Inclusion; all other members are left out.
func (e Envelope) AppendProof(dst []byte) []byte {
	extra := proofData{ProofContract, e.Inclusion.Leaf, e.Signed, e.References}.appendCanonical(nil)
	return e.Inclusion.appendProof(dst, extra)
}

// appendProof appends a transparency log proof with this extra data.
func (i Inclusion) appendProof(dst, extra []byte) []byte {
	dst = append(dst, proofHeader+"\n"+proofExtra...)
	dst = base64.StdEncoding.AppendEncode(dst, extra)
	dst = strconv.AppendInt(append(dst, "\n"+proofIndex...), i.LeafIndex, 10)
	for _, hash := range i.Hashes {
		dst = append(append(dst, '\n'), hash...)
	}
	return append(append(dst, "\n\n"...), i.Checkpoint...)
}

// isProof reports whether a text given to a verifier is a transparency log proof, not JSON.
func isProof(text []byte) bool { return bytes.HasPrefix(text, []byte(proofHeader+"\n")) }

// ParseProof reads a transparency log proof of at most MaxReceiptBytes bytes as the envelope with which AppendProof
// writes these bytes; every other text is refused. It proves nothing: it checks no signature, no hash and no payload.
func ParseProof(text []byte) (Envelope, error) {
	extra, inclusion, err := readProof(text, MaxReceiptBytes)
	if err != nil {
		return Envelope{}, err
	}
	data, err := readProofData(extra)
	if err != nil {
		return Envelope{}, say.Errorf("proof: extra data: %w", err)
	}
	e := NewEnvelope(data.Signed)
	e.References, e.Inclusion = data.References, &inclusion
	e.Inclusion.Leaf = data.Leaf
	return e, nil
}

// readProof reads a transparency log proof of at most some bytes. The leaf of the inclusion is in the extra data.
func readProof(text []byte, most int) (extra []byte, i Inclusion, err error) {
	if len(text) > most {
		return nil, i, say.Errorf("proof: must be at most %d bytes", most)
	}
	head, note, _ := strings.Cut(string(text), "\n\n")
	lines := strings.Split(head, "\n")
	if len(lines) < 3 || lines[0] != proofHeader || !strings.HasPrefix(lines[1], proofExtra) ||
		!strings.HasPrefix(lines[2], proofIndex) {
		return nil, i, say.Errorf("proof: must be lines %s, extra, index, hashes, a blank line and a checkpoint",
			proofHeader)
	}
	number := strings.TrimPrefix(lines[2], proofIndex)
	index, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !proofIndexPattern.MatchString(number) || index > strictjson.MaxInteger {
		return nil, i, say.Errorf("proof: its index must be digits without a leading zero, within 2^53-1")
	}
	c, _, _, err := readCheckpoint(note)
	if err != nil {
		return nil, i, say.Errorf("proof: %w: %w", ErrMalformedCheckpoint, err)
	}
	for _, line := range lines[3:] {
		if _, ok := decodeHash(line); !ok {
			return nil, i, say.Errorf("proof: each hash must be 32 bytes in the one spelling of base64")
		}
	}
	extra, ok := decodeOneSpelling(base64.StdEncoding, strings.TrimPrefix(lines[1], proofExtra))
	if !ok {
		return nil, i, say.Errorf("proof: its extra data is not in the one spelling of base64")
	}
	return extra, Inclusion{
		LeafIndex: index, TreeSize: c.Size, Hashes: append([]string{}, lines[3:]...), Checkpoint: note,
	}, nil
}

// readProofData reads a closed object of contract integrity-tlog-proof-v1 in its RFC 8785 form, so that no byte of it
// can change without a meaning.
func readProofData(text []byte) (proofData, error) {
	v, err := strictjson.Parse(text, maxDepth)
	if err != nil {
		return proofData{}, err
	}
	o := strictjson.Decode(v)
	constant(o, "contract", ProofContract)
	p := proofData{
		Contract: ProofContract, Leaf: o.String("leaf", strictjson.Required), Signed: readSigned(o),
		References: readReferences(o),
	}
	if err := refusal(o.Problems()); err != nil {
		return proofData{}, err
	}
	if !bytes.Equal(p.appendCanonical(nil), text) {
		return proofData{}, say.Errorf("the text is not in the canonical form of RFC 8785")
	}
	return p, nil
}
