package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"integrityledger/cmd/lab/weather/history"
)

// never is later than every moment of a run.
const never = math.MaxInt64

// The types of events that the checks know.
const (
	registered        = "integrity.registered"
	superseded        = "integrity.superseded"
	revoked           = "integrity.revoked"
	reserved          = "integrity.reserved"
	released          = "integrity.released"
	healed            = "integrity.healed"
	aliased           = "integrity.aliased"
	companyCreated    = "company.created"
	accessChanged     = "company.access_changed"
	webhookChanged    = "company.webhook_changed"
	keyCreated        = "key.created"
	keyRevoked        = "key.revoked"
	keyExpiry         = "key.expiry_changed"
	artifactVersion   = "artifact.version_registered"
	reviewDeclared    = "review.declared"
	versionApproved   = "version.approved"
	certificateIssued = "certificate.issued"
	certificateNext   = "certificate.replaced"
	certificateEnded  = "certificate.revoked"
)

// primary is the event that a write of each operation causes, perhaps together with others.
var primary = map[history.Operation]string{
	history.Register: registered, history.Reserve: reserved, history.Release: released, history.Revoke: revoked,
	history.CompanyCreate: companyCreated, history.KeyCreate: keyCreated, history.KeyRotate: keyCreated,
	history.KeyRevoke: keyRevoked,
	history.Grant:     accessChanged, history.WebhookGrant: webhookChanged, history.Upload: artifactVersion,
	history.Review:  reviewDeclared,
	history.Approve: versionApproved, history.Certify: certificateIssued, history.CertificateEnd: certificateEnded,
}

// versionKey identifies a version or, with version 0, a document.
type versionKey struct {
	organization, company, source, document string
	version                                 int32
}

func (k versionKey) String() string {
	text := k.organization + "/" + k.company + "/" + k.source + "/" + k.document
	if k.version != 0 {
		text += fmt.Sprintf("/%d", k.version)
	}
	return text
}

func (k versionKey) ofDocument() versionKey {
	k.version = 0
	return k
}

// data holds the members of an event's data that the checks read. A member has the same meaning in all types of events,
// except keyId, which in a record or certificate is the signing key.
type data struct {
	CompanyReference  string          `json:"companyReference"`
	Reference         string          `json:"reference"` // of a company
	Source            string          `json:"source"`
	DocumentReference string          `json:"documentReference"`
	Version           int32           `json:"version"`
	PreviousVersion   *int32          `json:"previousVersion"`
	ByVersion         int32           `json:"byVersion"`
	DocumentID        string          `json:"documentId"`
	RecordID          string          `json:"recordId"`
	PublicID          string          `json:"publicId"`
	AliasOf           string          `json:"aliasOf"`
	Proof             string          `json:"proof"`
	Renewed           bool            `json:"renewed"`
	Period            string          `json:"period"`
	Status            string          `json:"status"`
	Salt              string          `json:"salt"`
	KeyID             string          `json:"keyId"`
	Signature         string          `json:"signature"`
	Payload           json.RawMessage `json:"payload"`
	Enabled           bool            `json:"enabled"`
	WebhookID         string          `json:"webhookId"`
	ArtifactID        string          `json:"artifactId"`
	VersionID         string          `json:"versionId"`
	Outcome           string          `json:"outcome"`
	SHA256            string          `json:"sha256"`
}

// event is an event of the log with information for the checks.
type event struct {
	*history.LogEvent
	data
	of       versionKey // of integrity events
	status   string     // right after the event, for events of the feed
	declared string     // the hash of a registration
	call     *history.Call
	after    int64 // it happened no earlier than this
	before   int64 // it happened no later than this
	prefix   bool  // it happened before the run
	healed   bool  // it brings back a lost registration: its type is registered, as in feeds
}

func (e *event) String() string { return fmt.Sprintf("%s %s (sequence %d)", e.Type, e.ID, e.Sequence) }

// charged reports whether a registration counts in its month. A healed one without a receipt counts in none.
func (e *event) charged() bool { return !e.healed || e.Proof != "declaration" }

// inFeed reports whether the change feed shows the event.
func (e *event) inFeed() bool {
	return e.Type == registered || e.Type == superseded || e.Type == revoked
}

