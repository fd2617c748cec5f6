// Package history is the record of a weather drill: the calls and answers of every client, the faults, and the final
// content of the ledger. The harness writes it and the checker reads it; neither knows the other.
//
// A run is a directory. history.jsonl holds one Entry per line, in any order except that the header comes first.
// Entries name other files in the directory by relative path.
//
// All times are nanoseconds on one monotonic clock of the harness, from the start of the run. The clocks of services
// may be wrong; this one must not.
package history

// FileName is the name of the history in a run's directory.
const FileName = "history.jsonl"

// Kind names the member of an Entry that is set.
type Kind string

// The kinds of entries.
const (
	KindHeader Kind = "header"
	KindCall   Kind = "call"
	KindFault  Kind = "fault"
	KindEnd    Kind = "end"
)

// Entry is a line of the history. Only its kind's member is set.
type Entry struct {
	Kind   Kind    `json:"kind"`
	Header *Header `json:"header,omitempty"`
	Call   *Call   `json:"call,omitempty"`
	Fault  *Fault  `json:"fault,omitempty"`
	End    *End    `json:"end,omitempty"`
}

// Header describes the run.
type Header struct {
	Seed          uint64            `json:"seed"`
	StartedAt     string            `json:"startedAt"` // wall clock, RFC 3339, for readers
	Seconds       int64             `json:"seconds"`   // planned duration of the faults
	Versions      map[string]string `json:"versions"`  // of the service, PostgreSQL, NATS and Go
	Organizations []Organization    `json:"organizations"`
	// SkewNanoseconds is the largest error of any service's clock.
	SkewNanoseconds int64 `json:"skewNanoseconds"`
	// Prefix is the position of each shard before the run: no call of this history made the events up to it.
	Prefix map[int]int64 `json:"prefix,omitempty"`
	// Former means that the previous version of the service, too, may have answered and published during the run.
	Former bool `json:"former,omitempty"`
	// Lost means that the ledger was lost at the end, so that nobody could look up what became of unknown writes.
	Lost bool `json:"lost,omitempty"`
}

// Organization is an organization with clients. VersionsPerMonth is nil without a limit.
type Organization struct {
	ID               string    `json:"id"` // org_…
	Name             string    `json:"name"`
	Plan             string    `json:"plan"`
	VersionsPerMonth *int64    `json:"versionsPerMonth"`
	Companies        []Company `json:"companies"` // all companies, including those created during the run
}

// Company is a company of an organization. The log identifies it by ID, the API by Reference.
type Company struct {
	ID        string `json:"id"` // com_…
	Reference string `json:"reference"`
}

// Operation is the kind of a call.
type Operation string

// The operations. Each item of a batch is a separate call: Register, with Batch set.
const (
	Register     Operation = "register"
	Reserve      Operation = "reserve"
	Release      Operation = "release" // a reservation
	Revoke       Operation = "revoke"  // a record
	Compare      Operation = "compare" // the public comparison
	Lookup       Operation = "lookup"  // by the origin's reference
	Record       Operation = "record"  // by the public id
	FeedPage     Operation = "feedPage"
	Search       Operation = "search"
	UsageRead    Operation = "usage"
	EvidenceRead Operation = "evidence"
	// one entry of a company's pending reservations: Request.PublicID or the version
	ReservationRead Operation = "reservation"
	CompanyCreate   Operation = "companyCreate"
	KeyCreate       Operation = "keyCreate"
	KeyRotate       Operation = "keyRotate"
	KeyRevoke       Operation = "keyRevoke"
	KeyRead         Operation = "key"    // reads Request.Target, as an administrator
	KeyUse          Operation = "keyUse" // a request that any working key may make, such as /me
	Grant           Operation = "grant"  // adds or removes a key's access to a company: Request.Enabled
	WebhookGrant    Operation = "webhookGrant"
	Upload          Operation = "upload" // creates an artifact, or a later version of one
	Review          Operation = "review"
	Approve         Operation = "approve"
	Certify         Operation = "certify"
	CertificateEnd  Operation = "certificateRevoke"
	ArtifactRead    Operation = "artifact"
	CertificateRead Operation = "certificate" // POST /verify, or the public verification
)

