package origin

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

// deliveredDir is where documents are handed to whoever they are for.
const deliveredDir = "delivered"

// Config of an origin system.
type Config struct {
	Dir     string // its own; one process at a time
	Company string // reference
	Source  string // reference
	// Public is the origin of its downloads, http://127.0.0.1:8090. It stands in the documents.
	Public string
	Client *client.Client
	// Trusted are pinned keys, by which evidence is verified before it is stored; may be nil.
	Trusted *evidence.TrustedKeys
	// ReserveTimeout is how long a document waits for its link.
	ReserveTimeout time.Duration
	Now            func() time.Time
	// Report receives each step when it is over; from two goroutines.
	Report func(Step)
}

// Step is one step of one document.
type Step struct {
	At       time.Time             `json:"at"`
	Name     string                `json:"step"` // one of the names below, or an outbox.Kind
	Document wire.VersionReference `json:"document"`
	Detail   string                `json:"detail,omitempty"`
}

// The steps of an emission, in their order.
const (
	Allocated = "allocated"
	Reserved  = "reserved"
	NoLink    = "no-link" // instead of Reserved
	Finalized = "finalized"
	Committed = "committed"
	Written   = "written" // the copy is there, that it was delivered is not recorded yet
	Delivered = "delivered"
)

// System is an origin system at work.
type System struct {
	Config
	store  *store
	worker *outbox.Worker
}

// Open opens the data directory, or makes it.
func Open(ctx context.Context, c Config) (*System, error) {
	for name, reference := range map[string]string{"company": c.Company, "source": c.Source} {
		if !domain.ValidReference(reference) {
			return nil, fmt.Errorf("%s: %s", name, domain.ReferenceRule)
		}
	}
	store, err := openStore(ctx, c.Dir, identity{c.Client.BaseURL(), c.Company, c.Source, c.Public})
	if err != nil {
		return nil, fmt.Errorf("origin: %w", err)
	}
	s := &System{Config: c, store: store}
	s.worker = outbox.NewWorker(outbox.Config{Outbox: store.outbox, Client: c.Client, Trusted: c.Trusted, Now: c.Now, Report: s.registration})
	return s, nil
}

// Close lets go of the data directory.
func (s *System) Close() error { return s.store.close() }

// Work registers what was emitted (step 6) until ctx ends, or after Finish until nothing waits any more.
func (s *System) Work(ctx context.Context) error { return s.worker.Run(ctx) }

// Finish tells that nothing will be emitted any more.
func (s *System) Finish() { s.worker.Finish() }

// Retry takes up what has stopped, and returns how many.
func (s *System) Retry(ctx context.Context) (int64, error) { return s.store.outbox.Retry(ctx) }

func (s *System) step(name string, v wire.VersionReference, detail string) {
	s.Report(Step{At: s.Now().UTC(), Name: name, Document: v, Detail: detail})
}

func (s *System) registration(r outbox.Report) {
	var detail string
	switch {
	case r.Kind == outbox.Postponed:
		detail = fmt.Sprintf("again in %s: %v", r.Again.Round(time.Second), r.Err)
	case r.Err != nil:
		detail = r.Err.Error()
	case r.Registration != nil:
		detail = r.Registration.PublicID
		if r.Registration.Replayed {
			detail += " (replayed: it had arrived before)"
		}
	}
	s.step(string(r.Kind), r.Version, detail)
}

func (s *System) version(d issued) wire.VersionReference {
	return wire.VersionReference{CompanyReference: s.Company, Source: s.Source, DocumentReference: d.reference, Version: d.version}
}

// Last is the number of the last document that was begun, by whatever process; 0: none.
func (s *System) Last(ctx context.Context) (int, error) { return s.store.last(ctx) }

// Emit sees to it that the document of a number, counted from 1, is delivered: what was begun by an earlier process is
// taken up where it was. It reports whether anything was left to do.
func (s *System) Emit(ctx context.Context, number int) (bool, error) {
	d, err := s.store.allocate(ctx, number, "doc-"+opaque(), opaque(), s.Now())
	if err != nil {
		return false, err
	}
	if !d.deliveredAt.IsZero() {
		return false, nil
	}
	if !d.final {
		s.step(Allocated, s.version(d), "")
		if err := s.finalize(ctx, d); err != nil {
			return false, err
		}
		s.worker.Wake()
	}
	return true, s.deliver(ctx, number)
}

// opaque is a random name of 130 bits that says nothing (specification, "Company").
func opaque() string { return strings.ToLower(rand.Text()) }

// finalize is steps 2 to 5.
func (s *System) finalize(ctx context.Context, d issued) error {
	v := s.version(d)
	reservation, err := s.reserve(ctx, v)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		s.step(NoLink, v, err.Error())
	default:
		s.step(Reserved, v, reservation.VerificationURL)
	}
	d.link, d.finalizedAt = reservation.VerificationURL, s.Now().UTC().Truncate(time.Millisecond)
	d.pdf, err = document{d.reference, d.version, d.finalizedAt, s.Public + downloadPath + d.token, d.link}.render()
	if err != nil {
		return err
	}
	declaration, err := client.Declare(v, bytes.NewReader(d.pdf), "application/pdf", d.finalizedAt)
	if err != nil {
		return err
	}
	declaration.ReservationID, d.sha256 = reservation.PublicID, declaration.SHA256
	s.step(Finalized, v, d.sha256)
	if err := s.store.commit(ctx, d, declaration); err != nil {
		return err
	}
	s.step(Committed, v, "")
	return nil
}

// reserve asks for the link, for so long and no longer. Any failure means: no link.
func (s *System) reserve(ctx context.Context, v wire.VersionReference) (wire.Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, s.ReserveTimeout)
	defer cancel()
	r, err := s.Client.Reserve(ctx, v)
	if err != nil {
		return wire.Reservation{}, err
	}
	return r, nil
}

// deliver hands out a copy of the final bytes. Doing it twice writes the same file.
func (s *System) deliver(ctx context.Context, number int) error {
	d, err := s.store.file(ctx, "d.number", number)
	if err != nil {
		return fmt.Errorf("deliver document %d: %w", number, err)
	}
	if err := writeFile(s.deliveredPath(d), d.pdf); err != nil {
		return fmt.Errorf("deliver document %d: %w", number, err)
	}
	s.step(Written, s.version(d), "")
	now := s.Now()
	if err := s.store.delivered(ctx, number, now); err != nil {
		return err
	}
	s.step(Delivered, s.version(d), fmt.Sprintf("%d ms after its allocation; download %s", now.Sub(d.allocatedAt).Milliseconds(), s.Public+downloadPath+d.token))
	return nil
}

func (s *System) deliveredPath(d issued) string {
	return filepath.Join(s.Dir, deliveredDir, fmt.Sprintf("%s-v%d.pdf", d.reference, d.version))
}

// writeFile makes a file appear whole, and stay after a power failure.
func writeFile(path string, content []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// hashFile is the hash of what was delivered.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