// index is a history with indexes into it.
type index struct {
	*history.History
	organizations map[string]*history.Organization
	events        []*event            // by shard, then position
	byRequest     map[string][]*event // by request ID
	byID          map[string]*event
	sequences     map[string][]*event // by organization, in order of the sequence
	effects       map[*history.Call][]*event
	public        map[string]versionKey // by public ID
	references    map[string]string     // of companies, by organization and ID
	registrations map[versionKey]*event // the first of each version
	feeds         map[string][]*event   // by organization and company reference
	answers       map[lookUp]int64      // see latest
	accesses      map[string][]*event   // see grants
	floors        map[string][]int64    // see floor
	signed        map[string]string     // the public id in the evidence of an alias that has no receipt
}

func newIndex(h *history.History) (*index, error) {
	x := &index{
		History: h, organizations: map[string]*history.Organization{}, byRequest: map[string][]*event{},
		byID:      map[string]*event{},
		sequences: map[string][]*event{}, effects: map[*history.Call][]*event{}, public: map[string]versionKey{},
		references:    map[string]string{},
		registrations: map[versionKey]*event{}, feeds: map[string][]*event{}, signed: map[string]string{},
	}
	if len(h.End.Log) == 0 {
		return nil, errors.New("the end state must have the log: without it nothing can be judged")
	}
	for i := range h.Header.Organizations {
		o := &h.Header.Organizations[i]
		x.organizations[o.ID] = o
		for _, company := range o.Companies {
			x.references[o.ID+"/"+company.ID] = company.Reference
		}
	}
	if err := x.decode(); err != nil {
		return nil, err
	}
	x.name()
	x.attribute()
	x.bound()
	return x, nil
}

