// Package bundle reads and writes an organization's exported history, which can be audited without the service. A
// bundle is a directory of files, or one zip file of them.
//
//	manifest.json       the files of the bundle by name, length and SHA-256 (Manifest)
//	events/<first>.ndjson  events in the order of their sequences, one JSON object per line (Line)
//	trusted-keys.json   the service's trusted-keys file at the time of the export
//	checkpoint          the newest checkpoint of the transparency log at that time, a signed note; optional
//
// Updating a bundle only adds segments of events and keeps every byte of the earlier history. The manifest is replaced
// whole, after the files that it names are on disk. So after a crash the bundle reports itself as incomplete, and the
// next export continues it.
//
// Only records, certificates and the checkpoint are signed, as they were when the service signed them. To detect a
// rewrite of anything else, compare the digest of the history with a copy kept elsewhere.
package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// Contract is the name of the bundle format.
const Contract = "integrity-bundle-v1"

// Names of files in a bundle.
const (
	ManifestFile    = "manifest.json"
	TrustedKeysFile = "trusted-keys.json"
	CheckpointFile  = "checkpoint"
	eventsDir       = "events"
)

// Manifest describes the content of a bundle.
type Manifest struct {
	Contract     string                `json:"contract"`
	Organization domain.OrganizationID `json:"organization"`
	Issuer       string                `json:"issuer"` // the ledger's issuer, as in every signed payload
	ExportedAt   string                `json:"exportedAt"`
	Complete     bool                  `json:"complete"` // false while an export is in progress
	Texts        bool                  `json:"texts"`    // whether it contains erasable texts
	Events       int64                 `json:"events"`   // the last sequence
	// HistorySHA256 is audit.Head after the last event, lower-case hexadecimal.
	HistorySHA256 string   `json:"historySha256"`
	TrustedKeys   File     `json:"trustedKeys"`
	Checkpoint    *File    `json:"checkpoint"` // null if the ledger had none
	Segments      segments `json:"segments"`
}

type segments []Segment

// UnmarshalJSON implements json.Unmarshaler.
func (l *segments) UnmarshalJSON(raw []byte) (err error) {
	*l, err = readEach(raw, func(s Segment) bool { return s.File.File != "" && s.SHA256 != "" && s.HistorySHA256 != "" })
	return err
}

// File describes a file of a bundle. Its name is relative and uses slashes.
type File struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Segment is a file of events with consecutive sequences.
type Segment struct {
	File
	First         int64  `json:"first"`
	Last          int64  `json:"last"`
	HistorySHA256 string `json:"historySha256"` // audit.Head after its last event
}

var (
	sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ErrIncomplete means that an export did not finish.
var ErrIncomplete = say.New("the export into it was broken off: run the same integrity export again")

// readManifest reads a manifest strictly. The error is fs.ErrNotExist if the file is missing.
func (f files) readManifest() (m Manifest, err error) {
	text, err := f.readRegular(ManifestFile)
	if err != nil {
		return m, err
	}
	if err = json.Unmarshal(text, &m); err == nil {
		if again, _ := m.text(); bytes.Equal(again, text) {
			err = m.check()
		} else {
			err = say.New("it is not as integrity export writes it")
		}
	}
	if err != nil {
		return m, say.Errorf("%s: %w", filepath.Join(f.path, ManifestFile), err)
	}
	return m, nil
}

// text returns the canonical text of the manifest, as it is written.
func (m *Manifest) text() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(m); err != nil {
		return nil, say.Errorf("bundle: %w", err)
	}
	return b.Bytes(), nil
}

// check refuses an inconsistent manifest, and names that lead out of the bundle.
func (m *Manifest) check() error {
	switch {
	case m.Contract != Contract:
		return say.Errorf("contract must be %s", Contract)
	case m.Organization.IsZero():
		return say.New("organization must be an id")
	case m.TrustedKeys.File != TrustedKeysFile || !sha256Pattern.MatchString(m.TrustedKeys.SHA256):
		return say.Errorf("trustedKeys must be the file %s with its SHA-256", TrustedKeysFile)
	}
	if c := m.Checkpoint; c != nil && (c.File != CheckpointFile || !sha256Pattern.MatchString(c.SHA256)) {
		return say.Errorf("checkpoint must be null, or the file %s with its SHA-256", CheckpointFile)
	}
	if _, err := evidence.NormalizeTimestamp(m.ExportedAt); err != nil {
		return say.Errorf("exportedAt: %w", err)
	}
	last, head := int64(0), emptyHistory
	for i, s := range m.Segments {
		if !sha256Pattern.MatchString(s.SHA256) || !sha256Pattern.MatchString(s.HistorySHA256) || s.Bytes < 1 {
			return say.Errorf("segments[%d] must be a file of events with its length and SHA-256", i)
		}
		if s.First != last+1 || s.Last < s.First {
			return say.Errorf("segments[%d] must hold events from sequence %d", i, last+1)
		}
		// Otherwise several segments could name the same file, which would be read for each of them.
		if name := segmentFile(s.First); s.File.File != name {
			return say.Errorf("segments[%d] must be the file %s", i, name)
		}
		if s.Bytes/minLine < s.Last-s.First+1 {
			return say.Errorf("segments[%d] declares more events than %d bytes can hold", i, s.Bytes)
		}
		last, head = s.Last, s.HistorySHA256
	}
	if m.Events != last || m.HistorySHA256 != head {
		return say.Errorf("events and historySha256 must be %d and %s, as in the last segment", last, head)
	}
	return nil
}

