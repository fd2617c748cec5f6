package domain

import "crypto/sha256"

// Limits of a file manifest (specification, File manifest; contract section 7).
const (
	ManifestKind        = "service-file-manifest"
	MaxManifestFiles    = 100
	MaxManifestPath     = 500       // characters
	MaxManifestFileSize = 52428800  // bytes
	MaxManifestTotal    = 524288000 // bytes of all files
	MaxManifestBytes    = 262144    // bytes of the manifest's JSON text
)

// ManifestFile is one file of a manifest.
type ManifestFile struct {
	Path   string `json:"path"` // relative, "/" between segments, NFC
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Manifest is a list of files by path, size and hash (file manifest, version 1).
type Manifest struct {
	Files []ManifestFile // as given; Canonical sorts nothing
}

// ReadManifest reads the JSON text of a manifest. The error is MALFORMED_JSON, PAYLOAD_TOO_LARGE, or
// INVALID_DATA with every violation by its JSON pointer. Warnings are violations that harm nobody yet: paths that differ
// in case only, which one of two file systems would take for the same.
func ReadManifest(text []byte) (Manifest, []FieldError, error) { return Manifest{}, nil, nil }

// Canonical is the RFC 8785 form of the manifest: what is hashed, signed and registered.
func (m Manifest) Canonical() []byte { return nil }

// SHA256 is the hash of Canonical.
func (m Manifest) SHA256() [sha256.Size]byte { return sha256.Sum256(m.Canonical()) }

// Total is the declared bytes of all files.
func (m Manifest) Total() int64 { return 0 }
