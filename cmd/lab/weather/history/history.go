// Package history is the record of a weather drill: the calls and answers of every client, the faults, and the final
// content of the ledger. The harness writes it and the checker reads it; neither knows the other.
//
// A run is a directory. history.jsonl holds one Entry per line, in any order except that the header comes first.
// Entries name other files in the directory by relative path.
//
// All times are nanoseconds on one monotonic clock of the harness, from the start of the run. The clocks of services
// may be wrong; this one must not.
package history

// FileName is the history in the directory of a run.
const FileName = "history.jsonl"

// Kind says which member of an Entry is set.
type Kind string

// The kinds of entries.
const (
	KindHeader Kind = "header"
	KindCall   Kind = "call"
	KindFault  Kind = "fault"
	KindEnd    Kind = "end"
)

// Entry is a line of the history. Exactly the member of its kind is set.
type Entry struct {
	Kind   Kind    `json:"kind"`
	Header *Header `json:"header,omitempty"`
	Call   *Call   `json:"call,omitempty"`
	Fault  *Fault  `json:"fault,omitempty"`
	End    *End    `json:"end,omitempty"`
}

// Header says what the run was.
type Header struct {
	Seed          uint64            `json:"seed"`
	StartedAt     string            `json:"startedAt"` // by the wall clock, RFC 3339, for people
	Seconds       int64             `json:"seconds"`   // for how long the faults were meant to last
	Versions      map[string]string `json:"versions"`  // what ran: the service, PostgreSQL, NATS, Go
	Organizations []Organization    `json:"organizations"`
	// SkewNanoseconds is the most by which any clock of a service was moved away from the true time.
	SkewNanoseconds int64 `json:"skewNanoseconds"`
}

// Organization is one whose clients call. VersionsPerMonth is nil without a limit.
type Organization struct {
	ID               string    `json:"id"` // org_…
	Name             string    `json:"name"`
	Plan             string    `json:"plan"`
	VersionsPerMonth *int64    `json:"versionsPerMonth"`
	Companies        []Company `json:"companies"` // all, also those that are made during the run and known at its end
}

// Company of an organization. The log names it by ID, the API by Reference.
type Company struct {
	ID        string `json:"id"` // com_…
	Reference string `json:"reference"`
}

// Operation is what a call asks for.
type Operation string

// The operations. One item of a batch is a call of its own: Register, with Batch set.
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
	KeyRead         Operation = "key"    // Request.Target, by an administrator
	KeyUse          Operation = "keyUse" // asks for something that any working key may have, such as /me
	Grant           Operation = "grant"  // adds or removes a key's access to a company: Request.Enabled
	WebhookGrant    Operation = "webhookGrant"
	Upload          Operation = "upload" // an artifact, or a later version of one
	Review          Operation = "review"
	Approve         Operation = "approve"
	Certify         Operation = "certify"
	CertificateEnd  Operation = "certificateRevoke"
	ArtifactRead    Operation = "artifact"
	CertificateRead Operation = "certificate" // POST /verify, or the public verification
)

// Writes reports whether a call of the operation may change the ledger.
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

// The outcomes. After a refusal nothing has changed. An unknown call may take effect at any time from its start on,
// once or never.
const (
	Answered Outcome = "answer"
	Refused  Outcome = "refusal"
	Unknown  Outcome = "unknown"
)

// Judge says what an HTTP answer lets its client know. complete: the whole answer arrived, and its body is the envelope
// of the contract (or what else the route answers). An item of a batch is judged by its own status.
//
// Unknown is what a repetition alone can settle: no complete answer, 408 and every 5xx. A 503 may mean that the
// connection broke while COMMIT was on its way; its body does not say whether it did, so every 503 counts as one.
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

// Call is one request of one client, written when its outcome is known or given up.
type Call struct {
	Number int64 `json:"number"` // from 1, one a call
	// RequestID goes out as X-Request-Id and is that of one HTTP request alone, not of its repetition too: the log
	// keeps it with each event, and so tells what an unknown call has done.
	RequestID    string `json:"requestId"`
	Batch        int64  `json:"batch,omitempty"` // one number for all items of a request
	Client       string `json:"client"`
	Organization string `json:"organization,omitempty"` // org_…; empty for a public call
	Company      string `json:"company,omitempty"`      // its reference
	Service      string `json:"service"`                // the process that was asked
	Key          string `json:"key,omitempty"`          // key_… of the credential

	Operation Operation `json:"operation"`
	Request   Request   `json:"request"`
	Start     int64     `json:"start"`
	End       int64     `json:"end"` // of an unknown call: when the client gave up

	Outcome Outcome `json:"outcome"`
	Status  int     `json:"status,omitempty"` // of HTTP; 0 without an answer
	Code    string  `json:"code,omitempty"`   // of a refusal; of an unknown call what is known of it
	Answer  Answer  `json:"answer"`
}