// segmentFile returns the name of the file whose first event has a sequence.
func segmentFile(first int64) string { return fmt.Sprintf("%s/%012d.ndjson", eventsDir, first) }

// minLine is shorter than any event's line.
const minLine = 256

var emptyHistory = strings.Repeat("0", 64)

// Event is the external form of an event. Data is the stored canonical text, byte for byte.
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

// View returns the external form of an event.
func View(e *domain.Event) Event {
	v := Event{
		Sequence: e.Sequence, ID: e.ID, V: e.V, Type: e.Type, Subject: e.Subject,
		OccurredAt: evidence.FormatTime(e.OccurredAt),
		Actor:      e.Actor.String(), RequestID: e.RequestID, Data: e.Data,
		Nonce: base64.RawURLEncoding.EncodeToString(e.Nonce[:]), Hash: hex.EncodeToString(e.Hash[:]),
	}
	if !e.Company.IsZero() {
		company := e.Company.String()
		v.Company = &company
	}
	return v
}

// Line is an event's line in a bundle.
type Line struct {
	Event
	Texts lineTexts `json:"texts"`
}

// LineText is a text that the event names, with its salt in base64url. Body is null if the text was erased.
type LineText struct {
	ID   domain.TextID `json:"id"`
	Salt string        `json:"salt"`
	Body *string       `json:"body"`
}

type lineTexts []LineText

// UnmarshalJSON implements json.Unmarshaler.
func (l *lineTexts) UnmarshalJSON(raw []byte) (err error) {
	*l, err = readEach(raw, func(t LineText) bool { return !t.ID.IsZero() })
	return err
}

// readEach reads an array element by element, up to the first incomplete one. A file could hold millions of tiny
// invalid elements, which would take far more memory than the file.
func readEach[E any](raw []byte, whole func(E) bool) (list []E, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if open, err := decoder.Token(); err != nil || open != json.Delim('[') {
		return nil, say.New("must be an array")
	}
	list = []E{}
	for decoder.More() {
		var e E
		if err := decoder.Decode(&e); err != nil {
			return nil, say.Errorf("element %d: %w", len(list), err)
		}
		if !whole(e) {
			return nil, say.Errorf("element %d is not whole", len(list))
		}
		list = append(list, e)
	}
	return list, nil
}

// line returns an event's line, including the line feed.
func line(e *audit.Event, texts bool) ([]byte, error) {
	l := Line{Event: View(&e.Event), Texts: lineTexts{}}
	if texts {
		for _, t := range e.Stored {
			l.Texts = append(l.Texts, LineText{ID: t.ID, Salt: base64.RawURLEncoding.EncodeToString(t.Salt), Body: t.Body})
		}
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		return nil, say.Errorf("event of sequence %d: %w", e.Sequence, err)
	}
	return b.Bytes(), nil
}

// readLine reads an event's line, including the line feed. It refuses any other spelling of the event, because another
// reader could read it differently. If the line is refused, Fault gives the reason and Sequence is derived from its
// place in the file.
func readLine(text []byte, organization domain.OrganizationID, sequence int64) audit.Event {
	e := audit.Event{Event: domain.Event{Organization: organization, Shard: organization.Shard()}}
	var l Line
	err := checkLine(text)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&l)
		if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
			err = say.New("more than one value")
		}
	}
	if err == nil {
		err = l.event(&e)
	}
	if err == nil {
		var again []byte
		if again, err = line(&e, true); err == nil && !bytes.Equal(again, text) {
			err = say.New("it is not as integrity export writes it")
		}
	}
	if err != nil {
		e.Sequence, e.Fault = sequence, say.Sentencef("a line that cannot be read: %v", err)
	}
	return e
}

func (l *Line) event(e *audit.Event) error {
	e.Sequence, e.ID, e.V, e.Type, e.Subject, e.Actor, e.RequestID, e.Data = l.Sequence, l.ID, l.V, l.Type, l.Subject,
		domain.ParseActor(l.Actor), l.RequestID, l.Data
	if l.Company != nil {
		company, err := domain.ParseID[domain.CompanyID](*l.Company)
		if err != nil {
			return say.Errorf("company: %w", err)
		}
		e.Company = company
	}
	at, err := time.Parse(time.RFC3339Nano, l.OccurredAt)
	if err != nil || evidence.FormatTime(at) != l.OccurredAt {
		return say.New("occurredAt must be a time in UTC with at most microseconds")
	}
	e.OccurredAt = at.UTC()
	nonce, err := base64.RawURLEncoding.Strict().DecodeString(l.Nonce)
	if err != nil || copy(e.Nonce[:], nonce) != len(nonce) || len(nonce) != len(e.Nonce) {
		return say.New("nonce must be base64url of 16 bytes")
	}
	hash, err := hex.DecodeString(l.Hash)
	if err != nil || copy(e.Hash[:], hash) != len(hash) || len(hash) != len(e.Hash) {
		return say.New("hash must be 64 hexadecimal characters")
	}
	for _, t := range l.Texts {
		salt, err := base64.RawURLEncoding.Strict().DecodeString(t.Salt)
		if err != nil {
			return say.New("texts must have a salt in base64url")
		}
		e.Stored = append(e.Stored, audit.Text{ID: t.ID, Salt: salt, Body: t.Body})
	}
	return nil
}
