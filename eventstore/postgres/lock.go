package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
)

// holder is the content of the lock file. Only the flock counts; holder names the process that holds it.
type holder struct {
	PID     int    `json:"pid"`
	Purpose string `json:"purpose"`
	// Serving is set if the holder keeps running and others may use its server.
	Serving bool `json:"serving"`
	// Socket is set once the server accepts connections.
	Socket string `json:"socket,omitempty"`
}

// HeldError means that another process holds the data directory.
type HeldError struct {
	Dir     string
	PID     int
	Purpose string
}

func (e *HeldError) sentence() say.Sentence {
	if e.PID == 0 {
		return say.Sentencef("data directory %s is in use by another process", e.Dir)
	}
	return say.Sentencef("data directory %s is in use by process %d (%s)", e.Dir, e.PID, e.Purpose)
}

func (e *HeldError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e *HeldError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

// tell logs the process that holds the data directory, unless it was already logged.
func (e *HeldError) tell(log *slog.Logger, held *HeldError, deadline time.Time) {
	if *e == *held || log == nil {
		return
	}
	*e = *held
	log.Warn("waiting for the data directory, which another process uses", "directory", held.Dir, "pid", held.PID,
		"command", held.Purpose,
		"at_most", time.Until(deadline).Round(time.Second))
}

// lock is the flock on a data directory. Children do not inherit it (O_CLOEXEC), so it ends with this process.
type lock struct{ file *os.File }

// tryLock locks the directory for h. It returns a *HeldError if another process holds it.
func tryLock(l layout, h holder) (*lock, error) {
	file, err := os.OpenFile(l.lock, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, say.Errorf("lock the data directory: %w", err)
	}
	err = flock(file)
	if err == nil {
		lk := &lock{file: file}
		if err := lk.write(h); err != nil { // over the content left by a killed holder
			return nil, errors.Join(err, file.Close())
		}
		return lk, nil
	}
	defer file.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, say.Errorf("lock the data directory %s: %w", l.dir, err)
	}
	if h, err = readHolder(file); err != nil {
		return nil, err
	}
	return nil, &HeldError{Dir: l.dir, PID: h.PID, Purpose: h.Purpose}
}

func flock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// waitLock tries for at most patience, and logs the process that it waits for.
func waitLock(ctx context.Context, l layout, h holder, patience time.Duration, log *slog.Logger) (*lock, error) {
	deadline := time.Now().Add(patience)
	told := HeldError{}
	for {
		lk, err := tryLock(l, h)
		held, isHeld := errors.AsType[*HeldError](err)
		if !isHeld {
			return lk, err
		}
		if !time.Now().Before(deadline) {
			if patience > 0 {
				return nil, say.Errorf("waited %s: %w", patience, held)
			}
			return nil, held
		}
		told.tell(log, held, deadline)
		if err := wait.For(ctx, min(100*time.Millisecond, time.Until(deadline))); err != nil {
			return nil, errors.Join(err, held)
		}
	}
}

func (lk *lock) write(h holder) error {
	raw, err := json.Marshal(h)
	if err != nil {
		return say.Errorf("write the lock: %w", err)
	}
	if err = lk.file.Truncate(0); err == nil {
		_, err = lk.file.WriteAt(raw, 0)
	}
	if err != nil {
		return say.Errorf("write the lock: %w", err)
	}
	return nil
}

// release unlocks the directory. It leaves the file in place, because two processes could otherwise lock two files of
// the same name.
func (lk *lock) release() error {
	return errors.Join(lk.file.Truncate(0), lk.file.Close())
}

// readHolder returns the zero holder if the file has no valid content yet.
func readHolder(file *os.File) (holder, error) {
	raw, err := io.ReadAll(io.NewSectionReader(file, 0, 64<<10))
	if err != nil {
		return holder{}, say.Errorf("read the lock: %w", err)
	}
	var h holder
	// Partly written, or left by a killed holder: the current holder has not written its name yet.
	if json.Unmarshal(raw, &h) != nil || h.PID <= 0 || errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH) {
		h = holder{}
	}
	return h, nil
}

// currentHolder returns the holder of the directory. ok is false if no process holds it.
func currentHolder(l layout) (h holder, ok bool, err error) {
	file, err := os.OpenFile(l.lock, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return holder{}, false, nil
	}
	if err != nil {
		return holder{}, false, say.Errorf("check the lock: %w", err)
	}
	defer file.Close()
	err = flock(file)
	if err == nil {
		return holder{}, false, nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return holder{}, false, say.Errorf("check the lock: %w", err)
	}
	h, err = readHolder(file)
	return h, true, err
}

// ErrNotRunning means that no process serves from the data directory.
var ErrNotRunning = say.New("no server runs in this data directory")

// attachPatience is the longest time a serving process may take to start or restart its server.
const attachPatience = 60 * time.Second

// Attach returns the server that another process runs in the data directory. It returns ErrNotRunning if no process
// runs one, and a *HeldError if the holder is a short-lived command.
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
		// A holder without a purpose is about to write it.
		if h.Purpose != "" && !h.Serving {
			return nil, heldErr
		}
		notReady := say.New("its server is not ready")
		if h.Socket != "" {
			if notReady = ping(ctx, socketURL(h.Socket, Database)); notReady == nil {
				l.socket = h.Socket
				return &Server{layout: l, done: make(chan struct{})}, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, say.Errorf("%w, and did not answer for %s: %w", heldErr, attachPatience, notReady)
		}
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return nil, errors.Join(err, heldErr)
		}
	}
}

// StartOrAttach is for commands. It uses the server of a process that serves, or starts a server while the command
// needs it. Commands take turns, each waiting at most cfg.Wait.
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
			return nil, say.Errorf("waited %s: %w", cfg.Wait, held)
		}
		told.tell(cfg.Log, held, deadline)
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			return nil, errors.Join(err, held)
		}
	}
}
