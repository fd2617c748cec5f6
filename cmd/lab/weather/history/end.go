package history

import "encoding/json"

// End is a part of what the ledger and all who follow it hold after everything has healed and come to rest. Exactly one
// member is set.
type End struct {
	Log        *LogEvent   `json:"log,omitempty"`
	Feed       *FeedEvent  `json:"feed,omitempty"`
	Stream     *Message    `json:"stream,omitempty"`
	Webhook    *Webhook    `json:"webhook,omitempty"`
	Delivery   *Delivery   `json:"delivery,omitempty"`
	Receipt    *Receipt    `json:"receipt,omitempty"`
	Usage      *Usage      `json:"usage,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Leaves     *Leaves     `json:"leaves,omitempty"`
	Evidence   *Evidence   `json:"evidence,omitempty"`
	Trust      *Trust      `json:"trust,omitempty"`
	Verdict    *Verdict    `json:"verdict,omitempty"`
	Monitor    *Monitor    `json:"monitor,omitempty"`
}

// LogEvent is an event of the log. Its JSON form is a line of integrity replay, which has members besides.
type LogEvent struct {
	Shard        int             `json:"shard"`
	Position     int64           `json:"position"` // of the shard, gapless from 1
	Organization string          `json:"organization"`
	Sequence     int64           `json:"sequence"` // of the organization, gapless from 1
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Company      *string         `json:"company"` // com_…
	Subject      string          `json:"subject"`
	OccurredAt   string          `json:"occurredAt"`
	RequestID    string          `json:"requestId"`
	Data         json.RawMessage `json:"data"`
	Hash         string          `json:"hash"` // of its leaf, hexadecimal
}

// Message is one of the stream of the broker, in its order.
type Message struct {
	Number       uint64    `json:"number"` // of the stream
	ID           string    `json:"id"`     // the header Nats-Msg-Id
	Organization string    `json:"organization"`
	Event        FeedEvent `json:"event"` // its body
}

// Webhook is a destination. From the sequence From on it was authorized for the company without a break and enabled, so
// it must get every event of that company after From.
type Webhook struct {
	ID           string `json:"id"`
	Organization string `json:"organization"`
	Company      string `json:"company"` // its reference
	From         int64  `json:"from"`
}

// Delivery is one that the service keeps: what GET …/deliveries lists. One event goes to one destination once.
type Delivery struct {
	ID      string `json:"id"` // dlv_…
	Webhook string `json:"webhook"`
	EventID string `json:"eventId"`
	State   string `json:"state"`
}

// Receipt is one attempt as a receiver saw it. An event may come again where the receiver's answer did not arrive; its
// body is the same then.
type Receipt struct {
	Webhook    string `json:"webhook"`
	At         int64  `json:"at"`
	EventID    string `json:"eventId"` // the body's id
	BodySHA256 string `json:"bodySha256"`
	Signed     bool   `json:"signed"` // the signature holds by the secret that the receiver knows
	Status     int    `json:"status"` // what the receiver answered
	PublicID   string `json:"publicId"`
	Version    int32  `json:"version"`
	// RecordStatus as the body says it.
	RecordStatus string `json:"recordStatus"`
}

// Usage is one organization's month: what GET …/usage says, how many units GET …/usage/entries lists, and their events.
type Usage struct {
	Organization string           `json:"organization"`
	Period       string           `json:"period"`
	Used         int64            `json:"used"`
	Companies    map[string]int64 `json:"companies"` // by reference
	Entries      []string         `json:"entries"`   // ids of events
}

// Checkpoint is a signed note that somebody saw: a client, the monitor, a witness or the harness.
type Checkpoint struct {
	Seen int64  `json:"seen"` // when
	By   string `json:"by"`
	Note string `json:"note"`
}

// Leaves names a file with the leaf hashes of the whole tree: 32 bytes each, as the tiles of level 0 hold them.
type Leaves struct {
	File string `json:"file"`
}

// Evidence names a file with an exported evidence. Certificate says that it is a downloaded certificate.
type Evidence struct {
	PublicID    string `json:"publicId"`
	File        string `json:"file"`
	Certificate bool   `json:"certificate,omitempty"`
}

// Trust names the trusted-keys file, as it was pinned.
type Trust struct {
	File string `json:"file"`
}

// The verdicts that a run must have.
const (
	AuditVerdict   = "audit"   // integrity audit
	RebuildVerdict = "rebuild" // integrity rebuild --check
	BundleVerdict  = "bundle"  // integrity audit BUNDLE, one an organization
)

// Verdict is what a command of the service said of the ledger at the end.
type Verdict struct {
	Name         string `json:"name"`
	Organization string `json:"organization,omitempty"`
	Exit         int    `json:"exit"`
	Clean        bool   `json:"clean"`
	Output       string `json:"output"` // shortened to what a person needs
}

// Monitor is what a monitor or a witness says at the end: Alarm is empty where it is content.
type Monitor struct {
	Name  string `json:"name"`
	Size  int64  `json:"size"` // of the tree that it has seen
	Alarm string `json:"alarm,omitempty"`
}

// Parts are the entries that an end state is written as.
func (s *EndState) Parts() (list []End) {
	list = parts(list, s.Log, func(v *LogEvent) End { return End{Log: v} })
	list = parts(list, s.Feed, func(v *FeedEvent) End { return End{Feed: v} })
	list = parts(list, s.Stream, func(v *Message) End { return End{Stream: v} })
	list = parts(list, s.Webhooks, func(v *Webhook) End { return End{Webhook: v} })
	list = parts(list, s.Deliveries, func(v *Delivery) End { return End{Delivery: v} })
	list = parts(list, s.Receipts, func(v *Receipt) End { return End{Receipt: v} })
	list = parts(list, s.Usage, func(v *Usage) End { return End{Usage: v} })
	list = parts(list, s.Checkpoints, func(v *Checkpoint) End { return End{Checkpoint: v} })
	list = parts(list, s.Evidence, func(v *Evidence) End { return End{Evidence: v} })
	list = parts(list, s.Verdicts, func(v *Verdict) End { return End{Verdict: v} })
	list = parts(list, s.Monitors, func(v *Monitor) End { return End{Monitor: v} })
	if s.Leaves != nil {
		list = append(list, End{Leaves: s.Leaves})
	}
	if s.Trust != nil {
		list = append(list, End{Trust: s.Trust})
	}
	return list
}

func parts[T any](list []End, of []T, wrap func(*T) End) []End {
	for i := range of {
		list = append(list, wrap(&of[i]))
	}
	return list
}
