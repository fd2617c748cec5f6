package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/client/outbox"
)

// Summary says what became of every document of the data directory.
type Summary struct {
	Documents  int `json:"documents"`
	WithLink   int `json:"withLink"`
	Delivered  int `json:"delivered"`
	Registered int `json:"registered"` // answer and evidence are stored
	Stopped    int `json:"stopped"`    // need correction
	// Same are those whose hash is the same at finalization, in the stored bytes, in
	// the delivered file, in the service's answer and inside the evidence.
	Same int `json:"sameHashEverywhere"`
	// SlowestMs is the longest from allocation to delivery.
	SlowestMs int64 `json:"slowestMs"`
	// Problems are in words, a document each.
	Problems []string `json:"problems"`
}

// Summarize reads everything again and compares.
func (s *System) Summarize(ctx context.Context) (Summary, error) {
	out := Summary{Problems: []string{}}
	last, err := s.last(ctx)
	if err != nil {
		return out, err
	}
	var slowest time.Duration
	for number := 1; number <= last; number++ {
		out.Documents++
		d, err := s.file(ctx, "d.number", number)
		if errors.Is(err, sql.ErrNoRows) {
			continue // allocated, and interrupted: the next run emits it
		}
		if err != nil {
			out.Problems = append(out.Problems, fmt.Sprintf("document %d: %v", number, err))
			continue
		}
		if d.link != "" {
			out.WithLink++
		}
		if !d.deliveredAt.IsZero() {
			out.Delivered++
			slowest = max(slowest, d.deliveredAt.Sub(d.allocatedAt))
		}
		item, err := s.outbox.Find(ctx, s.version(d))
		if err != nil {
			return out, err
		}
		switch item.State {
		case outbox.Done:
			out.Registered++
		case outbox.Stopped:
			out.Stopped++
			out.Problems = append(out.Problems, fmt.Sprintf("%s: %s", d.reference, item.Problem))
			continue
		default:
			continue
		}
		if problem := s.differs(d, item); problem != "" {
			out.Problems = append(out.Problems, fmt.Sprintf("%s: %s", d.reference, problem))
			continue
		}
		out.Same++
	}
	out.SlowestMs = slowest.Milliseconds()
	return out, nil
}

// differs names the place where another hash stands; the stored bytes were compared when they were read.
func (s *System) differs(d issued, item outbox.Item) string {
	delivered, err := os.ReadFile(s.deliveredPath(d))
	if err != nil {
		return err.Error()
	}
	envelope, err := evidence.ParseEnvelope(item.Evidence)
	if err != nil {
		return "evidence: " + err.Error()
	}
	payload, err := evidence.ParseRecordPayload([]byte(envelope.Payload))
	if err != nil {
		return "evidence: " + err.Error()
	}
	for place, sum := range map[string]string{
		"the delivered file": hexSHA256(delivered), "the declaration": item.Declaration.SHA256, "the service's answer": item.Response.SHA256, "the evidence": payload.SHA256,
	} {
		if sum != d.sha256 {
			return place + " has another SHA-256 than the finalized document"
		}
	}
	return ""
}
