package domain

import (
	"crypto/rand"
	"reflect"
	"slices"
	"time"

	"integrityledger/domain/say"
)

// State is the data available to Decide: the parts of the ledger that a group of commands named in Needs, loaded under
// the shard's lock, with the effects of the commands already decided in the same group. Absent means not in the ledger,
// never "not loaded", because Load loads everything that Needs names.
//
// The same State replays a whole log for an audit. It is not safe for concurrent use.
type State struct {
	Loaded
	plans Plans
	rules []Rule // switched on
}

// Loaded is the data of a State, with a table for each kind of object. Its Add methods are only for loading. Adding an
// object twice keeps the first, so that a row named by several commands of a group stays one object.
type Loaded struct {
	organizations table[OrganizationID, *Organization]
	members       table[MemberID, *Member]
	keys          table[KeyID, *APIKey]
	companies     table[CompanyID, *Company]
	references    table[CompanyNeed, *Company]
	grants        table[grantKey, bool]
	documents     table[documentKey, *Document]
	versions      table[versionKey, *Version]
	public        table[PublicID, *Version]
	aliases       table[PublicID, *Alias] // loaded only if Needs requests them
	usage         table[UsageKey, int64]
	backfills     table[OrganizationID, Backfill]
	covered       []Period // months whose usage was loaded
	// pending holds the expiry of each unregistered reservation, including expired ones. It is loaded only if Needs
	// requests it.
	pending table[OrganizationID, table[PublicID, time.Time]]
	// webhooks holds destinations that were not deleted, authorized the companies of each, and destinations the number of
	// each company. They are loaded only if Needs requests them.
	webhooks     table[WebhookID, *Webhook]
	authorized   table[WebhookID, table[CompanyID, bool]]
	destinations table[CompanyID, int]
	links        table[LinkID, *OAuthLink]
	passkeys     table[PasskeyID, *Passkey] // without removed ones
	// publisherDomains and publisherNames hold the statements of organizations about themselves, without ended ones.
	publisherDomains table[StatementID, *PublisherDomain]
	publisherNames   table[OrganizationID, *PublisherName]
	meters           table[meterKey, MeterUsage]
	// administered is loaded only for administrative commands. administering lists the organizations whose count was
	// raised in this state, in the order of the first command.
	administered  table[OrganizationID, AdministeredDay]
	administering []OrganizationID

	accounts         table[OrganizationID, *CertificationAccount]
	registrations    table[monthKey, int64] // of the month's allowance
	artifacts        table[ArtifactID, *Artifact]
	artifactVersions table[ArtifactVersionID, *ArtifactVersion]
	certificates     table[PublicID, *Certificate]
	contents         table[ContentNeed, int64]
	claims           table[Claim, bool]
	// Texts that are not erased, if they were loaded or created.
	titles table[ArtifactVersionID, Text]
	names  table[OrganizationID, Text]
	// keyNames holds the names of keys, and activeKeys the number of active keys, if Needs requests them.
	keyNames   table[KeyID, Text]
	activeKeys table[OrganizationID, int]
	// memberships is the number of memberships that an organization has had, if Needs requests it.
	memberships table[OrganizationID, int]
}

type grantKey struct {
	key     KeyID
	company CompanyID
}

type documentKey struct {
	company           CompanyID
	source, reference string
}

type versionKey struct {
	document DocumentID
	version  int32
}

// UsageKey identifies a counter of new versions. The zero Company means the organization's total.
type UsageKey struct {
	Organization OrganizationID
	Period       Period
	Company      CompanyID
}

// CertificationAccount is an organization's certification data.
type CertificationAccount struct {
	RetentionDays int32 // 0: bytes are not kept
	Credits       int64 // registrations left in file credit packs
}

type monthKey struct {
	organization OrganizationID
	period       Period
}

// NewState returns an empty state.
func NewState(plans Plans) *State { return &State{plans: plans} }

// table is a map that is created with its first entry.
type table[K comparable, V any] map[K]V

func (t *table[K, V]) put(key K, v V) {
	if *t == nil {
		*t = table[K, V]{}
	}
	(*t)[key] = v
}

