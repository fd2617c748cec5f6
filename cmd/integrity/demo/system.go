package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

// deliveredDir is the directory of delivered documents.
const deliveredDir = "delivered"

// System is a running origin system. Its database, its outbox and the lock on its directory stay open until Close.
type System struct {
	Dir     string // used by one process at a time
	Company string // reference
	Source  string // reference
	// Public is the origin of the downloads, such as http://127.0.0.1:8090. It is printed in the documents.
	Public string
	Client *client.Client
	// Trusted holds the pinned keys that verify evidence before it is stored. It may be nil.
	Trusted *evidence.TrustedKeys
	// ReserveTimeout is how long a document waits for its link.
	ReserveTimeout time.Duration
	Now            func() time.Time
	// Report is called after each step, from two goroutines.
	Report func(Step)

	db     *sql.DB
	outbox *outbox.Outbox
	lock   *os.File
	worker *outbox.Worker
}

// Step is one step of one document.
type Step struct {
	At       time.Time             `json:"at"`
	Name     string                `json:"step"` // a constant below, or an outbox.Kind
	Document wire.VersionReference `json:"document"`
	Detail   say.Sentence          `json:"detail,omitzero"`
}

// The steps of an emission, in order.
const (
	Allocated = "allocated"
	Reserved  = "reserved"
	NoLink    = "no-link" // instead of Reserved
	Finalized = "finalized"
	Committed = "committed"
	Written   = "written" // the copy exists, but its delivery is not recorded yet
	Delivered = "delivered"
)

// Open opens or creates the data directory. Call Close even if Open fails.
func (s *System) Open(ctx context.Context) error {
	for name, reference := range map[string]string{"company": s.Company, "source": s.Source} {
		if !domain.ValidReference(reference) {
			return say.Errorf("%s: %s", name, domain.ReferenceRule)
		}
	}
	if err := s.open(ctx); err != nil {
		return say.Errorf("origin: %w", err)
	}
	s.worker = outbox.NewWorker(outbox.Config{
		Outbox: s.outbox, Client: s.Client, Trusted: s.Trusted, Now: s.Now, Report: s.registration,
	})
	return nil
}

func (s *System) Close() (err error) {
	if s.db != nil {
		err = s.db.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

func (s *System) step(name string, v wire.VersionReference, detail say.Sentence) {
	s.Report(Step{At: s.Now().UTC(), Name: name, Document: v, Detail: detail})
}

func (s *System) registration(r outbox.Report) {
	var detail say.Sentence
	switch {
	case r.Kind == outbox.Postponed:
		detail = say.Sentencef("again in %s: %v", r.Again.Round(time.Second), r.Err)
	case r.Err != nil:
		detail = say.Sentencef("%v", r.Err)
	case r.Registration != nil && r.Registration.Replayed:
		detail = say.Sentencef("%s (replayed: it had arrived before)", r.Registration.PublicID)
	case r.Registration != nil:
		detail = say.Sentencef("%s", r.Registration.PublicID)
	}
	s.step(string(r.Kind), r.Version, detail)
}

func (s *System) version(d issued) wire.VersionReference {
	return wire.VersionReference{
		CompanyReference: s.Company, Source: s.Source, DocumentReference: d.reference, Version: d.version,
	}
}

// Emit delivers the document with this number, counted from 1. It continues an emission that an earlier process began.
// It reports whether there was anything to do.
func (s *System) Emit(ctx context.Context, number int) (bool, error) {
	d, err := s.allocate(ctx, number, "doc-"+opaque(), opaque(), s.Now())
	if err != nil {
		return false, err
	}
	if !d.deliveredAt.IsZero() {
		return false, nil
	}
	if !d.final {
		s.step(Allocated, s.version(d), say.Sentence{})
		if err := s.finalize(ctx, d); err != nil {
			return false, err
		}
		s.worker.Wake()
	}
	return true, s.deliver(ctx, number)
}

// opaque returns a random name of 130 bits without meaning (specification, "Company").
func opaque() string { return strings.ToLower(rand.Text()) }

// finalize runs steps 2 to 5.
func (s *System) finalize(ctx context.Context, d issued) error {
	v := s.version(d)
	asking, cancel := context.WithTimeout(ctx, s.ReserveTimeout)
	defer cancel()
	reservation, err := s.Client.Reserve(asking, v)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		reservation = wire.Reservation{} // after any failure, issue the document without a link
		s.step(NoLink, v, say.Sentencef("%v", err))
	default:
		s.step(Reserved, v, say.Sentencef("%s", reservation.VerificationURL))
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
	s.step(Finalized, v, say.Sentencef("%s", d.sha256))
	if err := s.commit(ctx, d, declaration); err != nil {
		return err
	}
	s.step(Committed, v, say.Sentence{})
	return nil
}

// deliver writes a copy of the final bytes. Repeating it writes the same file.
func (s *System) deliver(ctx context.Context, number int) error {
	d, err := s.file(ctx, "d.number", number)
	if err != nil {
		return say.Errorf("deliver document %d: %w", number, err)
	}
	if err := writeFile(s.deliveredPath(d), d.pdf); err != nil {
		return say.Errorf("deliver document %d: %w", number, err)
	}
	s.step(Written, s.version(d), say.Sentence{})
	now := s.Now()
	if _, err := s.db.ExecContext(
		ctx, `INSERT INTO deliveries VALUES (?, ?) ON CONFLICT DO NOTHING`, number, now.UnixMilli(),
	); err != nil {
		return say.Errorf("deliver document %d: %w", number, err)
	}
	s.step(
		Delivered, s.version(d),
		say.Sentencef(
			"%d ms after its allocation; download %s", now.Sub(d.allocatedAt).Milliseconds(), s.Public+downloadPath+d.token,
		),
	)
	return nil
}

func (s *System) deliveredPath(d issued) string {
	return filepath.Join(s.Dir, deliveredDir, fmt.Sprintf("%s-v%d.pdf", d.reference, d.version))
}

// writeFile creates a file that is complete and survives a power failure. If the process is killed, the next attempt
// replaces the remains.
func writeFile(path string, content []byte) error {
	draft := path + ".new"
	if err := os.WriteFile(draft, content, 0o600); err != nil {
		return err
	}
	if err := keyfiles.Sync(draft); err != nil {
		return err
	}
	if err := os.Rename(draft, path); err != nil {
		return err
	}
	return keyfiles.Sync(filepath.Dir(path))
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// downloadPath leads to a document by its random token, which every holder of the document knows. The service's
// verification link does not authorize a download.
const downloadPath = "/documents/"

// Handler serves the final bytes as a direct download, without a page in between.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+downloadPath+"{token}", func(w http.ResponseWriter, r *http.Request) {
		d, err := s.file(r.Context(), "d.token", r.PathValue("token"))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			http.NotFound(w, r)
			return
		case err != nil:
			http.Error(w, "The document is not available.", http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/pdf")
		h.Set("Content-Disposition", `attachment; filename="`+d.reference+`.pdf"`)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "private, no-store")
		http.ServeContent(w, r, "", d.finalizedAt, bytes.NewReader(d.pdf))
	})
	return mux
}
