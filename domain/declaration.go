package domain

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// MaxVersion is the highest version of a document (contract section 3).
const MaxVersion = 1<<31 - 1

// mimePattern follows RFC 6838, section 4.2: restricted names of at most 127 characters.
var mimePattern = regexp.MustCompile(
	`\A[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}\z`,
)

// Descriptions of valid members.
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

// ReadDeclaration reads and normalizes a declaration. Errors are in the object's problems; the declaration is valid
// only without problems.
func ReadDeclaration(o *strictjson.Object) Declaration {
	d := Declaration{
		VersionReference: ReadVersionReference(o),
		SizeBytes:        o.Int("sizeBytes", 0, strictjson.MaxInteger, strictjson.Required),
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

// Declaration is an origin system's normalized statement about one version (contract, section 3).
type Declaration struct {
	VersionReference
	PreviousVersion *int32
	SHA256          [32]byte
	SizeBytes       int64
	MimeType        string
	GeneratedAt     evidence.DeclaredTime
	// ReservationID is the public id of the version's reservation, if the origin names one.
	ReservationID *PublicID
}

// VersionReference identifies a version within an organization by the origin's references.
type VersionReference struct {
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
}

// check refuses an invalid reference, even if the caller has checked it.
func (v VersionReference) check() error {
	var fields []FieldError
	for _, member := range [...]struct{ pointer, value string }{
		{"/companyReference", v.CompanyReference}, {"/source", v.Source}, {"/documentReference", v.DocumentReference},
	} {
		if !ValidReference(member.value) {
			fields = append(fields, FieldError{Pointer: member.pointer, Code: strictjson.CodeFormat, Message: ReferenceRule})
		}
	}
	if fields != nil {
		return Invalid(fields)
	}
	return nil
}

// conflict compares a declaration with the accepted one of the same version.
func (d *Declaration) conflict(known *Version) error {
	var fields []FieldError
	differs := func(differs bool, pointer string) {
		if differs {
			fields = append(
				fields,
				FieldError{
					Pointer: pointer, Code: "DIFFERS", Message: "must equal what the accepted declaration of this version says",
				},
			)
		}
	}
	differs(d.SHA256 != known.SHA256, "/sha256")
	differs(d.SizeBytes != known.SizeBytes, "/sizeBytes")
	differs(d.MimeType != known.MimeType, "/mimeType")
	differs(d.GeneratedAt != known.GeneratedAt, "/generatedAt")
	previous, accepted := d.PreviousVersion, known.PreviousVersion
	differs(previous != accepted && (previous == nil || accepted == nil || *previous != *accepted), "/previousVersion")
	if fields == nil {
		return nil
	}
	e := Refuse(
		VersionConflict,
		"This version was already declared with other data; a changed document needs a higher version number.",
	)
	e.Fields, e.Existing = fields, &Existing{PublicID: known.PublicID, ReceivedAt: known.ReceivedAt}
	return e
}

// Registrar prepares registrations and certificates. It generates all random values and the signature, the most
// expensive part, in the caller's goroutine, before the command is queued.
type Registrar struct {
	Issuer string
	Secret LedgerSecret
	Signer *evidence.Signer
}

// Sign signs a payload. It refuses with 503 if the program that keeps the key does not sign; the error wraps the cause.
func Sign(signer *evidence.Signer, payload []byte) (string, error) {
	signature, err := signer.Sign(payload)
	if err != nil {
		return "", say.Errorf("%w: %w", Unavailable(
			"The service's signing key does not answer at the moment, so nothing is signed; send the request again later.",
		), err)
	}
	return signature, nil
}

// Register declares one version.
type Register struct {
	Origin
	Key         KeyID
	Limits      KeyLimits // of the key
	Declaration Declaration

	receivedAt time.Time
	publicID   PublicID
	recordID   RecordID
	salt       string
	record     evidence.RecordPayload
	payload    []byte
	keyID      string
	signature  string           // if empty, Decide signs, or refuses with ErrUnsigned
	signer     *evidence.Signer // for Decide

	Outcome     Record
	Replayed    bool
	Usage       Usage
	CompanyUsed int64 // the company's contribution in the same month
	// BackfillLeft is the rest of the backfill allowance.
	BackfillLeft int64
}

// Usage is an organization's use of its allowance of new versions.
type Usage struct {
	Period Period
	Limit  *int64 // nil: no limit
	Used   int64
}

// Remaining returns the unused part, never negative, or nil without a limit.
func (u Usage) Remaining() *int64 {
	if u.Limit == nil {
		return nil
	}
	return new(max(0, *u.Limit-u.Used))
}

// Prepare returns a Register command for a declaration that arrived at receivedAt. It signs with the public id of the
// reservation that the declaration names, or otherwise with a new one. Decide checks whether the reservation exists.
// limits are the key's limits, as read by authentication. Prepare fails as Sign does.
func (r Registrar) Prepare(
	origin Origin, key KeyID, limits KeyLimits, d Declaration, receivedAt time.Time,
) (c *Register, err error) {
	c = r.PrepareUnsigned(origin, key, limits, d, receivedAt)
	return c, c.Presign()
}

// Presign signs a command of PrepareUnsigned, as Prepare does. It fails as Sign does.
func (c *Register) Presign() (err error) {
	c.signature, err = Sign(c.signer, c.payload)
	return err
}

// ErrUnsigned refuses a declaration that is accepted but not signed yet, because its version has a reserved public id
// that it did not name, or because PrepareUnsigned made it. It also refuses a lost record that needs a new signature.
// Only a key that another program keeps leads to it: whoever waited for that program in Decide would stop the whole
// shard. Presign the command and execute it again.
var ErrUnsigned = Unavailable("The declaration could not be signed in time; send the request again.")

// PrepareUnsigned is Prepare for a declaration that will probably be refused or is already registered. Decide signs if
// necessary, or refuses with ErrUnsigned. Signing is expensive under the shard's lock, so use it for no declaration
// that will probably be accepted.
func (r Registrar) PrepareUnsigned(
	origin Origin, key KeyID, limits KeyLimits, declaration Declaration, receivedAt time.Time,
) *Register {
	receivedAt = receivedAt.UTC().Truncate(time.Microsecond)
	c := &Register{
		Origin: origin, Key: key, Limits: limits, Declaration: declaration, receivedAt: receivedAt, signer: r.Signer,
		recordID: NewID[RecordID](receivedAt),
	}
	if declaration.ReservationID != nil {
		c.publicID = *declaration.ReservationID
	} else {
		c.publicID = NewPublicID(r.Secret, origin.Organization.Shard())
	}
	var salt [16]byte
	rand.Read(salt[:])
	c.salt = base64.RawURLEncoding.EncodeToString(salt[:])
	references := evidence.References{
		CompanyReference: declaration.CompanyReference, Source: declaration.Source,
		DocumentReference: declaration.DocumentReference,
		Version:           int64(declaration.Version), Salt: c.salt,
	}
	c.record = evidence.RecordPayload{
		Issuer: r.Issuer, PublicID: c.publicID.String(), SHA256: declaration.SHA256, SizeBytes: declaration.SizeBytes,
		MimeType: declaration.MimeType, GeneratedAt: declaration.GeneratedAt, ReceivedAt: receivedAt,
		ReferencesSHA256: references.SHA256(),
	}
	c.payload = c.record.AppendCanonical(nil)
	c.keyID = r.Signer.Key().KeyID
	return c
}

// DatedAt implements Dated: receivedAt is signed.
func (c *Register) DatedAt() time.Time { return c.receivedAt }

func (c *Register) Need(n *Needs) {
	n.Declarations = append(n.Declarations, DeclarationNeed{c.Organization, c.Key, c.Declaration.VersionReference})
	if id := c.Declaration.ReservationID; id != nil {
		n.Records = append(n.Records, RecordNeed{Key: c.Key, PublicID: *id})
	}
}

// Decide implements Command. It checks the key's source, the company grant, replay or conflict, the company's status,
// the reservation, the key's version step and the quota, in this order (contract, section 2). A replay of any accepted
// version thus succeeds with an exhausted quota, whatever reservation it names. The highest accepted version is the
// current one, whatever the order of arrival. A reserved version keeps its public id, whether or not the declaration
// names it and even if the reservation has expired. A closed company accepts only versions reserved before. A backfill
// allowance is charged before the month's quota.
func (c *Register) Decide(s *State, now time.Time) ([]Draft, error) {
	d := &c.Declaration
	o, company, err := s.declarant(c.Origin, c.Key, c.Limits, d.VersionReference)
	if err != nil {
		return nil, err
	}
	usage := Usage{Period: PeriodOf(now), Limit: s.plans.Of(o.Plan, o.Internal).VersionsPerMonth}
	usage.Used = s.Used(UsageKey{c.Organization, usage.Period, CompanyID{}})
	backfill := s.Backfill(c.Organization)
	c.BackfillLeft = backfill.Left()
	c.Replayed, c.Usage, c.CompanyUsed = false, usage, s.Used(UsageKey{c.Organization, usage.Period, company.ID})
	document := s.Document(company.ID, d.Source, d.DocumentReference)
	if document == nil {
		document = &Document{ID: DocumentID(c.recordID), Source: d.Source, Reference: d.DocumentReference}
	}
	known := s.Version(document.ID, d.Version)
	if known != nil && known.Registered() {
		if err := d.conflict(known); err != nil {
			return nil, err
		}
		c.Outcome = known.Record(company.Reference)
		// Its own record id means an earlier attempt of this command.
		c.Replayed = known.RecordID != c.recordID
		return nil, nil
	}
	if known == nil {
		if err := company.takesVersions(); err != nil {
			return nil, err
		}
	}
	if err := d.checkReservation(s, company.ID, known); err != nil {
		return nil, err
	}
	if err := c.Limits.checkVersion(d.Version, document.Highest); err != nil {
		return nil, err
	}
	fromBackfill := backfill.Charged()
	if fromBackfill == 0 {
		if err := usage.checkRoom(o.Plan, now); err != nil {
			return nil, err
		}
	}

	b, err := c.body(document.ID, known, usage.Period)
	if err != nil {
		return nil, err
	}
	b.FromBackfill = fromBackfill
	drafts := supersede(company, document, b, b)
	after := *document
	after.Highest = max(after.Highest, d.Version)
	version := b.Registered(&after)
	c.Outcome = version.Record(company.Reference)
	if fromBackfill != 0 {
		c.BackfillLeft--
		return drafts, nil
	}
	c.Usage.Used++
	c.CompanyUsed++
	return append(drafts, s.warn(o, VersionsAllowance, usage.Period, c.Usage.Used, usage.Limit)...), nil
}

// supersede returns the event of a registration with this body, and the event that it causes: the version that was
// current is superseded. It sets the status of a lower version.
func supersede(company *Company, document *Document, b *RecordRegisteredBody, body Body) []Draft {
	drafts := []Draft{{Company: company.ID, Subject: b.PublicID.String(), Body: body}}
	switch {
	case document.Highest > b.Version:
		b.Status = StatusSuperseded
	case document.Highest > 0 && !document.HighestRevoked:
		drafts = append(drafts, Draft{
			Company: company.ID, Subject: document.HighestPublicID.String(),
			Body: &RecordSupersededBody{DocumentID: document.ID, Version: document.Highest, ByVersion: b.Version},
		})
	}
	return drafts
}

// body returns the registration of a current version. The command adopts the public id of its reservation, if it has
// one, and must then be signed anew.
func (c *Register) body(
	document DocumentID, reserved *Version, period Period,
) (*RecordRegisteredBody, error) {
	d := &c.Declaration
	if reserved != nil && reserved.PublicID != c.publicID {
		c.publicID, c.record.PublicID = reserved.PublicID, reserved.PublicID.String()
		c.payload, c.signature = c.record.AppendCanonical(nil), ""
	}
	if c.signature == "" {
		if c.signer.Kept() {
			return nil, ErrUnsigned
		}
		if err := c.Presign(); err != nil {
			return nil, err
		}
	}
	return &RecordRegisteredBody{
		RecordID: c.recordID, DocumentID: document, VersionReference: d.VersionReference,
		PreviousVersion: d.PreviousVersion, Reserved: reserved != nil,
		Salt: c.salt, Period: period, Status: StatusCurrent, KeyID: c.keyID, Signature: c.signature, Payload: c.payload,
		Record:   c.record,
		PublicID: c.publicID,
	}, nil
}

// declarant returns the organization and the company of a declaration, if the caller may declare it.
func (s *State) declarant(
	origin Origin, key KeyID, limits KeyLimits, v VersionReference,
) (*Organization, *Company, error) {
	o := s.Organization(origin.Organization)
	if o == nil {
		return nil, nil, say.Errorf("organization %s does not exist", origin.Organization)
	}
	if err := v.check(); err != nil {
		return nil, nil, err
	}
	if limits.Source != nil && *limits.Source != v.Source {
		return nil, nil, InvalidMember(
			"/source", "KEY_LIMIT", "must be the one source that this key may declare; use a key of this source",
		)
	}
	c := s.CompanyByReference(o.ID, v.CompanyReference)
	if c == nil || !s.mayUse(origin, key, c.ID) {
		return nil, nil, ErrUnauthorizedCompany
	}
	return o, c, nil
}

// mayUse reports whether a caller may use a company of its organization: a key needs a grant, a member in the console
// does not.
func (s *State) mayUse(by Origin, key KeyID, company CompanyID) bool {
	return by.Console || s.Granted(key, company)
}

// checkRoom refuses a version beyond the plan's allowance.
func (u Usage) checkRoom(plan string, now time.Time) error {
	switch {
	case u.Limit == nil || u.Used < *u.Limit:
		return nil
	case *u.Limit == 0:
		return Refuse(
			PlanRequired, "The plan %s does not include new versions; ask the operator of the service for another plan.", plan,
		)
	}
	resets := u.Period.End()
	return Refuse(
		RegistrationQuotaExhausted,
		"The plan %s allows %d new versions in %s and all are used; the allowance resets at %s.", plan, *u.Limit, u.Period,
		resets.Format(time.RFC3339),
	).After(resets.Sub(now))
}