// addOnce adds an object unless its key exists, and returns the only object with the key.
func addOnce[K comparable, V any](known *table[K, *V], key K, v V) *V {
	if (*known)[key] == nil {
		known.put(key, &v)
	}
	return (*known)[key]
}

func (s *Loaded) AddOrganization(o Organization)            { addOnce(&s.organizations, o.ID, o) }
func (s *Loaded) AddMember(m Member)                        { addOnce(&s.members, m.ID, m) }
func (s *Loaded) AddKey(k APIKey)                           { addOnce(&s.keys, k.ID, k) }
func (s *Loaded) AddActiveKeys(o OrganizationID, count int) { s.activeKeys.put(o, count) }
func (s *Loaded) AddMemberships(o OrganizationID, n int)    { s.memberships.put(o, n) }
func (s *Loaded) AddWebhook(w Webhook)                      { addOnce(&s.webhooks, w.ID, w) } // not a deleted one
func (s *Loaded) AddLink(l OAuthLink)                       { addOnce(&s.links, l.ID, l) }
func (s *Loaded) AddPasskey(p Passkey)                      { addOnce(&s.passkeys, p.ID, p) } // not a removed one

func (s *Loaded) AddCompany(c Company) {
	s.references.put(CompanyNeed{c.Organization, c.Reference}, addOnce(&s.companies, c.ID, c))
}

// AddGrant loads whether a key may use a company.
func (s *Loaded) AddGrant(key KeyID, company CompanyID, enabled bool) {
	s.grants.put(grantKey{key, company}, enabled)
}

// AddDocument returns the document's only object.
func (s *Loaded) AddDocument(d Document) *Document {
	return addOnce(&s.documents, documentKey{d.Company, d.Source, d.Reference}, d)
}

// AddVersion loads a version of a document that AddDocument returned.
func (s *Loaded) AddVersion(v Version) {
	s.public.put(v.PublicID, addOnce(&s.versions, versionKey{v.Document.ID, v.Version}, v))
}

// AddPending loads the expiry of an unregistered reservation.
func (s *Loaded) AddPending(o OrganizationID, id PublicID, expiresAt time.Time) {
	expiries := s.pending[o]
	expiries.put(id, expiresAt)
	s.pending.put(o, expiries)
}

// Cover records that the usage of these months is loaded.
func (s *Loaded) Cover(periods ...Period) { s.covered = append(s.covered, periods...) }

// Covers reports whether the usage of a month is loaded. A decision in another month would see no usage and exceed
// quotas.
func (s *Loaded) Covers(p Period) bool { return slices.Contains(s.covered, p) }

func (s *Loaded) AddUsage(k UsageKey, used int64) { s.usage.put(k, used) }
func (s *Loaded) Used(k UsageKey) int64           { return s.usage[k] }

// account returns an organization's account, empty if none was loaded.
func (s *Loaded) account(id OrganizationID) *CertificationAccount {
	return addOnce(&s.accounts, id, CertificationAccount{})
}

// AddAccount loads an organization's certification data.
func (s *Loaded) AddAccount(id OrganizationID, a CertificationAccount) {
	*s.account(id) = a
}

// AddRegistrations loads the number of registrations used in a month.
func (s *Loaded) AddRegistrations(id OrganizationID, period Period, used int64) {
	s.registrations.put(monthKey{id, period}, used)
}

// AddArtifact returns the artifact's only object. Its versions and certificates point to it.
func (s *Loaded) AddArtifact(a Artifact) *Artifact      { return addOnce(&s.artifacts, a.ID, a) }
func (s *Loaded) AddArtifactVersion(v ArtifactVersion)  { addOnce(&s.artifactVersions, v.ID, v) }
func (s *Loaded) AddCertificate(c Certificate)          { addOnce(&s.certificates, c.PublicID, c) }
func (s *Loaded) AddContent(n ContentNeed, count int64) { s.contents.put(n, count) }

// AddClaim loads a claim of an Idempotency-Key that is still valid.
func (s *Loaded) AddClaim(c Claim) { s.claims.put(c, true) }

