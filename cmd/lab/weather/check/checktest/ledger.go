package checktest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain/evidence"
)

const (
	period  = "2026-11"
	logName = "ledger.example/log"
	issuer  = "https://ledger.example/<&>"
)

var epoch = time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)

// ledger is a correct in-memory ledger of two organizations: every act happens at one moment.
type ledger struct {
	now    int64 // nanoseconds since the start of the run
	signer *evidence.Signer
	notes  note.Signer
	trust  *evidence.TrustedKeys

	organizations []*organization
	log           []history.LogEvent
	feed          map[string][]history.FeedEvent // by organization and company
	stream        []history.FeedEvent
	position      map[int]int64
	numbers       int
	leaves        []byte
	hashes        hashes
}

type hashes []tlog.Hash

// ReadHashes implements tlog.HashReader.
func (h hashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var list []tlog.Hash
	for _, i := range indexes {
		list = append(list, h[i])
	}
	return list, nil
}

type organization struct {
	history.Organization
	shard     int
	sequence  int64
	used      int64
	byCompany map[string]int64
	units     []string
	documents map[string]*document
	keys      map[string]*apikey
	artifacts []*artifact
	kept      map[string]history.Call // answers by Idempotency-Key
}

type document struct {
	id, company, source, reference string
	highest                        int32
	versions                       map[int32]*version
}

type version struct {
	publicID, recordID string
	reserved, revoked  bool
	registered         bool
	hash, receivedAt   string
	payload, signature string
	salt               string
	previous           *int32
	generatedAt        string
}

type apikey struct {
	id      string
	revoked bool
	grants  map[string]bool
}

type artifact struct {
	id       string
	versions []*artifactVersion
}

type artifactVersion struct {
	id, state, outcome, certificate, status string
	number                                  int32
}

func newLedger() (*ledger, error) {
	signer, err := evidence.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		return nil, err
	}
	seed := bytes.Repeat([]byte{2}, 32)
	key, err := evidence.NewLogKey(logName, ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	notes, err := note.NewSigner(
		"PRIVATE+KEY+" + logName + "+" + key.KeyHash + "+" + base64.StdEncoding.EncodeToString(append([]byte{1}, seed...)),
	)
	if err != nil {
		return nil, err
	}
	trust, err := evidence.NewTrustedKeys([]evidence.TrustedKey{{PublicKey: signer.Key()}}, nil, []evidence.LogKey{key})
	return &ledger{
		signer: signer, notes: notes, trust: trust, feed: map[string][]history.FeedEvent{}, position: map[int]int64{},
	}, err
}

// id returns a new name.
func (l *ledger) id(prefix string) string {
	l.numbers++
	return fmt.Sprintf("%s_%06d", prefix, l.numbers)
}

