package domain

import (
	"encoding/hex"
	"regexp"
	"strings"

	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
)

// MaxVersion is the highest version of a document (contract section 3).
const MaxVersion = 1<<31 - 1

// RFC 6838 section 4.2: restricted names of at most 127 characters.
var mimePattern = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}\z`)

// Sentences that say what a member must look like.
const (
	ReferenceRule = "must be 1 to 128 characters: a letter or digit, then letters, digits, '.', '_', ':' or '-'"
	SHA256Rule    = "must be the SHA-256 as 64 hexadecimal characters"
)

// ValidReference reports whether s may be a reference (specification, Limits): [A-Za-z0-9][A-Za-z0-9._:-]{0,127}.
func ValidReference(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != ':' && c != '-') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 128
}

// ValidMediaType reports whether s is type/subtype without parameters (RFC 6838).
func ValidMediaType(s string) bool { return len(s) <= 255 && mimePattern.MatchString(s) }

// ParseSHA256 reads 64 hexadecimal characters of either case.
func ParseSHA256(s string) (sum [32]byte, ok bool) {
	if len(s) != hex.EncodedLen(len(sum)) {
		return sum, false
	}
	_, err := hex.Decode(sum[:], []byte(s))
	return sum, err == nil
}

// ReadReference reads a required reference member.
func ReadReference(o *strictjson.Object, name string) string {
	return o.Match(name, strictjson.Required, ValidReference, ReferenceRule)
}

// ReadVersionReference reads the members that name a version.
func ReadVersionReference(o *strictjson.Object) VersionReference {
	return VersionReference{
		CompanyReference:  ReadReference(o, "companyReference"),
		Source:            ReadReference(o, "source"),
		DocumentReference: ReadReference(o, "documentReference"),
		Version:           int32(o.Int("version", 1, MaxVersion, strictjson.Required)),
	}
}

// ReadDeclaration reads and normalizes a declaration. What is wrong is in the
// object's problems; the declaration is good only without any.
func ReadDeclaration(o *strictjson.Object) Declaration {
	v := ReadVersionReference(o)
	d := Declaration{
		CompanyReference:  v.CompanyReference,
		Source:            v.Source,
		DocumentReference: v.DocumentReference,
		Version:           v.Version,
		SizeBytes:         o.Int("sizeBytes", 0, strictjson.MaxInteger, strictjson.Required),
	}
	if previous := o.NullableInt("previousVersion", 1, MaxVersion, strictjson.Optional); previous != nil {
		v := int32(*previous)
		d.PreviousVersion = &v
		if o.OK("version") && o.OK("previousVersion") && v >= d.Version {
			o.Problem("previousVersion", strictjson.CodeRange, "must be null or lower than version")
		}
	}
	o.Match("sha256", strictjson.Required, func(s string) (ok bool) {
		d.SHA256, ok = ParseSHA256(s)
		return ok
	}, SHA256Rule)
	const mimeRule = "must be type/subtype (RFC 6838) without parameters, at most 255 characters"
	d.MimeType = strings.ToLower(o.Match("mimeType", strictjson.Required, mimePattern.MatchString, mimeRule))
	generated := o.String("generatedAt", strictjson.Required)
	if o.OK("generatedAt") {
		normalized, err := evidence.NormalizeGeneratedAt(generated)
		if err != nil {
			o.Problem("generatedAt", strictjson.CodeFormat, err.Error())
		}
		d.GeneratedAt = normalized
	}
	if text := o.NullableString("reservationId", strictjson.Optional); text != nil && o.OK("reservationId") {
		id, ok := ParsePublicID(*text)
		if !ok {
			o.Problem("reservationId", strictjson.CodeFormat, "must be null or the publicId of a reservation")
		}
		d.ReservationID = &id
	}
	return d
}

// Declaration is what an origin system says about one version, already normalized (contract section 3).
type Declaration struct {
	CompanyReference  string
	Source            string
	DocumentReference string
	Version           int32
	PreviousVersion   *int32
	SHA256            [32]byte
	SizeBytes         int64
	MimeType          string
	GeneratedAt       string // normalized to UTC
	// ReservationID is the public id of the version's reservation, where the origin names one.
	ReservationID *PublicID
}

// VersionReference names a version as its origin does, within an organization.
type VersionReference struct {
	CompanyReference  string
	Source            string
	DocumentReference string
	Version           int32
}

// conflict compares a declaration with the accepted one of the same version.
func (d *Declaration) conflict(known *Version) error {
	var fields []FieldError
	differs := func(differs bool, pointer string) {
		if differs {
			fields = append(fields, FieldError{Pointer: pointer, Code: "DIFFERS", Message: "must equal what the accepted declaration of this version says"})
		}
	}
	differs(d.SHA256 != known.SHA256, "/sha256")
	differs(d.SizeBytes != known.SizeBytes, "/sizeBytes")
	differs(d.MimeType != known.MimeType, "/mimeType")
	differs(d.GeneratedAt != known.GeneratedAt, "/generatedAt")
	differs(!equalVersion(d.PreviousVersion, known.PreviousVersion), "/previousVersion")
	if fields == nil {
		return nil
	}
	return &Error{
		Code:     VersionConflict,
		Message:  "This version was already declared with other data; a changed document needs a higher version number.",
		Fields:   fields,
		Existing: &Existing{PublicID: known.PublicID, ReceivedAt: known.ReceivedAt},
	}
}