// AddTitle loads the title of a version; erased titles are left out.
func (s *Loaded) AddTitle(id ArtifactVersionID, title Text) {
	if title.Body != "" {
		s.titles.put(id, title)
	}
}

// AddName loads the name of an organization; an erased name is left out.
func (s *Loaded) AddName(id OrganizationID, name Text) {
	if name.Body != "" {
		s.names.put(id, name)
	}
}

// AddKeyName loads the name of a key; an erased name is left out.
func (s *Loaded) AddKeyName(id KeyID, name Text) {
	if name.Body != "" {
		s.keyNames.put(id, name)
	}
}

// Values that are not in the ledger are nil.

func (s *Loaded) Organization(id OrganizationID) *Organization { return s.organizations[id] }
func (s *Loaded) Company(id CompanyID) *Company                { return s.companies[id] }
func (s *Loaded) Member(id MemberID) *Member                   { return s.members[id] }
func (s *Loaded) Key(id KeyID) *APIKey                         { return s.keys[id] }

// CompanyByReference finds a company of an organization.
func (s *Loaded) CompanyByReference(o OrganizationID, reference string) *Company {
	return s.references[CompanyNeed{o, reference}]
}

// Granted reports whether a key may use a company.
func (s *Loaded) Granted(key KeyID, company CompanyID) bool { return s.grants[grantKey{key, company}] }

func (s *Loaded) Document(company CompanyID, source, reference string) *Document {
	return s.documents[documentKey{company, source, reference}]
}

func (s *Loaded) Version(document DocumentID, version int32) *Version {
	return s.versions[versionKey{document, version}]
}

// ArtifactVersion returns a version of an artifact.
func (s *Loaded) ArtifactVersion(id ArtifactVersionID) *ArtifactVersion {
	return s.artifactVersions[id]
}

// Append assigns ids and sequences to drafts, computes their canonical data and hash, and applies them. Sequences
// continue the organization's. now is the group's decision time.
func (s *State) Append(origin Origin, now time.Time, drafts []Draft) ([]Event, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	var sequence int64
	if o := s.organizations[origin.Organization]; o != nil {
		sequence = o.Sequence
	}
	events := make([]Event, len(drafts))
	for i, d := range drafts {
		k := rowByBody[reflect.TypeOf(d.Body)]
		if k == nil {
			return nil, say.Errorf("no event type has a body of type %T", d.Body)
		}
		data, err := appendCanonical(make([]byte, 0, 1024), d.Body)
		if err != nil {
			return nil, err
		}
		sequence++
		version := k.version
		if b, ok := d.Body.(interface{ dataVersion() int16 }); ok {
			version = b.dataVersion()
		}
		e := &events[i]
		*e = Event{
			Organization: origin.Organization, Sequence: sequence, ID: NewID[EventID](now), V: version, Type: k.eventType,
			Company: d.Company, Subject: d.Subject, OccurredAt: now, Actor: origin.Actor, RequestID: origin.RequestID,
			Data: data, Body: d.Body, Texts: d.Texts, Answer: d.Answer, Sealed: d.Sealed,
		}
		rand.Read(e.Nonce[:])
		e.Hash = LeafHash(e.Leaf())
	}
	for i := range events {
		if err := s.Apply(&events[i]); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// Apply advances the state by an event. It fails only if the event cannot follow this state.
func (s *State) Apply(e *Event) error {
	if e.Body == nil {
		return say.Errorf("event %s has no body", e.ID)
	}
	if e.Type == OrganizationCreated {
		s.organizations.put(e.Organization, &Organization{ID: e.Organization, CreatedAt: e.OccurredAt})
	}
	o := s.organizations[e.Organization]
	if o == nil {
		return say.Errorf("event %s belongs to an organization that was never created", e.ID)
	}
	if e.Sequence != o.Sequence+1 {
		return say.Errorf("event %s has sequence %d after %d", e.ID, e.Sequence, o.Sequence)
	}
	o.Sequence = e.Sequence
	return e.Body.apply(s, e)
}