// publicID returns a new public ID in the form that evidence requires.
func (l *ledger) publicID() string {
	l.numbers++
	sum := sha256.Sum256(fmt.Append(nil, l.numbers))
	text := make([]byte, 26)
	for i := range text {
		text[i] = "abcdefghijklmnopqrstuvwxyz234567"[sum[i]%32]
	}
	return string(text)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (l *ledger) time() string { return evidence.FormatTime(epoch.Add(time.Duration(l.now))) }

// put appends an event to the log and the tree.
func (l *ledger) put(o *organization, request, kind, company, subject string, data map[string]any) *history.LogEvent {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	if payload, ok := data["payload"].(json.RawMessage); ok { // must stay exactly as signed
		text = bytes.Replace(text, mustEscape(payload), payload, 1)
	}
	o.sequence++
	l.position[o.shard]++
	e := history.LogEvent{
		Shard: o.shard, Position: l.position[o.shard], Organization: o.ID, Sequence: o.sequence, ID: l.id("evt"),
		Type: kind, Subject: subject,
		OccurredAt: l.time(), RequestID: request, Data: text,
	}
	if company != "" {
		for i := range o.Companies {
			if o.Companies[i].Reference == company {
				e.Company = &o.Companies[i].ID
			}
		}
	}
	leaf := tlog.RecordHash([]byte(e.ID))
	stored, err := tlog.StoredHashesForRecordHash(int64(len(l.log)), leaf, l.hashes)
	if err != nil {
		panic(err)
	}
	l.hashes, l.leaves = append(l.hashes, stored...), append(l.leaves, leaf[:]...)
	e.Hash = hex.EncodeToString(leaf[:])
	l.log = append(l.log, e)
	return &l.log[len(l.log)-1]
}

func mustEscape(payload json.RawMessage) []byte {
	text, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	return text
}

// checkpoint signs the current tree.
func (l *ledger) checkpoint() string { return l.sign(int64(len(l.log))) }

func (l *ledger) sign(size int64) string {
	root, err := tlog.TreeHash(size, l.hashes)
	if err != nil {
		panic(err)
	}
	return SignCheckpoint(l.notes, size, root)
}

// SignCheckpoint signs a size and a root as the log does.
func SignCheckpoint(signer note.Signer, size int64, root tlog.Hash) string {
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", signer.Name(), size, root)}, signer)
	if err != nil {
		panic(err)
	}
	return string(signed)
}

func (d *document) status(number int32) string {
	switch v := d.versions[number]; {
	case v.revoked:
		return "revoked"
	case number == d.highest:
		return "current"
	}
	return "superseded"
}

func (d *document) record(number int32) history.RecordAnswer {
	v := d.versions[number]
	r := history.RecordAnswer{
		PublicID: v.publicID, RecordID: v.recordID, Company: d.company, Source: d.source, Document: d.reference,
		Version: number, Hash: v.hash,
		Status: d.status(number), ReceivedAt: v.receivedAt,
	}
	if number != d.highest {
		r.SupersededBy = new(d.highest)
	}
	return r
}

// announce adds an event to the feed.
func (l *ledger) announce(
	o *organization, request, kind string, d *document, number int32, status string, data map[string]any,
) *history.LogEvent {
	v := d.versions[number]
	e := l.put(o, request, kind, d.company, v.publicID, data)
	f := history.FeedEvent{
		ID: e.ID, Sequence: e.Sequence, Type: kind, OccurredAt: e.OccurredAt, PublicID: v.publicID,
		SHA256: v.hash, CompanyReference: d.company, Source: d.source, DocumentReference: d.reference, Version: number,
		RecordStatus: status,
	}
	l.feed[o.ID+"/"+d.company] = append(l.feed[o.ID+"/"+d.company], f)
	l.stream = append(l.stream, f)
	return e
}

func (o *organization) document(l *ledger, c *history.Call) *document {
	key := c.Company + "/" + c.Request.Source + "/" + c.Request.Document
	d := o.documents[key]
	if d == nil {
		d = &document{
			id: l.id("doc"), company: c.Company, source: c.Request.Source, reference: c.Request.Document,
			versions: map[int32]*version{},
		}
		o.documents[key] = d
	}
	if d.versions[c.Request.Version] == nil {
		d.versions[c.Request.Version] = &version{}
	}
	return d
}

func refuse(c *history.Call, status int, code string) {
	c.Outcome, c.Status, c.Code, c.Answer = history.Refused, status, code, history.Answer{}
}

// admit checks the key and, if the call names a company, the grant.
func (o *organization) admit(c *history.Call) bool {
	k := o.keys[c.Key]
	switch {
	case k == nil || k.revoked:
		refuse(c, 401, "INVALID_KEY")
	case c.Company != "" && !k.grants[c.Company]:
		refuse(c, 403, "COMPANY_NOT_AUTHORIZED")
	default:
		c.Outcome, c.Status = history.Answered, 200
		return true
	}
	return false
}

func (l *ledger) reserve(o *organization, c *history.Call) {
	d := o.document(l, c)
	v := d.versions[c.Request.Version]
	c.Answer.Replayed = v.reserved || v.registered
	if !v.registered {
		if v.publicID == "" {
			v.publicID = l.publicID()
			c.Status = 201
		}
		l.put(o, c.RequestID, "integrity.reserved", d.company, v.publicID, map[string]any{
			"documentId": d.id, "companyReference": d.company, "source": d.source, "documentReference": d.reference,
			"version":  c.Request.Version,
			"publicId": v.publicID, "renewed": v.reserved,
		})
		v.reserved = true
	}
	c.Answer.ReservationStatus = map[bool]string{false: "pending", true: "finalized"}[v.registered]
	c.Answer.PublicID, c.Answer.Sequence = v.publicID, o.sequence
}

func (l *ledger) release(o *organization, c *history.Call) {
	d, number := o.find(c.Request.PublicID)
	v := d.versions[number]
	if v.registered {
		refuse(c, 409, "INVALID_STATE")
		return
	}
	c.Answer.PublicID, c.Answer.ReservationStatus, c.Answer.Replayed = v.publicID, "released", !v.reserved
	if v.reserved {
		l.put(
			o, c.RequestID, "integrity.released", d.company, v.publicID, map[string]any{"documentId": d.id, "version": number},
		)
		v.reserved = false
	}
}

func (l *ledger) register(o *organization, c *history.Call) {
	d := o.document(l, c)
	r, v := c.Request, d.versions[c.Request.Version]
	use := func(applied int64) {
		c.Answer.Applied, c.Answer.Period, c.Answer.Sequence = applied, period, o.sequence
		c.Answer.Used, c.Answer.CompanyUsed = new(o.used), new(o.byCompany[d.company])
		c.Answer.RecordAnswer, c.Answer.Replayed = d.record(r.Version), applied == 0
	}
	switch {
	case v.registered && (v.hash != r.Hash || (v.previous == nil) != (r.PreviousVersion == nil)):
		refuse(c, 409, "VERSION_CONFLICT")
		c.Answer.Existing = v.publicID
		return
	case v.registered:
		use(0)
		return
	case o.VersionsPerMonth != nil && o.used >= *o.VersionsPerMonth:
		refuse(c, 429, "REGISTRATION_QUOTA_EXHAUSTED")
		return
	}
	if v.publicID == "" {
		v.publicID = l.publicID()
	}
	v.registered, v.recordID, v.hash, v.previous, v.receivedAt, v.generatedAt = true, l.id("rec"), r.Hash,
		r.PreviousVersion, l.time(), r.GeneratedAt
	v.salt = base64.RawURLEncoding.EncodeToString([]byte(v.publicID)[:16])
	former := d.highest
	d.highest = max(d.highest, r.Version)
	references := evidence.References{
		CompanyReference: d.company, Source: d.source, DocumentReference: d.reference, Version: int64(r.Version),
		Salt: v.salt,
	}
	var sum evidence.Hash
	received, err := time.Parse(time.RFC3339Nano, v.receivedAt)
	if err = errors.Join(err, sum.UnmarshalText([]byte(r.Hash))); err != nil {
		panic(err) // the simulation generates both
	}
	payload := evidence.RecordPayload{
		Issuer: issuer, PublicID: v.publicID, SHA256: sum, SizeBytes: r.SizeBytes, MimeType: r.MimeType,
		GeneratedAt: evidence.DeclaredTime(r.GeneratedAt), ReceivedAt: received,
		ReferencesSHA256: references.SHA256(),
	}.AppendCanonical(nil)
	v.payload = string(payload)
	if v.signature, err = l.signer.Sign(payload); err != nil {
		panic(err) // the simulation holds the key
	}
	data := map[string]any{
		"recordId": v.recordID, "documentId": d.id, "companyReference": d.company, "source": d.source,
		"documentReference": d.reference, "version": r.Version,
		"previousVersion": r.PreviousVersion, "salt": v.salt, "period": period, "status": d.status(r.Version),
		"keyId":     l.signer.Key().KeyID,
		"signature": v.signature, "payload": json.RawMessage(payload),
	}
	e := l.announce(o, c.RequestID, "integrity.registered", d, r.Version, d.status(r.Version), data)
	o.used++
	o.byCompany[d.company]++
	o.units = append(o.units, e.ID)
	if former > 0 && former < r.Version && !d.versions[former].revoked {
		l.announce(
			o, c.RequestID, "integrity.superseded", d, former, "superseded",
			map[string]any{"documentId": d.id, "version": former, "byVersion": r.Version},
		)
	}
	c.Status = 201
	use(1)
}

func (l *ledger) revoke(o *organization, c *history.Call) {
	d, number := o.find(c.Request.PublicID)
	if d == nil || !d.versions[number].registered || !o.keys[c.Key].grants[d.company] {
		refuse(c, 404, "RECORD_NOT_FOUND")
		return
	}
	v := d.versions[number]
	c.Answer.Replayed = v.revoked
	if !v.revoked {
		v.revoked = true
		l.announce(
			o, c.RequestID, "integrity.revoked", d, number, "revoked",
			map[string]any{"documentId": d.id, "version": number, "reason": nil},
		)
	}
	c.Answer.RecordAnswer, c.Answer.Sequence = d.record(number), o.sequence
}

func (o *organization) find(publicID string) (*document, int32) {
	for _, d := range o.documents {
		for number, v := range d.versions {
			if v.publicID == publicID && publicID != "" {
				return d, number
			}
		}
	}
	return nil, 0
}

// envelope returns the private export of a record.
func (l *ledger) envelope(o *organization, d *document, number int32) []byte {
	v := d.versions[number]
	e := evidence.NewEnvelope(evidence.NewSigned([]byte(v.payload), v.signature, l.signer.Key()))
	e.References = &evidence.References{
		CompanyReference: d.company, Source: d.source, DocumentReference: d.reference, Version: int64(number), Salt: v.salt,
	}
	observed, err := l.signer.SignPayload(evidence.StatusPayload{
		PublicID: v.publicID, PayloadSHA256: sha256.Sum256([]byte(v.payload)), Status: evidence.Status(d.status(number)),
		ObservedAt: epoch.Add(time.Duration(l.now)).Truncate(time.Microsecond), Sequence: o.sequence,
	}.AppendCanonical(nil))
	if err != nil {
		panic(err) // as above
	}
	e.StatusObservation = &observed
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		panic(err)
	}
	return []byte(strings.TrimSpace(text.String()))
}
