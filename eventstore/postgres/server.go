package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"integrityledger/eventstore/wait"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// leftoverPatience is how long a predecessor in the data directory may take to leave.
	leftoverPatience = 60 * time.Second
	// restartPatience is how long a server that keeps dying is started again before the Server gives up.
	restartPatience = 5 * time.Minute
	// fastShutdown is how long the server has to stop cleanly before its processes must leave at once.
	fastShutdown = 30 * time.Second
	// immediateShutdown is how long they have for that.
	immediateShutdown = 10 * time.Second

	maxLog = 8 << 20
)

// Config says what to run.
type Config struct {
	// DataDir is made where it does not exist. What else stands in it is left alone.
	DataDir string
	// Settings override ours and postgresql.conf's.
	Settings map[string]string
	Log      *slog.Logger
	// Purpose names us to others who want the data directory ("integrity serve").
	Purpose string
	// Serving lets commands attach to this server for as long as it runs.
	Serving bool
	// Wait is how long to wait for another holder of the data directory.
	Wait time.Duration
	// Disposable gives up durability for speed, and trusts every process of the account. For tests only.
	Disposable bool
	// Mortal leaves a child that dies dead, as a machine that is lost. For tests only.
	Mortal bool
}

// Server is a running PostgreSQL: ours, kept alive until Stop, or one that another process runs.
type Server struct {
	cfg     Config
	layout  layout
	account account
	program programs
	lock    *lock

	// alive ends when Stop is called, and with it every attempt to bring the child back.
	alive context.Context //nolint:containedctx // the life of this value, not of a call
	end   context.CancelFunc
	// hurry is set before alive ends; it cuts the clean shutdown short.
	hurry    context.Context //nolint:containedctx // handed from Stop to the supervising goroutine
	stopOnce sync.Once
	done     chan struct{}

	child atomic.Pointer[child] // nil while none runs
	err   error                 // belongs to supervise until done is closed
}

// Start takes the data directory, makes it where necessary, and returns when the server accepts connections. ctx is for
// the start alone; recovery after a crash may take as long as it needs.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Purpose == "" {
		cfg.Purpose = filepath.Base(os.Args[0])
	}
	if err := makeDir(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	s := &Server{cfg: cfg, done: make(chan struct{})}
	if s.layout, err = newLayout(cfg.DataDir); err != nil {
		return nil, err
	}
	if s.lock, err = waitLock(
		ctx, s.layout, holder{PID: os.Getpid(), Purpose: cfg.Purpose, Serving: cfg.Serving}, cfg.Wait, cfg.Log,
	); err != nil {
		return nil, s.layout.withoutRoom(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(s.layout.withoutRoom(err), s.lock.release())
		}
	}()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	c, err := s.bringUp(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.shutdown(ctx, c))
	}
	s.child.Store(c)
	s.alive, s.end = context.WithCancel(context.Background())
	go s.supervise(c)
	return s, nil
}

// prepare leaves a complete data directory and a socket directory, both the account's.
func (s *Server) prepare(ctx context.Context) (err error) {
	l := s.layout
	if s.account, err = accountFor(l); err != nil {
		return err
	}
	if err := s.account.reach(l.dir); err != nil {
		return err
	}
	if name := s.account.sharedUser(); name != "" {
		s.cfg.Log.Warn("PostgreSQL runs as a user that other programs run as too: they can read and change its files; "+
			"stop the service and give the directories to a user of their own (chown -R)",
			"user", name, "directories", []string{l.data, l.socket})
	}
	if err := s.findPrograms(ctx, l); err != nil {
		return err
	}
	if err := s.account.privateDir(l.socket); err != nil {
		return err
	}
	if written, err := l.majorVersion(); err != nil || written != 0 {
		return err
	}
	if _, err := os.Lstat(l.restoring); err == nil {
		return fmt.Errorf("%s is a restore that was not finished: run integrity restore again, or remove it", l.restoring)
	}
	s.cfg.Log.Info(
		"making a new PostgreSQL data directory", "directory", l.data, "version", s.program.major, "user",
		userName(s.account.uid),
	)
	return initialize(ctx, l, s.account, s.program, s.cfg.Disposable)
}

