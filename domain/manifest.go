package domain

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Limits of a file manifest (specification, File manifest; contract section 7).
const (
	ManifestKind              = "service-file-manifest"
	ManifestVersion           = 1
	MaxManifestFiles          = 100
	MaxManifestPath           = 500       // characters
	MaxManifestFileSize int64 = 52428800  // bytes
	MaxManifestTotal    int64 = 524288000 // bytes of all files
	MaxManifestBytes          = 262144    // bytes of the manifest's JSON text

	maxManifestDepth = 8 // of the JSON text; a manifest has 3
)

// Codes of problems that only a manifest has.
const (
	CodeDuplicatePath = "DUPLICATE_PATH" // two files have the same path
	CodeSimilarPath   = "SIMILAR_PATH"   // a warning: two paths differ only in case
)

// ManifestFile is one file of a manifest.
type ManifestFile struct {
	Path   string `json:"path"` // relative, "/" between segments, NFC
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Manifest is a list of files by path, size and hash (specification, File manifest, version 1).
type Manifest struct {
	Files []ManifestFile
}

// ReadManifest reads the JSON text of a manifest. The error is MALFORMED_JSON, PAYLOAD_TOO_LARGE, INVALID_DATA with the
// violations by their JSON pointers, or strictjson.ErrStopped. Warnings are about paths that differ only in case, which
// some file systems do not distinguish.
func ReadManifest(meter *strictjson.Meter, text []byte) (m Manifest, warnings []FieldError, err error) {
	if len(text) > MaxManifestBytes {
		return Manifest{}, nil, Refuse(PayloadTooLarge, "The manifest must be at most %d bytes long.", MaxManifestBytes)
	}
	value, err := meter.Parse(text, maxManifestDepth)
	if err != nil {
		var syntax *strictjson.SyntaxError // or ErrStopped
		if errors.As(err, &syntax) {
			return Manifest{}, nil, Refuse(MalformedJSON, "The manifest is not one JSON value: %s.", syntax)
		}
		return Manifest{}, nil, err
	}
	o := meter.Decode(value)
	m, warnings = decodeManifest(o)
	if problems := o.Problems(); len(problems) > 0 {
		return Manifest{}, nil, Invalid(problems)
	}
	return m, warnings, nil
}

// ReadManifestMember reads a manifest that is a member of another object, with the same limit of its text. The manifest
// is valid only if that object has no problems.
func ReadManifestMember(o *strictjson.Object, name string) Manifest {
	if length := o.Value(name, strictjson.Required).Length(); length > MaxManifestBytes {
		o.Problem(
			name, strictjson.CodeLength, "must be at most %d bytes of JSON, not %d", MaxManifestBytes, length,
		)
		return Manifest{}
	}
	m, _ := decodeManifest(o.Object(name, strictjson.Optional))
	return m
}

var manifestHash = regexp.MustCompile(`\A[a-f0-9]{64}\z`)

// decodeManifest adds errors to the object's problems.
func decodeManifest(o *strictjson.Object) (m Manifest, warnings []FieldError) {
	o.Match(
		"kind", strictjson.Required, regexp.MustCompile(`\A`+ManifestKind+`\z`).MatchString,
		"must be %q", ManifestKind,
	)
	o.Int("version", ManifestVersion, ManifestVersion, strictjson.Required)
	o.Match("algorithm", strictjson.Required, regexp.MustCompile(`\ASHA-256\z`).MatchString, `must be "SHA-256"`)
	files := o.Objects("files", strictjson.Required, 1, MaxManifestFiles)
	var total int64
	seen, folded := map[string]int{}, map[string]int{}
	fold := cases.Fold()
	for i, f := range files {
		file := ManifestFile{
			Path: f.Sized("path", strictjson.Required, 1, MaxManifestPath),
			Size: f.Int("size", 0, MaxManifestFileSize, strictjson.Required),
			SHA256: f.Match(
				"sha256", strictjson.Required, manifestHash.MatchString, "must be 64 lower-case hexadecimal characters",
			),
		}
		m.Files = append(m.Files, file)
		total += file.Size
		if !f.OK("path") {
			continue
		}
		if wrong := pathProblem(file.Path); wrong != "" {
			f.Problem("path", strictjson.CodeFormat, wrong)
			continue
		}
		if first, twice := seen[file.Path]; twice {
			f.Problem("path", CodeDuplicatePath, "must differ from the path of /files/%d", first)
			continue
		}
		seen[file.Path] = i
		key := norm.NFC.String(fold.String(file.Path))
		if first, similar := folded[key]; similar {
			warnings = append(warnings, strictjson.NewProblem(
				fmt.Sprintf("/files/%d/path", i), CodeSimilarPath, "it differs from the path of /files/%d in case only", first,
			))
			continue
		}
		folded[key] = i
	}
	if total > MaxManifestTotal {
		o.Problem("files", strictjson.CodeRange, "must sum to at most %d bytes, not %d", MaxManifestTotal, total)
	}
	return m, warnings
}

// pathProblem returns the reason why a path is refused, or "" if the path is safe on any file system.
func pathProblem(path string) string {
	switch {
	case strings.HasPrefix(path, "/"):
		return "must be a relative path, not one that begins with /"
	case strings.Contains(path, `\`):
		return `must have "/" between segments, and no \`
	case len(path) > 1 && path[1] == ':' && (path[0]|0x20) >= 'a' && (path[0]|0x20) <= 'z':
		return "must be a path without a drive letter"
	case strings.ContainsFunc(path, unicode.IsControl):
		return "must be a path without control characters"
	case !norm.NFC.IsNormalString(path):
		return "must be a path in Unicode Normalization Form C"
	}
	for segment := range strings.SplitSeq(path, "/") {
		switch segment {
		case "":
			return "must have no empty segment"
		case ".", "..":
			return `must have no segment "." or ".."`
		}
	}
	return ""
}

// CheckManifestFile returns the reason why a file cannot be in a manifest, or nil. It does not check the hash.
func CheckManifestFile(path string, size int64) error {
	switch wrong := pathProblem(path); {
	case !utf8.ValidString(path):
		return say.Errorf("its name is not UTF-8")
	case utf8.RuneCountInString(path) > MaxManifestPath:
		return say.Errorf("its path is longer than %d characters", MaxManifestPath)
	case path == "" || wrong != "":
		return say.New(wrong)
	case size < 0 || size > MaxManifestFileSize:
		return say.Errorf("it is larger than %d bytes", MaxManifestFileSize)
	}
	return nil
}

// Canonical returns the RFC 8785 form of the manifest, with its files in order. This form is hashed, signed and
// registered.
func (m Manifest) Canonical() []byte {
	b := []byte(`{"algorithm":"SHA-256","files":[`)
	for i, f := range m.Files {
		if i > 0 {
			b = append(b, ',')
		}
		b = strictjson.AppendString(append(b, `{"path":`...), f.Path)
		b = strictjson.AppendString(append(b, `,"sha256":`...), f.SHA256)
		b = strconv.AppendInt(append(b, `,"size":`...), f.Size, 10)
		b = append(b, '}')
	}
	b = append(b, `],"kind":"`+ManifestKind+`","version":`...)
	return append(strconv.AppendInt(b, ManifestVersion, 10), '}')
}

// SHA256 returns the hash of Canonical.
func (m Manifest) SHA256() [sha256.Size]byte { return sha256.Sum256(m.Canonical()) }

// Total returns the sum of all file sizes.
func (m Manifest) Total() int64 {
	var total int64
	for _, f := range m.Files {
		total += f.Size
	}
	return total
}
