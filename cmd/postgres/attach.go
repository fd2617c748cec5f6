package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// ErrNotRunning says that no process serves from the data directory.
var ErrNotRunning = errors.New("no server runs in this data directory")

// attachPatience is how long a serving process may take to bring its server up or back.
const attachPatience = 60 * time.Second

// Attach finds the server that another process holds in the data directory. It fails with ErrNotRunning where nobody
// does, and with a *HeldError where the holder is a short-lived command.
func Attach(ctx context.Context, dataDir string) (*Server, error) {
	l, err := newLayout(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(attachPatience)
	for {
		h, held, err := currentHolder(l)
		if err != nil {
			return nil, err
		}
		if !held {
			return nil, ErrNotRunning
		}
		heldErr := &HeldError{Dir: l.dir, PID: h.PID, Purpose: h.Purpose}
		// A holder that has not said yet what it is will do so in a moment.
		if h.Purpose != "" && !h.Serving {
			return nil, heldErr
		}
		notReady := errors.New("its server is not ready")
		if h.Socket != "" {
			if notReady = ping(ctx, socketURL(h.Socket, Database)); notReady == nil {
				l.socket = h.Socket
				return &Server{layout: l, done: make(chan struct{})}, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w, and did not answer for %s: %w", heldErr, attachPatience, notReady)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, errors.Join(err, heldErr)
		}
	}
}

// StartOrAttach is for commands: it uses the server of a running process that serves, or starts one for as long as the
// command needs it. Commands take turns, each waiting at most cfg.Wait.
func StartOrAttach(ctx context.Context, cfg Config) (*Server, error) {
	deadline := time.Now().Add(cfg.Wait)
	told := HeldError{}
	for {
		s, err := Attach(ctx, cfg.DataDir)
		var held *HeldError
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, ErrNotRunning):
			once := cfg
			once.Wait, once.Serving = 0, false
			if s, err = Start(ctx, once); err == nil || !errors.As(err, &held) {
				return s, err
			}
		case !errors.As(err, &held):
			return nil, err
		}
		if !time.Now().Before(deadline) {
			return nil, fmt.Errorf("waited %s: %w", cfg.Wait, held)
		}
		told.tell(cfg.Log, held, deadline)
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, errors.Join(err, held)
		}
	}
}