// bringUp starts the server until it accepts connections. A failure is final, unless something of a predecessor was
// still there to cause it, or always is set.
func (s *Server) bringUp(ctx context.Context, always bool) (*child, error) {
	patience := leftoverPatience
	if always {
		patience = restartPatience
	}
	deadline := time.Now().Add(patience)
	delay := 50 * time.Millisecond
	for {
		predecessor, err := recordedPID(s.layout)
		if err != nil {
			return nil, err
		}
		if err := disownRecycledPID(s.layout); err != nil {
			return nil, err
		}
		c, err := s.launch(ctx)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || predecessor == 0 && !always {
			return nil, err
		}
		if time.Now().After(deadline) {
			if predecessor != 0 && worksIn(predecessor, s.layout) {
				err = fmt.Errorf(
					"another PostgreSQL (process %d) still runs in %s after %s: stop it first: %w", predecessor, s.layout.data,
					patience, err,
				)
			}
			return nil, err
		}
		ended, orphanErr := endOrphans(s.layout)
		if orphanErr != nil {
			return nil, errors.Join(err, orphanErr)
		}
		s.cfg.Log.Info(
			"PostgreSQL does not start yet", "predecessor", predecessor, "orphans_ended", ended, "error",
			s.layout.withoutRoom(err),
		)
		if err := wait.For(ctx, delay); err != nil {
			return nil, err
		}
		delay = min(2*delay, 2*time.Second)
	}
}

// launch starts the server once and waits until it accepts connections or is gone.
func (s *Server) launch(ctx context.Context) (*child, error) {
	if err := restrict(s.layout, s.account, s.cfg.Disposable); err != nil {
		return nil, err
	}
	if err := rotateLog(s.layout.log); err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(s.layout.log, os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of PostgreSQL: %w", err)
	}
	defer logFile.Close()
	from, err := logFile.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("log of PostgreSQL: %w", err)
	}
	c, err := spawn(spawnConfig{
		program: filepath.Join(s.program.dir, "postgres"), args: arguments(s.layout, s.cfg), account: s.account,
		dir: s.layout.data, output: logFile, whenWeDie: syscall.SIGINT,
	})
	if err != nil {
		return nil, err
	}
	for delay := 20 * time.Millisecond; ; delay = min(delay*5/4, time.Second) { // each refusal is a line in the log
		err := s.accepts(ctx, c)
		if err == nil {
			return c, nil
		}
		if c.gone() {
			said := make([]byte, 16<<10)
			if info, err := logFile.Stat(); err == nil {
				from = max(from, info.Size()-int64(len(said))) // why it ended stands at the end
			}
			n, _ := logFile.ReadAt(said, from) // best effort: the exit itself is the error
			return nil, fmt.Errorf("PostgreSQL did not start: %w: %s", c.err, lastLines(withoutRefusals(string(said[:n])), 10))
		}
		if wait.For(ctx, delay) != nil {
			_ = s.shutdown(ctx, c) // cut short by ctx, so never clean; the next start recovers
			return nil, fmt.Errorf("PostgreSQL did not become ready (%w): %w", err, ctx.Err())
		}
	}
}

// withoutRefusals leaves out the lines about connections, ours among them, that came while the server was not ready: as
// many as there were attempts, and possibly after the line that tells why it ended.
func withoutRefusals(said string) string {
	var lines strings.Builder
	for line := range strings.Lines(said) {
		if !strings.Contains(line, "FATAL:  the database system is ") && !strings.Contains(line, " startup packet") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// accepts connects once. The recorded process number tells our child from a predecessor that still answers.
func (s *Server) accepts(ctx context.Context, c *child) error {
	pid, err := recordedPID(s.layout)
	if err != nil {
		return err
	}
	if pid != c.pid {
		return errors.New("it has not taken the data directory yet")
	}
	return ping(ctx, s.URL("postgres"))
}

func ping(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return conn.Close(ctx)
}

// ready makes the ledger's database and tells others where the server is.
func (s *Server) ready(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+Database)
	// It exists; or this is a standby (read_only_sql_transaction), whose primary has made it.
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == "42P04" || pgErr.Code == "25006") {
		err = nil
	}
	if err == nil {
		err = configureArchive(ctx, conn)
	}
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	return s.lock.write(holder{PID: os.Getpid(), Purpose: s.cfg.Purpose, Serving: s.cfg.Serving, Socket: s.layout.socket})
}