// Writes reports whether the operation may change the ledger.
func (o Operation) Writes() bool {
	switch o {
	case Register, Reserve, Release, Revoke, CompanyCreate, KeyCreate, KeyRotate, KeyRevoke, Grant, WebhookGrant,
		Upload, Review, Approve, Certify, CertificateEnd:
		return true
	}
	return false
}

// Outcome is what a client knows after a call.
type Outcome string

// The outcomes. A refused call changed nothing. An unknown call may take effect once, at any time after its start, or
// never.
const (
	Answered Outcome = "answer"
	Refused  Outcome = "refusal"
	Unknown  Outcome = "unknown"
)

// Judge returns the outcome that an HTTP answer shows. complete means that the whole answer arrived, and its body is
// the contract's envelope (or the route's other format). A batch item is judged by its own status.
//
// The outcome is unknown if only a repetition can settle it: after an incomplete answer, 408 or any 5xx. A 503 may mean
// that the connection broke during COMMIT, and its body does not tell, so every 503 is unknown.
func Judge(status int, complete bool) Outcome {
	switch {
	case !complete, status == 408, status >= 500, status < 200:
		return Unknown
	case status < 300:
		return Answered
	default:
		return Refused
	}
}

// Call is one request of a client, written when its outcome is known or given up.
type Call struct {
	Number int64 `json:"number"` // from 1, unique for each call
	// RequestID is sent as X-Request-Id. Each HTTP request has a different one, also a repetition. The log stores it with
	// each event, and so shows the effect of an unknown call.
	RequestID    string `json:"requestId"`
	Batch        int64  `json:"batch,omitempty"` // the same for all items of a request
	Client       string `json:"client"`
	Organization string `json:"organization,omitempty"` // org_…; empty for a public call
	Company      string `json:"company,omitempty"`      // its reference
	Service      string `json:"service"`                // the process that got the request
	Key          string `json:"key,omitempty"`          // key_… of the credential

	Operation Operation `json:"operation"`
	Request   Request   `json:"request"`
	Start     int64     `json:"start"`
	End       int64     `json:"end"` // for an unknown call: when the client gave up

	Outcome Outcome `json:"outcome"`
	Status  int     `json:"status,omitempty"` // HTTP status; 0 without an answer
	Code    string  `json:"code,omitempty"`   // of a refusal; for an unknown call a description
	Answer  Answer  `json:"answer"`
}

// Request holds the parts of a request that the models need.
type Request struct {
	Source          string `json:"source,omitempty"`
	Document        string `json:"document,omitempty"`
	Version         int32  `json:"version,omitempty"`
	PreviousVersion *int32 `json:"previousVersion,omitempty"`
	Hash            string `json:"hash,omitempty"` // declared, compared, searched or uploaded; lower case
	SizeBytes       int64  `json:"sizeBytes,omitempty"`
	MimeType        string `json:"mimeType,omitempty"`
	GeneratedAt     string `json:"generatedAt,omitempty"` // as the service normalizes it
	ReservationID   string `json:"reservationId,omitempty"`
	// PublicID is the subject of compare, record, revoke, release and evidence, or a certificate.
	PublicID string `json:"publicId,omitempty"`

	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	ReadAfter      *int64 `json:"readAfter,omitempty"`
	After          int64  `json:"after,omitempty"` // cursor of a feed page
	Limit          int    `json:"limit,omitempty"`

	Target         string `json:"target,omitempty"`  // key_… or whk_… that the call is about
	Enabled        *bool  `json:"enabled,omitempty"` // of a grant
	OverlapSeconds int64  `json:"overlapSeconds,omitempty"`

	// Artifact is art_…; for an upload, the artifact that gets a later version.
	Artifact        string `json:"artifact,omitempty"`
	ArtifactVersion string `json:"artifactVersion,omitempty"` // ver_…
	ReviewOutcome   string `json:"reviewOutcome,omitempty"`   // accepted or changes_requested
}