func (x *index) decode() error {
	for i := range x.End.Log {
		e := &event{LogEvent: &x.End.Log[i], after: 0, before: never}
		if err := json.Unmarshal(e.Data, &e.data); err != nil {
			return fmt.Errorf("data of event %s: %w", e.ID, err)
		}
		e.prefix = e.Position <= x.Header.Prefix[e.Shard]
		if e.Type == healed {
			copied := *e.LogEvent
			copied.Type, e.healed, e.LogEvent = registered, true, &copied
		}
		x.events = append(x.events, e)
	}
	slices.SortStableFunc(x.events, func(a, b *event) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Position, b.Position))
	})
	for _, e := range x.events {
		x.byID[e.ID] = e
		x.byRequest[e.RequestID] = append(x.byRequest[e.RequestID], e)
		x.sequences[e.Organization] = append(x.sequences[e.Organization], e)
		if e.Type == companyCreated && e.Company != nil {
			x.references[e.Organization+"/"+*e.Company] = cmp.Or(e.Reference, x.references[e.Organization+"/"+*e.Company])
		}
	}
	for _, list := range x.sequences {
		slices.SortStableFunc(list, func(a, b *event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	}
	return nil
}

// reference returns a company's reference, from its ID in an organization.
func (x *index) reference(e *event) string {
	if e.Company == nil {
		return ""
	}
	return x.references[e.Organization+"/"+*e.Company]
}

// name finds the version of each event about a version.
func (x *index) name() {
	documents := map[string]versionKey{} // by ID
	for _, id := range sortedKeys(x.sequences) {
		for _, e := range x.sequences[id] {
			switch e.Type {
			case registered, reserved:
				e.of = versionKey{id, e.CompanyReference, e.Source, e.DocumentReference, e.Version}
				documents[e.DocumentID] = e.of.ofDocument()
				x.public[e.Subject] = e.of
				e.status, e.declared = e.Status, e.declaration().hash
				if e.Type == registered && x.registrations[e.of] == nil {
					x.registrations[e.of] = e
				}
			case aliased:
				e.of = versionKey{id, e.CompanyReference, e.Source, e.DocumentReference, e.Version}
				x.public[e.Subject] = e.of
			case superseded, revoked, released:
				e.of = documents[e.DocumentID]
				e.of.version = e.Version
				e.status = map[string]string{superseded: "superseded", revoked: "revoked"}[e.Type]
			}
			if e.inFeed() {
				x.feeds[id+"/"+e.of.company] = append(x.feeds[id+"/"+e.of.company], e)
			}
		}
	}
}

// ofCall returns the version that a call names, by reference or public ID.
func (x *index) ofCall(c *history.Call) (versionKey, bool) {
	r := c.Request
	if r.Document != "" {
		return versionKey{c.Organization, c.Company, r.Source, r.Document, r.Version}, true
	}
	k, ok := x.public[r.PublicID]
	return k, ok && (c.Organization == "" || k.organization == c.Organization)
}

// attribute finds the events of each call's operation. Other checks report more than one as a violation.
func (x *index) attribute() {
	items := map[*event][]*history.Call{} // of batches
	for i := range x.Calls {
		c := &x.Calls[i]
		if !c.Operation.Writes() {
			continue
		}
		for _, e := range x.byRequest[c.RequestID] {
			if e.call == nil && c.Batch == 0 {
				e.call = c
			}
			switch {
			case e.Type != primary[c.Operation] || !x.fits(c, e):
			case c.Batch != 0:
				items[e] = append(items[e], c)
			default:
				e.call = c
				x.effects[c] = append(x.effects[c], e)
			}
		}
	}
	for _, e := range x.events {
		if list := items[e]; list != nil {
			e.call = maker(list)
			x.effects[e.call] = append(x.effects[e.call], e)
		}
	}
	for _, list := range x.sequences { // further events of a registration in a batch
		for i, e := range list {
			if e.call == nil && e.Type == superseded && i > 0 && list[i-1].RequestID == e.RequestID {
				e.call = list[i-1].call
			}
		}
	}
}

// maker returns the item that made an event, of the items of a batch that name its version. One item registers a
// version, and others that name it repeat or contradict it.
func maker(items []*history.Call) *history.Call {
	for _, could := range []func(*history.Call) bool{
		func(c *history.Call) bool { return c.Outcome == history.Answered && promises(c) },
		func(c *history.Call) bool { return c.Outcome == history.Unknown },
	} {
		if i := slices.IndexFunc(items, could); i >= 0 {
			return items[i]
		}
	}
	return items[0]
}

// fits reports whether an event of a request belongs to the given item.
func (x *index) fits(c *history.Call, e *event) bool {
	switch c.Operation {
	case history.Register, history.Reserve:
		of, _ := x.ofCall(c)
		return c.Batch == 0 || e.of == of
	case history.Grant:
		return e.KeyID == c.Request.Target
	case history.KeyRevoke:
		return e.Subject == c.Request.Target
	}
	return true
}

// effect returns the event that a call has caused, or nil.
func (x *index) effect(c *history.Call) *event {
	if list := x.effects[c]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// bound sets the moments between which each event happened. Events of a shard happen in the order of their positions,
// so every event has bounds: an unknown call was over when a call after it was answered.
func (x *index) bound() {
	for rest := x.events; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Shard == rest[0].Shard {
			n++
		}
		shard := rest[:n]
		rest = rest[n:]
		for _, e := range shard {
			if e.call != nil {
				e.after = e.call.Start
			}
		}
		latest := int64(0)
		for _, e := range shard {
			if e.call == nil {
				e.after = latest
			}
			if x.healing(e) {
				e.after = max(latest, x.End.Loss.HealedFrom)
			}
			latest = max(latest, e.after)
		}
		earliest := int64(never)
		for _, e := range slices.Backward(shard) {
			switch {
			case e.prefix:
				e.before = 0
			case x.healing(e):
				e.before = x.End.Loss.HealedTo
				earliest = min(earliest, e.before)
			case e.call != nil && e.call.Outcome == history.Answered:
				e.before = e.call.End
				earliest = min(earliest, e.before)
			default:
				e.before = max(earliest, e.after)
			}
		}
	}
}

// operator is the actor of events that commands make.
const operator = "operator"

// healing reports whether integrity heal made the event.
func (x *index) healing(e *event) bool {
	return x.End.Loss != nil && !e.prefix && e.Actor == operator && (e.healed || e.Type == aliased || e.Type == revoked)
}
