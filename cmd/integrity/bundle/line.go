package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
)

var emptyHistory = strings.Repeat("0", 64)

// Event is an event as it is shown outside. Data is the stored canonical text itself, byte for byte.
type Event struct {
	Sequence   int64            `json:"sequence"`
	ID         domain.EventID   `json:"id"`
	V          int16            `json:"v"`
	Type       domain.EventType `json:"type"`
	Company    *string          `json:"company"`
	Subject    string           `json:"subject"`
	OccurredAt string           `json:"occurredAt"`
	Actor      string           `json:"actor"`
	RequestID  string           `json:"requestId"`
	Data       json.RawMessage  `json:"data"`
	Nonce      string           `json:"nonce"` // base64url of 16 bytes
	Hash       string           `json:"hash"`  // hexadecimal
}

// View is an event as it is shown.
func View(e *domain.Event) Event {
	v := Event{
		Sequence: e.Sequence, ID: e.ID, V: e.V, Type: e.Type, Subject: e.Subject, OccurredAt: evidence.FormatTime(e.OccurredAt),
		Actor: e.Actor, RequestID: e.RequestID, Data: e.Data, Nonce: base64.RawURLEncoding.EncodeToString(e.Nonce[:]), Hash: hex.EncodeToString(e.Hash[:]),
	}
	if !e.Company.IsZero() {
		company := e.Company.String()
		v.Company = &company
	}
	return v
}

// Line is an event in a bundle.
type Line struct {
	Event
	Texts []LineText `json:"texts"`
}

// LineText is a text that the event names: its salt in base64url, and what it says, null where it was erased.
type LineText struct {
	ID   domain.TextID `json:"id"`
	Salt string        `json:"salt"`
	Body *string       `json:"body"`
}

// appendLine writes an event, with the line feed.
func appendLine(dst *bytes.Buffer, e *audit.Event, texts bool) error {
	l := Line{Event: View(&e.Event), Texts: []LineText{}}
	if texts {
		for _, t := range e.Stored {
			l.Texts = append(l.Texts, LineText{ID: t.ID, Salt: base64.RawURLEncoding.EncodeToString(t.Salt), Body: t.Body})
		}
	}
	encoder := json.NewEncoder(dst)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		return fmt.Errorf("event of sequence %d: %w", e.Sequence, err)
	}
	return nil
}

// readLine reads an event, with its line feed. One event has one spelling: a line in which
// another reader could see something else is refused. Of one that cannot be read whole, which has the sequence of
// its place in the file, it says in Fault what is wrong.
func readLine(text []byte, organization domain.OrganizationID, sequence int64) audit.Event {
	e := audit.Event{Event: domain.Event{Organization: organization, Shard: organization.Shard()}}
	var l Line
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&l)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("more than one value")
	}
	if err == nil {
		err = l.event(&e)
	}
	if err == nil {
		var again bytes.Buffer
		if err = appendLine(&again, &e, true); err == nil && !bytes.Equal(again.Bytes(), text) {
			err = errors.New("it is not as integrity export writes it")
		}
	}
	if err != nil {
		e.Sequence, e.Fault = sequence, "a line that cannot be read: "+err.Error()
	}
	return e
}

func (l *Line) event(e *audit.Event) error {
	e.Sequence, e.ID, e.V, e.Type, e.Subject, e.Actor, e.RequestID, e.Data = l.Sequence, l.ID, l.V, l.Type, l.Subject, l.Actor, l.RequestID, l.Data
	if l.Company != nil {
		company, err := domain.ParseID[domain.CompanyID](*l.Company)
		if err != nil {
			return fmt.Errorf("company: %w", err)
		}
		e.Company = company
	}
	at, err := time.Parse(time.RFC3339Nano, l.OccurredAt)
	if err != nil || evidence.FormatTime(at) != l.OccurredAt {
		return errors.New("occurredAt must be a time in UTC with at most microseconds")
	}
	e.OccurredAt = at.UTC()
	nonce, err := base64.RawURLEncoding.Strict().DecodeString(l.Nonce)
	if err != nil || copy(e.Nonce[:], nonce) != len(nonce) || len(nonce) != len(e.Nonce) {
		return errors.New("nonce must be base64url of 16 bytes")
	}
	hash, err := hex.DecodeString(l.Hash)
	if err != nil || copy(e.Hash[:], hash) != len(hash) || len(hash) != len(e.Hash) {
		return errors.New("hash must be 64 hexadecimal characters")
	}
	for _, t := range l.Texts {
		salt, err := base64.RawURLEncoding.Strict().DecodeString(t.Salt)
		if err != nil {
			return errors.New("texts must have a salt in base64url")
		}
		e.Stored = append(e.Stored, audit.Text{ID: t.ID, Salt: salt, Body: t.Body})
	}
	return nil
}
