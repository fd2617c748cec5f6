package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
)

const (
	checkpointInterval = 100 * time.Millisecond // the shortest that the POSIX driver accepts
	checkpointPoll     = 10 * time.Millisecond
)

// newLog serves a new log in dir.
//
// POST /add answers with the entry's index, as Tessera's own example programs do: entry, tiles and tree state are
// synced to disk, and a later checkpoint will cover the entry. POST /publish answers when a signed checkpoint that
// covers the entry is published. An entry waits until its batch has 256 entries or is as old as age.
func newLog(ctx context.Context, dir string, age time.Duration) (http.Handler, func(context.Context) error, error) {
	secret, _, err := note.GenerateKey(nil, "peer.example")
	if err != nil {
		return nil, nil, err
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		return nil, nil, err
	}
	driver, err := posix.New(ctx, posix.Config{Path: dir})
	if err != nil {
		return nil, nil, err
	}
	// The log goes on while it is shut down.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	appender, shutdown, reader, err := tessera.NewAppender(life, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(checkpointInterval).
		WithBatching(tessera.DefaultBatchMaxSize, age))
	if err != nil {
		end()
		return nil, nil, err
	}
	awaiter := tessera.NewPublicationAwaiter(life, reader.ReadCheckpoint, checkpointPoll)
	adding := func(wait func(context.Context, tessera.IndexFuture) (tessera.Index, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			entry, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			index, err := wait(r.Context(), appender.Add(r.Context(), tessera.NewEntry(entry)))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = fmt.Fprint(w, index.Index) // a client that has gone needs no answer
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", ready)
	mux.Handle("POST /add", adding(func(_ context.Context, f tessera.IndexFuture) (tessera.Index, error) { return f() }))
	mux.Handle("POST /publish", adding(func(ctx context.Context, f tessera.IndexFuture) (tessera.Index, error) {
		index, _, err := awaiter.Await(ctx, f)
		return index, err
	}))
	return mux, func(ctx context.Context) error {
		defer end()
		return shutdown(ctx)
	}, nil
}