// Answer holds the parts of an answer that the models need, also of a refusal, and of an unknown answer if it has any.
type Answer struct {
	// Sequence is the header Integrity-Sequence of a write: the organization's sequence after it.
	Sequence int64 `json:"sequence,omitempty"`
	Replayed bool  `json:"replayed,omitempty"` // the member replayed, or the header Idempotent-Replayed
	Applied  int64 `json:"applied,omitempty"`  // consumption.applied

	RecordAnswer
	// pending, finalized or released; empty: not listed as pending
	ReservationStatus string `json:"reservationStatus,omitempty"`
	Result            string `json:"result,omitempty"` // of a comparison, MATCH_CURRENT …; for a certificate its reason
	Existing          string `json:"existing,omitempty"`

	Period      string `json:"period,omitempty"`
	Used        *int64 `json:"used,omitempty"`        // of the organization
	CompanyUsed *int64 `json:"companyUsed,omitempty"` // of the company of the call

	Records    []RecordAnswer `json:"records,omitempty"` // of a search, from all pages
	Events     []FeedEvent    `json:"events,omitempty"`  // of a feed page
	NextCursor int64          `json:"nextCursor,omitempty"`
	HasMore    bool           `json:"hasMore,omitempty"`
	Epoch      int64          `json:"epoch,omitempty"`

	File string `json:"file,omitempty"` // the evidence, unchanged

	Key       string `json:"key,omitempty"`      // key_… created, or the successor
	KeyState  string `json:"keyState,omitempty"` // working, ending (it was rotated) or revoked
	Granted   bool   `json:"granted,omitempty"`  // the key that was read may use the call's company
	CompanyID string `json:"companyId,omitempty"`

	Artifact        string `json:"artifact,omitempty"`
	ArtifactVersion string `json:"artifactVersion,omitempty"`
	State           string `json:"state,omitempty"`       // of the artifact's version
	Certificate     string `json:"certificate,omitempty"` // its public id
	// CertificateStatus is valid, revoked or replaced.
	CertificateStatus string `json:"certificateStatus,omitempty"`
	Act               string `json:"act,omitempty"` // rvw_… or apr_…
}

// RecordAnswer is a record in an answer. Status is current, superseded or revoked.
type RecordAnswer struct {
	PublicID     string `json:"publicId,omitempty"`
	RecordID     string `json:"recordId,omitempty"`
	Company      string `json:"company,omitempty"`
	Source       string `json:"source,omitempty"`
	Document     string `json:"document,omitempty"`
	Version      int32  `json:"version,omitempty"`
	Hash         string `json:"hash,omitempty"`
	Status       string `json:"status,omitempty"`
	SupersededBy *int32 `json:"supersededBy,omitempty"`
	ReceivedAt   string `json:"receivedAt,omitempty"`
}

// FeedEvent is an event in a feed. Its JSON form is the same in the API and in the stream's messages.
type FeedEvent struct {
	ID                string `json:"id"`
	Sequence          int64  `json:"sequence"`
	Type              string `json:"type"`
	OccurredAt        string `json:"occurredAt"`
	PublicID          string `json:"publicId"`
	SHA256            string `json:"sha256"`
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
	RecordStatus      string `json:"recordStatus"`
}

// Fault is a fault that was made and healed.
type Fault struct {
	Number int64 `json:"number"`
	// the fault: kill, freeze, cut, delay, drip, half-open, one-way, clock, disk-full, failover …
	Name   string `json:"name"`
	Target string `json:"target"` // the process, or the two ends of a link
	Start  int64  `json:"start"`
	End    int64  `json:"end"` // when it was healed
	// RecoveredAt is when the first write through the target was acknowledged after End; 0 if that was not watched.
	RecoveredAt int64  `json:"recoveredAt,omitempty"`
	Detail      string `json:"detail,omitempty"`
}
