package audit

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"integrityledger/domain"
)

// What is set aside in a part: events of documents and artifacts, and claims of ids,
// in the order of the history. Each begins with its kind.
const asideEvent = 0

// claimKind is what an id means one of.
type claimKind byte

const (
	claimEvent    claimKind = iota + 1 // an event's id: one event
	claimRecord                        // a record's id: one registration
	claimPublicID                      // a publicId: one version or certificate
	claimDocument                      // company, source and reference: one document
	claimText                          // a text's id: one salted hash
)

func (k claimKind) String() string {
	return [...]string{"", "event id", "record id", "publicId", "document reference", "text id"}[k]
}

// claimed says that a key means something; equal keys must mean the same.
type claimed struct {
	kind         claimKind
	key, means   [16]byte
	organization domain.OrganizationID
	sequence     int64
	id           domain.EventID
}

const claimLength = 1 + 16 + 16 + 16 + 8 + 16

func (c claimed) bytes() []byte {
	sequence := binary.BigEndian.AppendUint64(nil, uint64(c.sequence))
	return slices.Concat([]byte{byte(c.kind)}, c.key[:], c.means[:], c.organization[:], sequence, c.id[:])
}

func readClaim(r io.Reader, kind byte) (c claimed, err error) {
	var raw [claimLength - 1]byte
	if _, err := io.ReadFull(r, raw[:]); err != nil {
		return c, err
	}
	c.kind = claimKind(kind)
	copy(c.key[:], raw[:])
	copy(c.means[:], raw[16:])
	copy(c.organization[:], raw[32:])
	c.sequence = int64(binary.BigEndian.Uint64(raw[48:]))
	copy(c.id[:], raw[56:])
	return c, nil
}

// aside is what of an event the replay of its part needs. certificate is what a certificate was signed for.
func aside(e *Event, certificate string) []byte {
	dst := slices.Concat([]byte{asideEvent}, e.Organization[:], e.ID[:], e.Company[:])
	for _, n := range []int64{e.Sequence, e.Position, int64(e.Shard), int64(e.V), e.OccurredAt.UnixMicro()} {
		dst = binary.AppendVarint(dst, n)
	}
	for _, text := range []string{string(e.Type), e.Subject, certificate} {
		dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
	}
	return append(binary.AppendUvarint(dst, uint64(len(e.Data))), e.Data...)
}

func readAside(r *bufio.Reader) (e Event, certificate string, err error) {
	for _, id := range [][]byte{e.Organization[:], e.ID[:], e.Company[:]} {
		if _, err := io.ReadFull(r, id); err != nil {
			return e, "", err
		}
	}
	var n [5]int64
	for i := range n {
		if n[i], err = binary.ReadVarint(r); err != nil {
			return e, "", err
		}
	}
	e.Sequence, e.Position, e.Shard, e.V = n[0], n[1], domain.Shard(n[2]), int16(n[3])
	e.OccurredAt = time.UnixMicro(n[4]).UTC()
	var texts [4][]byte
	for i := range texts {
		length, err := binary.ReadUvarint(r)
		if err != nil {
			return e, "", err
		}
		texts[i] = make([]byte, length)
		if _, err := io.ReadFull(r, texts[i]); err != nil {
			return e, "", err
		}
	}
	e.Type, e.Subject, e.Data = domain.EventType(texts[0]), string(texts[1]), texts[3]
	e.Body, err = domain.DecodeBody(e.Type, e.V, e.Data)
	return e, string(texts[2]), err
}

// readPart calls event or claim for everything in a part.
func readPart(part io.Reader, event func(*Event, string), claim func(claimed)) error {
	r := bufio.NewReaderSize(part, 1<<14)
	for {
		kind, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && kind == asideEvent {
			var e Event
			var certificate string
			if e, certificate, err = readAside(r); err == nil {
				event(&e, certificate)
			}
		} else if err == nil {
			var c claimed
			if c, err = readClaim(r, kind); err == nil {
				claim(c)
			}
		}
		if err != nil {
			return fmt.Errorf("read back what was set aside: %w", err)
		}
	}
}
