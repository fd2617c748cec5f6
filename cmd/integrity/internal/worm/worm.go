// Package worm exports the signed state of the transparency log to storage that the operator cannot rewrite (write
// once, read many), and reads the exports back. The storage is an S3 bucket with object lock.
//
// Each export is a folder of objects. Its name is the time in UTC and the size of the log, so that names sort by time:
//
//	2026-11-29T103000Z-000000001234/checkpoint         the newest checkpoint with all cosignatures
//	2026-11-29T103000Z-000000001234/trusted-keys.json  the service's trusted-keys file
//	2026-11-29T103000Z-000000001234/stamps/NAME.tst     the newest token of each authority (RFC 3161, DER)
//	2026-11-29T103000Z-000000001234/stamps/NAME.checkpoint  the text that the token stamps
//	2026-11-29T103000Z-000000001234/manifest.json      names, lengths and SHA-256 of these (Manifest)
//
// The manifest is written last, so an export without one was broken off. It names the manifest before it with its
// SHA-256. So an export that is removed once its lock has ended is missed, unless all earlier ones are removed too.
// No object is ever replaced.
package worm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/gowebpki/jcs"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/transparency"
)

// Contract is the name of the manifest's format.
const Contract = "integrity-worm-v1"

// Manifest describes an export. Its text is in RFC 8785 form.
type Manifest struct {
	Contract    string      `json:"contract"`
	Issuer      string      `json:"issuer"` // the ledger's issuer, as in every signed payload
	ExportedAt  string      `json:"exportedAt"`
	TreeSize    int64       `json:"treeSize"`
	RootHash    string      `json:"rootHash"` // base64, as in the checkpoint
	Checkpoint  bundle.File `json:"checkpoint"`
	TrustedKeys bundle.File `json:"trustedKeys"`
	Stamps      []Stamp     `json:"stamps"`   // by authority
	Previous    *Previous   `json:"previous"` // null in the first export
}

// Stamp is the newest token of an authority at the time of the export.
type Stamp struct {
	Authority  string      `json:"authority"`
	GenTime    string      `json:"genTime"`
	TreeSize   int64       `json:"treeSize"` // of the checkpoint that it stamps
	Checkpoint bundle.File `json:"checkpoint"`
	Token      bundle.File `json:"token"`
}

// Previous is the export before.
type Previous struct {
	Export string `json:"export"`
	SHA256 string `json:"sha256"` // of its manifest
}

const manifestFile = "manifest.json"

// Limits of the objects that are read.
const (
	maxManifest   = 64 << 10
	maxCheckpoint = 64 << 10
	maxKeys       = 1 << 20
	maxToken      = 16 << 10
	maxStamps     = 64
)