// supervise owns the child until Stop, and starts it again whenever it dies.
func (s *Server) supervise(c *child) {
	defer close(s.done)
	var err error
	for err == nil {
		select {
		case <-s.alive.Done():
			s.finish(s.shutdown(s.hurry, c))
			return
		case <-c.exited:
		}
		if s.cfg.Mortal {
			s.finish(nil)
			return
		}
		s.cfg.Log.Error("PostgreSQL died and is started again", "pid", c.pid, "error", s.layout.withoutRoom(c.err))
		s.child.Store(nil)
		began := time.Now()
		if c, err = s.bringUp(s.alive, true); err == nil {
			s.child.Store(c)
			s.cfg.Log.Info("PostgreSQL is back", "pid", c.pid, "after", time.Since(began).Round(time.Millisecond))
		}
	}
	if s.alive.Err() != nil {
		err = nil // stopped while it was down: that is what was asked for
	} else {
		err = s.layout.withoutRoom(err)
		s.cfg.Log.Error("PostgreSQL cannot be started again", "error", err)
	}
	s.finish(err)
}

// finish runs when no child is left.
func (s *Server) finish(err error) {
	s.child.Store(nil)
	if s.layout.shared {
		err = errors.Join(err, os.RemoveAll(s.layout.socket))
	}
	s.err = errors.Join(err, s.lock.release())
}

// shutdown returns when the child is gone. A context that ends cuts the clean shutdown short.
func (s *Server) shutdown(ctx context.Context, c *child) error {
	c.signal(syscall.SIGINT)
	if s.exits(ctx, c, fastShutdown) {
		if c.err != nil {
			return fmt.Errorf("PostgreSQL did not stop cleanly: %w", c.err)
		}
		return nil
	}
	s.cfg.Log.Warn("PostgreSQL does not stop and must leave at once", "pid", c.pid)
	c.signal(syscall.SIGQUIT)
	if !s.exits(context.Background(), c, immediateShutdown) {
		c.signal(syscall.SIGKILL)
		<-c.exited
	}
	return errors.New("PostgreSQL did not stop cleanly: it recovers at the next start")
}

func (s *Server) exits(ctx context.Context, c *child, within time.Duration) bool {
	wait.Interrupted(within, ctx.Done(), c.exited)
	return c.gone()
}

// URL addresses a database of the server through its socket. It stays the same over restarts.
func (s *Server) URL(database string) string { return socketURL(s.layout.socket, database) }

// Program is where a program of the server's installation would be, such as pgbench; whether it is there is another
// question. It belongs to a server that Start has started.
func (s *Server) Program(name string) string { return filepath.Join(s.program.dir, name) }

// PID is the postmaster's, 0 while none runs or where another process runs it.
func (s *Server) PID() int {
	if c := s.child.Load(); c != nil {
		return c.pid
	}
	return 0
}

// Done is closed when the server is stopped, or has died and could not be started again. For a server that another
// process runs it is never closed.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says, after Done, why the server is gone; nil after a clean stop.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop ends the server: cleanly, or at once when ctx ends before that. Another process's server is left running.
func (s *Server) Stop(ctx context.Context) error {
	if s.lock == nil {
		return nil
	}
	s.stopOnce.Do(func() {
		s.hurry = ctx
		s.end()
	})
	<-s.done
	return s.Err()
}

// rotateLog keeps one predecessor of a log that has grown.
func rotateLog(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() < maxLog {
		return nil
	}
	if err == nil {
		err = os.Rename(path, path+".1")
	}
	if err != nil {
		return fmt.Errorf("rotate the log of PostgreSQL: %w", err)
	}
	return nil
}
