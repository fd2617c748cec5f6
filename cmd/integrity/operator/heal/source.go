// Package heal reads what clients hold of records that a ledger may have lost: evidence, outboxes, exports of
// declarations and bundles. It verifies receipts and joins everything that is about one version.
//
// Inputs may have any size and are not trusted. They are read as streams, each document at most a mebibyte. An input
// that cannot be used is refused by its name and does not stop the rest. Everything usable is staged in a temporary
// SQLite database, so memory does not grow with the inputs, and comes back in the order of documents and versions.
package heal

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/handlers/client/outbox"
)

// maxDocument is the largest document, or line, in bytes.
const maxDocument = 1 << 20

// held is one document of a client.
type held struct {
	place       string // file, and line or item
	evidence    []byte // a receipt or an export
	declaration []byte
	publicID    string // of a declaration: as the service answered it
	registered  []byte // the data of a registration in a bundle
}

// source reads files. found receives each document, and refused the name of each part that cannot be used.
type source struct {
	found   func(held) error
	refused func(place string, why error) error
}

// read reads a file, or every regular file in a directory.
func (s source) read(ctx context.Context, path string) error {
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && entry.IsDir() {
			return nil
		}
		if err == nil {
			var info os.FileInfo
			if info, err = os.Stat(name); err == nil && !info.Mode().IsRegular() { // a link may lead to a file
				err = say.Errorf("it is not a regular file")
			}
		}
		if err == nil && ofBundle(name) {
			return nil
		}
		if err == nil {
			return s.file(ctx, name)
		}
		if name == path {
			return err
		}
		return s.refused(name, err)
	})
}

// ofBundle reports whether a file belongs to an exported bundle and never holds a record.
func ofBundle(name string) bool {
	switch filepath.Base(name) {
	case bundle.ManifestFile, bundle.TrustedKeysFile, bundle.CheckpointFile:
		b, err := bundle.Open(filepath.Dir(name))
		if err == nil {
			b.Close()
		}
		return err == nil || errors.Is(err, bundle.ErrIncomplete)
	}
	return false
}

const sqliteMagic = "SQLite format 3\x00"

func (s source) file(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return s.refused(name, err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, maxDocument+1)
	head, err := r.Peek(maxDocument + 1)
	switch {
	case bytes.HasPrefix(head, []byte(sqliteMagic)):
		return s.outbox(ctx, name)
	case err != nil && !errors.Is(err, io.EOF):
		return s.refused(name, err)
	case bytes.IndexByte(head, 0) >= 0:
		return s.refused(name, say.Errorf("it is neither JSON nor the database of an outbox"))
	case len(head) <= maxDocument && json.Valid(head):
		return s.document(name, head)
	}
	return s.lines(ctx, name, r)
}

// lines reads a file with one document in each line.
func (s source) lines(ctx context.Context, name string, r *bufio.Reader) error {
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line that is too long
			_, err = r.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return s.refused(name, err)
		}
		place := fmt.Sprintf("%s:%d", name, n)
		if text := bytes.TrimSpace(line); long {
			if err := s.refused(place, say.Errorf("a line must be at most %d bytes", maxDocument)); err != nil {
				return err
			}
		} else if len(text) > 0 {
			if err := s.document(place, text); err != nil {
				return err
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the file ends
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// document recognizes a JSON document by its members. The text is not kept.
func (s source) document(place string, text []byte) error {
	var members struct {
		Contract         string          `json:"contract"`
		Type             string          `json:"type"`
		Data             json.RawMessage `json:"data"`
		Declaration      json.RawMessage `json:"declaration"`
		PublicID         string          `json:"publicId"`
		Response         json.RawMessage `json:"response"`
		Evidence         json.RawMessage `json:"evidence"`
		CompanyReference *string         `json:"companyReference"`
	}
	if err := json.Unmarshal(text, &members); err != nil {
		return s.refused(place, say.Errorf("it is not a JSON object of evidence, of an outbox or of a bundle"))
	}
	h := held{place: place}
	switch {
	case members.Contract == evidence.EnvelopeContract:
		h.evidence = bytes.Clone(text)
	case members.Type == string(domain.RecordRegistered) || members.Type == string(domain.RecordHealed):
		h.registered = bytes.Clone(members.Data)
	case members.Type != "" && members.Data != nil:
		return nil // another event of a bundle
	case members.Declaration != nil:
		return s.item(place, members.Declaration, members.Response, members.Evidence, members.PublicID)
	case members.CompanyReference != nil:
		h.declaration = bytes.Clone(text)
	default:
		return s.refused(place, say.Errorf("it is neither evidence, nor a declaration, nor an item of an outbox"))
	}
	return s.found(h)
}

// item passes on an item of an outbox. Response and evidence may be missing.
func (s source) item(place string, declaration, response, receipt []byte, publicID string) error {
	h := held{place: place, declaration: bytes.Clone(declaration), publicID: publicID}
	var answer struct {
		PublicID string `json:"publicId"`
	}
	if len(response) > 0 && json.Unmarshal(response, &answer) == nil && answer.PublicID != "" {
		h.publicID = answer.PublicID
	}
	if len(receipt) > 0 && string(receipt) != "null" {
		h.evidence = bytes.Clone(receipt)
	}
	return s.found(h)
}

// outbox reads a SQLite database with an outbox. It changes nothing.
func (s source) outbox(ctx context.Context, name string) (err error) {
	whole, err := filepath.Abs(name)
	if err != nil {
		return s.refused(name, err)
	}
	db, err := sql.Open("sqlite", (&url.URL{
		Scheme: "file", Opaque: (&url.URL{Path: whole}).EscapedPath(), RawQuery: "mode=ro&_pragma=busy_timeout(10000)",
	}).String())
	if err != nil {
		return s.refused(name, err)
	}
	defer db.Close()
	// Outboxes of earlier releases keep declarations as JSON.
	rows, err := db.QueryContext(ctx, `SELECT id, declaration, coalesce(response, ''), coalesce(evidence, '')
		FROM integrity_outbox ORDER BY id`)
	if err != nil {
		return s.columns(ctx, name, db)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var declaration, response, receipt []byte
		if err := rows.Scan(&id, &declaration, &response, &receipt); err != nil {
			return s.refused(name, err)
		}
		if err := s.item(fmt.Sprintf("%s:%d", name, id), declaration, response, receipt, ""); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return s.refused(name, err)
	}
	return nil
}

// columns reads an outbox that has a column for each member of a declaration.
func (s source) columns(ctx context.Context, name string, db *sql.DB) error {
	var failed error // of the caller, which ends everything
	err := outbox.Read(ctx, db, func(i outbox.Item) error {
		declaration, err := json.Marshal(i.Declaration)
		if err != nil {
			return err
		}
		publicID := ""
		if i.Record != nil {
			publicID = i.Record.PublicID
		}
		failed = s.item(fmt.Sprintf("%s:%d", name, i.ID), declaration, nil, i.Evidence, publicID)
		return failed
	})
	if err != nil && failed == nil {
		return s.refused(name, say.Errorf("it is not the database of an outbox: %w", err))
	}
	return failed
}
