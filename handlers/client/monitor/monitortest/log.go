// Package monitortest is an in-memory transparency log for tests of monitors. It can do everything that a log must not
// do: forget, rewrite, sign with another key. Do not use it for anything else.
package monitortest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
)

const path = "/api/public/log/"

// Log is a transparency log for tests. It is safe for concurrent use. It panics if a test misuses it.
type Log struct {
	name    string
	private ed25519.PrivateKey

	mu      sync.Mutex
	entries []string
	hashes  []tlog.Hash
	answer  http.HandlerFunc
}

// New makes an empty log. The same seed makes the same key.
func New(name string, seed byte) *Log {
	return &Log{name: name, private: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Key returns the log key that a monitor pins.
func (l *Log) Key() evidence.LogKey {
	return must(evidence.NewLogKey(l.name, l.private.Public().(ed25519.PublicKey)))
}

// Pinned returns a set that pins only this log.
func (l *Log) Pinned() *evidence.TrustedKeys {
	return must(evidence.NewTrustedKeys(nil, nil, []evidence.LogKey{l.Key()}))
}

// Edit changes the entries and rebuilds the whole tree.
func (l *Log) Edit(change func(entries []string) []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.hashes = change(slices.Clone(l.entries)), nil
	for i, entry := range l.entries {
		l.hashes = append(l.hashes, must(tlog.StoredHashes(int64(i), []byte(entry), l))...)
	}
}

// Grow appends entries until the log has size entries.
func (l *Log) Grow(size int) {
	l.Edit(func(entries []string) []string {
		for len(entries) < size {
			entries = append(entries, fmt.Sprintf("entry %d", len(entries)))
		}
		return entries
	})
}

// ReadHashes implements tlog.HashReader.
func (l *Log) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	read := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		read[i] = l.hashes[index]
	}
	return read, nil
}

// Checkpoint signs the current tree head.
func (l *Log) Checkpoint() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := int64(len(l.entries))
	return l.Sign(fmt.Sprintf("%s\n%d\n%s\n", l.name, size, must(tlog.TreeHash(size, l))))
}

// Sign signs any text.
func (l *Log) Sign(text string) string {
	key := l.Key()
	secret := base64.StdEncoding.EncodeToString(append([]byte{1}, l.private.Seed()...))
	signer := must(note.NewSigner("PRIVATE+KEY+" + key.Name + "+" + key.KeyHash + "+" + secret))
	return string(must(note.Sign(&note.Note{Text: text}, signer)))
}

// Tile returns the content of a tile, or false if the log has no such tile.
func (l *Log) Tile(r *http.Request) ([]byte, bool) {
	rest, found := strings.CutPrefix(r.URL.Path, path+"tile/")
	tile, err := tlog.ParseTilePath(fmt.Sprintf("tile/%d/%s", client.LogTileHeight, rest))
	l.mu.Lock()
	defer l.mu.Unlock()
	if !found || err != nil || tile.L < 0 ||
		(tile.N<<client.LogTileHeight+int64(tile.W))<<(tile.L*client.LogTileHeight) > int64(len(l.entries)) {
		return nil, false
	}
	return must(tlog.ReadTileData(tile, l)), true
}

// Answer makes a handler answer instead of the log, until it is called with nil.
func (l *Log) Answer(with http.HandlerFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = with
}

// Serve answers like the service.
func (l *Log) Serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == path+"checkpoint" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(l.Checkpoint()))
		return
	}
	tile, found := l.Tile(r)
	if !found {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(
			`{"data":null,"error":{"code":"NOT_FOUND","status":404,"title":"Not found","detail":"There is no such tile."},"meta":{}}`,
		))
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(tile)
}

// ServeHTTP implements http.Handler with Answer's handler or with Serve.
func (l *Log) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	with := l.answer
	l.mu.Unlock()
	if with != nil {
		with(w, r)
		return
	}
	l.Serve(w, r)
}