// Request is what a model must know of a request.
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
	PublicID        string `json:"publicId,omitempty"` // of compare, record, revoke, release, evidence; of a certificate

	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	ReadAfter      *int64 `json:"readAfter,omitempty"`
	After          int64  `json:"after,omitempty"` // the cursor of a feed page
	Limit          int    `json:"limit,omitempty"`

	Target         string `json:"target,omitempty"`  // key_… or whk_… that the call is about
	Enabled        *bool  `json:"enabled,omitempty"` // of a grant
	OverlapSeconds int64  `json:"overlapSeconds,omitempty"`

	Artifact        string `json:"artifact,omitempty"`        // art_…; of an upload: of which it is a later version
	ArtifactVersion string `json:"artifactVersion,omitempty"` // ver_…
	ReviewOutcome   string `json:"reviewOutcome,omitempty"`   // accepted or changes_requested
}

// Answer is what a model must know of an answer, of a refusal and of an unknown one too where it says something.
type Answer struct {
	// Sequence is the header Integrity-Sequence, of writes: the organization's, after the write.
	Sequence int64 `json:"sequence,omitempty"`
	Replayed bool  `json:"replayed,omitempty"` // the member replayed, or the header Idempotent-Replayed
	Applied  int64 `json:"applied,omitempty"`  // consumption.applied

	RecordAnswer
	// pending, finalized or released; empty: not among those that are pending
	ReservationStatus string `json:"reservationStatus,omitempty"`
	Result            string `json:"result,omitempty"` // of a comparison, MATCH_CURRENT …; of a certificate its reason
	Existing          string `json:"existing,omitempty"`

	Period      string `json:"period,omitempty"`
	Used        *int64 `json:"used,omitempty"`        // of the organization
	CompanyUsed *int64 `json:"companyUsed,omitempty"` // of the company of the call

	Records    []RecordAnswer `json:"records,omitempty"` // of a search, all pages of it
	Events     []FeedEvent    `json:"events,omitempty"`  // of a feed page
	NextCursor int64          `json:"nextCursor,omitempty"`
	HasMore    bool           `json:"hasMore,omitempty"`
	Epoch      int64          `json:"epoch,omitempty"`

	File string `json:"file,omitempty"` // the evidence, as it came

	Key       string `json:"key,omitempty"`      // key_… created, or the successor
	KeyState  string `json:"keyState,omitempty"` // working, ending (it was rotated) or revoked
	Granted   bool   `json:"granted,omitempty"`  // the key that was read may use the company of the call
	CompanyID string `json:"companyId,omitempty"`

	Artifact        string `json:"artifact,omitempty"`
	ArtifactVersion string `json:"artifactVersion,omitempty"`
	State           string `json:"state,omitempty"`       // of the artifact's version
	Certificate     string `json:"certificate,omitempty"` // its public id
	// CertificateStatus is valid, revoked or replaced.
	CertificateStatus string `json:"certificateStatus,omitempty"`
	Act               string `json:"act,omitempty"` // rvw_… or apr_…
}

// RecordAnswer is a record as an answer shows it. Status is current, superseded or revoked.
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

// FeedEvent is an event as the feed shows it; its JSON form is that of the API, and of a message of the stream.
type FeedEvent struct {
	ID                string `json:"id"`
	Sequence          int64  `json:"sequence"`
	Type              string `json:"type"`
	OccurredAt        string `json:"occurredAt"`
	PublicID          string `json:"publicId"`
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
	RecordStatus      string `json:"recordStatus"`
}

// Fault is one that was made, and healed.
type Fault struct {
	Number int64 `json:"number"`
	// what was done: kill, freeze, cut, delay, drip, half-open, one-way, clock, disk-full, failover …
	Name   string `json:"name"`
	Target string `json:"target"` // to which process, or between which two
	Start  int64  `json:"start"`
	End    int64  `json:"end"` // when it was healed
	// RecoveredAt is when the first write through the target was acknowledged after End; 0 where it was not looked for.
	RecoveredAt int64  `json:"recoveredAt,omitempty"`
	Detail      string `json:"detail,omitempty"`
}
