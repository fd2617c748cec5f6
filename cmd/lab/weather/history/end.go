package history

import "encoding/json"

// End is a part of the final state of the ledger and its followers, after everything has healed and settled. Exactly
// one member is set.
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
	Loss       *Loss       `json:"loss,omitempty"`
}

// LogEvent is an event of the log. Its JSON form is a line of integrity replay, which has further members.
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
	Actor        string          `json:"actor"`
	Data         json.RawMessage `json:"data"`
	Hash         string          `json:"hash"` // leaf hash, hexadecimal
}

// Message is a message of the broker's stream.
type Message struct {
	Number       uint64    `json:"number"` // in the stream
	ID           string    `json:"id"`     // from the header Nats-Msg-Id
	Organization string    `json:"organization"`
	Event        FeedEvent `json:"event"` // the body
}

// Webhook is a destination. From the sequence From on it was enabled and authorized for the company without
// interruption, so it must get every event of the company after From.
type Webhook struct {
	ID           string `json:"id"`
	Organization string `json:"organization"`
	Company      string `json:"company"` // its reference
	From         int64  `json:"from"`
}

// Delivery is a delivery listed by GET …/deliveries. Each event has one delivery per destination.
type Delivery struct {
	ID      string `json:"id"` // dlv_…
	Webhook string `json:"webhook"`
	EventID string `json:"eventId"`
	State   string `json:"state"`
}

// Receipt is one attempt as the receiver saw it. If the receiver's answer was lost, the event comes again with the same
// body.
type Receipt struct {
	Webhook    string `json:"webhook"`
	At         int64  `json:"at"`
	EventID    string `json:"eventId"` // from the body
	BodySHA256 string `json:"bodySha256"`
	Signed     bool   `json:"signed"` // the signature is valid with the receiver's secret
	Status     int    `json:"status"` // the receiver's answer
	PublicID   string `json:"publicId"`
	Version    int32  `json:"version"`
	// RecordStatus is taken from the body.
	RecordStatus string `json:"recordStatus"`
}

// Usage is an organization's month: the answer of GET …/usage, the number of units that GET …/usage/entries lists, and
// their events.
type Usage struct {
	Organization string           `json:"organization"`
	Period       string           `json:"period"`
	Used         int64            `json:"used"`
	Companies    map[string]int64 `json:"companies"` // by reference
	Entries      []string         `json:"entries"`   // event IDs
}

// Checkpoint is a signed note that a client, the monitor, a witness or the harness has seen.
type Checkpoint struct {
	Seen int64  `json:"seen"` // when it was seen
	By   string `json:"by"`
	Note string `json:"note"`
}

// Leaves names a file with the leaf hashes of the whole tree, 32 bytes each, as in the tiles of level 0.
type Leaves struct {
	File string `json:"file"`
}

// Evidence names a file with exported evidence. Certificate marks a downloaded certificate.
type Evidence struct {
	PublicID    string `json:"publicId"`
	File        string `json:"file"`
	Certificate bool   `json:"certificate,omitempty"`
}

// Trust names the pinned trusted-keys file.
type Trust struct {
	File string `json:"file"`
}

// The verdicts that a run must have.
const (
	AuditVerdict   = "audit"   // integrity audit
	RebuildVerdict = "rebuild" // integrity rebuild --check
	BundleVerdict  = "bundle"  // integrity audit BUNDLE, for each organization
)

// Verdict is the result of one of the service's commands on the final ledger.
type Verdict struct {
	Name         string `json:"name"`
	Organization string `json:"organization,omitempty"`
	Exit         int    `json:"exit"`
	Clean        bool   `json:"clean"`
	Output       string `json:"output"` // shortened for readers
}

// Monitor is the final report of a monitor or a witness. Alarm is empty without an alarm.
type Monitor struct {
	Name  string `json:"name"`
	Size  int64  `json:"size"` // size of the tree it has seen
	Alarm string `json:"alarm,omitempty"`
}

// Loss is the loss of a region: its ledger went on in another region, from a standby that lacked the last events. The
// log of the end state is what the second region has.
type Loss struct {
	At     int64         `json:"at"`     // when nothing of the first region ran any more
	Region string        `json:"region"` // the names of the second region's services begin with it
	Kept   map[int]int64 `json:"kept"`   // position of each shard on the standby when it was promoted
	Lost   []LogEvent    `json:"lost"`   // the events beyond, read from the dead region's disk
	// Planned are the public ids that integrity heal plan printed as lost.
	Planned []string `json:"planned"`
	// HealedFrom and HealedTo are the moments between which integrity heal apply ran.
	HealedFrom int64 `json:"healedFrom"`
	HealedTo   int64 `json:"healedTo"`
}

// Parts returns the entries of an end state.
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
	if s.Loss != nil {
		list = append(list, End{Loss: s.Loss})
	}
	return list
}

func parts[T any](list []End, of []T, wrap func(*T) End) []End {
	for i := range of {
		list = append(list, wrap(&of[i]))
	}
	return list
}
