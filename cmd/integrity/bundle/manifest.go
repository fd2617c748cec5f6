package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// Contract names the form of a bundle.
const Contract = "integrity-bundle-v1"

// Names of files in a bundle.
const (
	ManifestFile    = "manifest.json"
	TrustedKeysFile = "trusted-keys.json"
	CheckpointFile  = "checkpoint"
	eventsDir       = "events"
)

// Manifest says what a bundle holds.
type Manifest struct {
	Contract     string                `json:"contract"`
	Organization domain.OrganizationID `json:"organization"`
	Issuer       string                `json:"issuer"` // of the ledger, that stands in every signed payload
	ExportedAt   string                `json:"exportedAt"`
	Complete     bool                  `json:"complete"` // false while an export is under way
	Texts        bool                  `json:"texts"`    // whether erasable texts are in it
	Events       int64                 `json:"events"`   // the last sequence
	// HistorySHA256 is audit.Head after the last event, lower-case hexadecimal.
	HistorySHA256 string    `json:"historySha256"`
	TrustedKeys   File      `json:"trustedKeys"`
	Checkpoint    *File     `json:"checkpoint"` // null where the ledger had none
	Segments      []Segment `json:"segments"`
}

// File is a file of a bundle. Its name is relative, with slashes.
type File struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Segment is a file of events, of consecutive sequences.
type Segment struct {
	File
	First         int64  `json:"first"`
	Last          int64  `json:"last"`
	HistorySHA256 string `json:"historySha256"` // audit.Head after the last of them
}

var (
	sha256Pattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	segmentPattern = regexp.MustCompile(`^events/[0-9]{12,19}\.ndjson$`)
)

// ErrIncomplete is the answer where an export has not come to its end.
var ErrIncomplete = errors.New("the export into it was broken off: run the same integrity export again")

// readManifest reads a manifest strictly. A directory without one is fs.ErrNotExist.
func readManifest(dir string) (m Manifest, err error) {
	text, err := readRegular(dir, ManifestFile)
	if err != nil {
		return m, err
	}
	if err = json.Unmarshal(text, &m); err == nil {
		if again, _ := m.text(); bytes.Equal(again, text) {
			err = m.check()
		} else {
			err = errors.New("it is not as integrity export writes it")
		}
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, ManifestFile), err)
	}
	return m, nil
}

// text is the manifest as it is written: one content has one spelling.
func (m *Manifest) text() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(m); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	return b.Bytes(), nil
}

// check refuses a manifest that does not fit itself, and names that lead elsewhere.
func (m *Manifest) check() error {
	switch {
	case m.Contract != Contract:
		return fmt.Errorf("contract must be %s", Contract)
	case m.Organization.IsZero():
		return errors.New("organization must be an id")
	case m.TrustedKeys.File != TrustedKeysFile || !sha256Pattern.MatchString(m.TrustedKeys.SHA256):
		return fmt.Errorf("trustedKeys must be the file %s with its SHA-256", TrustedKeysFile)
	}
	if c := m.Checkpoint; c != nil && (c.File != CheckpointFile || !sha256Pattern.MatchString(c.SHA256)) {
		return fmt.Errorf("checkpoint must be null, or the file %s with its SHA-256", CheckpointFile)
	}
	if _, err := evidence.NormalizeTimestamp(m.ExportedAt); err != nil {
		return fmt.Errorf("exportedAt: %w", err)
	}
	last, head := int64(0), emptyHistory
	for i, s := range m.Segments {
		if !segmentPattern.MatchString(s.File.File) || !sha256Pattern.MatchString(s.SHA256) || !sha256Pattern.MatchString(s.HistorySHA256) || s.Bytes < 1 {
			return fmt.Errorf("segments[%d] must be a file of events with its length and SHA-256", i)
		}
		if s.First != last+1 || s.Last < s.First {
			return fmt.Errorf("segments[%d] must hold events from sequence %d", i, last+1)
		}
		last, head = s.Last, s.HistorySHA256
	}
	if m.Events != last || m.HistorySHA256 != head {
		return fmt.Errorf("events and historySha256 must be those of the last segment, %d and %s", last, head)
	}
	return nil
}