var (
	sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	namePattern   = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d{6}Z)-(\d{12,16})$`)
)

const (
	nameTime = "2006-01-02T150405Z"
	nameDay  = "2006-01-02"
)

// nameOf returns the name of an export.
func nameOf(at time.Time, size int64) string {
	return fmt.Sprintf("%s-%012d", at.UTC().Format(nameTime), size)
}

// parseName returns the time and size in the name of an export.
func parseName(name string) (at time.Time, size int64, ok bool) {
	found := namePattern.FindStringSubmatch(name)
	if found == nil {
		return at, 0, false
	}
	at, err := time.Parse(nameTime, found[1])
	size, sizeErr := strconv.ParseInt(found[2], 10, 64)
	return at, size, err == nil && sizeErr == nil && nameOf(at, size) == name
}

func stampFiles(authority string) (checkpoint, token string) {
	return "stamps/" + authority + ".checkpoint", "stamps/" + authority + ".tst"
}

// text returns the canonical text of the manifest.
func (m *Manifest) text() ([]byte, error) {
	text, err := json.Marshal(m)
	if err == nil {
		text, err = jcs.Transform(text)
	}
	return text, err
}

// readManifest reads the manifest of an export strictly: any other spelling is refused.
func readManifest(text []byte, export string) (m Manifest, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return m, say.Errorf("it is not whole, or not a manifest: %w", err)
	}
	if again, err := m.text(); err != nil || !bytes.Equal(again, text) {
		return m, say.New("it is not as integrity export writes it")
	}
	return m, m.check(export)
}

// check refuses names other than those that an export writes, and values that disagree with the export's name.
func (m *Manifest) check(export string) error {
	at, err := evidence.NormalizeTimestamp(m.ExportedAt)
	if err != nil {
		return say.Errorf("exportedAt: %w", err)
	}
	exported, _ := time.Parse(time.RFC3339Nano, at)
	if m.Contract != Contract {
		return say.Errorf("contract must be %s", Contract)
	}
	if nameOf(exported, m.TreeSize) != export {
		return say.New("exportedAt and treeSize must be as in the name of the export")
	}
	files := map[string]bundle.File{bundle.CheckpointFile: m.Checkpoint, bundle.TrustedKeysFile: m.TrustedKeys}
	if m.Stamps == nil || len(m.Stamps) > maxStamps {
		return say.Errorf("stamps must be a list of at most %d", maxStamps)
	}
	for _, s := range m.Stamps {
		if err := evidence.CheckAuthorityName(s.Authority); err != nil {
			return err
		}
		note, token := stampFiles(s.Authority)
		files[note], files[token] = s.Checkpoint, s.Token
	}
	if len(files) != 2+2*len(m.Stamps) {
		return say.New("stamps must name each authority once")
	}
	for name, file := range files {
		if file.File != name || !sha256Pattern.MatchString(file.SHA256) {
			return say.Errorf("%s must be named with its length and SHA-256", name)
		}
	}
	if p := m.Previous; p != nil {
		if _, _, ok := parseName(p.Export); !ok || !sha256Pattern.MatchString(p.SHA256) || p.Export == export {
			return say.New("previous must be null, or the name of an export with the SHA-256 of its manifest")
		}
	}
	return nil
}

// Content is what an export writes. The caller has checked it.
type Content struct {
	Issuer      string
	At          time.Time
	Checkpoint  string // as published, with its cosignatures
	Head        evidence.Checkpoint
	TrustedKeys []byte
	Stamps      []transparency.Stamp // by authority
	Previous    *Export
}

// Write writes an export. An error may leave objects without a manifest, which audits report as broken off.
func Write(ctx context.Context, b *blobs.Locked, c Content) (name string, m Manifest, err error) {
	name = nameOf(c.At, c.Head.Size)
	m = Manifest{
		Contract: Contract, Issuer: c.Issuer, ExportedAt: evidence.FormatTime(c.At.UTC().Truncate(time.Second)),
		TreeSize: c.Head.Size, RootHash: base64.StdEncoding.EncodeToString(c.Head.Root[:]),
		Checkpoint:  bundle.Describe(bundle.CheckpointFile, []byte(c.Checkpoint)),
		TrustedKeys: bundle.Describe(bundle.TrustedKeysFile, c.TrustedKeys), Stamps: []Stamp{},
	}
	if c.Previous != nil {
		m.Previous = &Previous{c.Previous.Name, c.Previous.manifestSHA256}
	}
	until := b.Until(c.At)
	put := func(file string, text []byte) {
		if err == nil {
			err = b.Write(ctx, name+"/"+file, text, until)
		}
	}
	put(bundle.CheckpointFile, []byte(c.Checkpoint))
	put(bundle.TrustedKeysFile, c.TrustedKeys)
	for _, s := range c.Stamps {
		note, token := stampFiles(s.Authority)
		m.Stamps = append(m.Stamps, Stamp{
			s.Authority, evidence.FormatTime(s.GenTime), s.TreeSize, bundle.Describe(note, []byte(s.Checkpoint)),
			bundle.Describe(token, s.Token),
		})
		put(note, []byte(s.Checkpoint))
		put(token, s.Token)
	}
	text, textErr := m.text()
	if textErr == nil {
		textErr = m.check(name)
	}
	if err == nil {
		err = textErr
	}
	put(manifestFile, text)
	return name, m, err
}

func sha256Of(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
