package domain

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/big"
	"time"

	typeid "go.jetify.com/typeid/base32"
)

// Drawn is what must be random in one event. It is drawn before the queue, so that Decide is repeatable.
type Drawn struct {
	ID    EventID
	Nonce [16]byte
}

// draws draws the random parts of one command. After the first error everything drawn is worthless and err is set.
type draws struct {
	now    time.Time
	random io.Reader
	err    error
}

func (d *draws) read(b []byte) {
	if _, err := io.ReadFull(d.random, b); err != nil && d.err == nil {
		d.err = fmt.Errorf("random bytes for a command: %w", err)
	}
}

// keep returns what was drawn and keeps its error.
func keep[T any](d *draws, drawn T, err error) T {
	if d.err == nil {
		d.err = err
	}
	return drawn
}

func drawID[I ID[K], K kind](d *draws) I {
	id, err := newUUIDv7(d.now, d.random)
	return keep(d, I(id), err)
}

// drawShardID draws the id of something that is looked up by its id alone: it carries the organization's shard.
func drawShardID[I ID[K], K kind](d *draws, o OrganizationID) I {
	id, err := newShardID[I, K](d.now, d.random, o.Shard())
	return keep(d, id, err)
}

func (d *draws) publicID(secret LedgerSecret, o OrganizationID) PublicID {
	id, err := NewPublicID(d.random, secret, o.Shard())
	return keep(d, id, err)
}

func (d *draws) events(n int) []Drawn {
	drawn := make([]Drawn, n)
	for i := range drawn {
		drawn[i].ID = drawID[EventID](d)
		d.read(drawn[i].Nonce[:])
	}
	return drawn
}

func (d *draws) text(body string) Text {
	text, err := NewText(d.now, d.random, body)
	return keep(d, text, err)
}

// optionalText draws nothing for an empty body.
func (d *draws) optionalText(body string) *Text {
	if body == "" {
		return nil
	}
	return new(d.text(body))
}

// secret draws 256 bits and returns the text that is shown once, with the SHA-256 of the secret: all that is stored.
func (d *draws) secret(prefix string, id [16]byte) (text string, secretSHA256 [32]byte) {
	var raw [32]byte
	d.read(raw[:])
	secret := encodeBase62(new(big.Int).SetBytes(raw[:]), secretLength)
	text = prefix + typeid.Encode(id) + "_" + secret
	return text + checksum(text), sha256.Sum256([]byte(secret))
}
