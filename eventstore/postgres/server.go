package postgres

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
)

const (
	// leftoverPatience is the longest time a predecessor in the data directory may take to exit.
	leftoverPatience = 60 * time.Second
	// restartPatience is how long the Server restarts a PostgreSQL that keeps dying before it gives up.
	restartPatience = 5 * time.Minute
	// fastShutdown is the time for a clean shutdown. After it, the server's processes are ended at once.
	fastShutdown = 30 * time.Second
	// immediateShutdown is the time for an immediate shutdown before SIGKILL.
	immediateShutdown = 10 * time.Second

	maxLog = 8 << 20
)

// Config configures a Server.
type Config struct {
	// DataDir is created if it does not exist. Other files in it are left alone.
	DataDir string
	// Settings override server.conf and postgresql.conf.
	Settings map[string]string
	Log      *slog.Logger
	// Purpose names this process to others that wait for the data directory, for example "integrity serve".
	Purpose string
	// Serving lets commands attach to this server while it runs.
	Serving bool
	// Wait is the longest time to wait for another holder of the data directory.
	Wait time.Duration
	// Disposable trades durability for speed and trusts every process of the account. For tests only.
	Disposable bool
	// Mortal does not restart a server that dies, as if its machine were lost. For tests only.
	Mortal bool
}

// Server is a running PostgreSQL, either our own, which is kept alive until Stop, or another process's.
type Server struct {
	cfg     Config
	layout  layout
	account account
	program programs
	lock    *lock

	// alive ends when Stop is called, which ends every attempt to restart the child.
	alive context.Context //nolint:containedctx // the life of this value, not of a call
	end   context.CancelFunc
	// hurry is set before alive ends. If it ends, the clean shutdown is cut short.
	hurry    context.Context //nolint:containedctx // handed from Stop to the supervising goroutine
	stopOnce sync.Once
	done     chan struct{}

	child atomic.Pointer[child] // nil while none runs
	err   error                 // owned by supervise until done is closed
}

// Start locks the data directory, creates it if necessary, and returns once the server accepts connections. ctx limits
// only the start. Recovery after a crash has no time limit of its own.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Purpose == "" {
		cfg.Purpose = filepath.Base(os.Args[0])
	}
	if err := makeDir(cfg.DataDir); err != nil {
		return nil, say.Errorf("data directory: %w", err)
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

// prepare makes sure that a complete data directory and a socket directory exist and belong to the account.
func (s *Server) prepare(ctx context.Context) (err error) {
	l := s.layout
	if s.account, err = accountFor(l); err != nil {
		return err
	}
	if err := s.account.reach(l.dir); err != nil {
		return err
	}
	if name := s.account.sharedUser(); name != "" {
		s.cfg.Log.Warn("PostgreSQL shares its user with other programs, which can read and change its files: "+
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
		return say.Errorf("%s is a restore that was not finished: run integrity restore again, or remove it", l.restoring)
	}
	s.cfg.Log.Info(
		"creating a PostgreSQL data directory", "directory", l.data, "version", s.program.major, "user",
		userName(s.account.uid),
	)
	return initialize(ctx, l, s.account, s.program, s.cfg.Disposable)
}

// bringUp starts the server and waits until it accepts connections. A failure is final, unless remains of a predecessor
// may have caused it or always is set.
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
				err = say.Errorf(
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
			"PostgreSQL has not started yet", "predecessor", predecessor, "orphans_ended", ended, "error",
			s.layout.withoutRoom(err),
		)
		if err := wait.For(ctx, delay); err != nil {
			return nil, err
		}
		delay = min(2*delay, 2*time.Second)
	}
}

// launch starts the server once and waits until it accepts connections or exits.
func (s *Server) launch(ctx context.Context) (*child, error) {
	if err := restrict(s.layout, s.account, s.cfg.Disposable); err != nil {
		return nil, err
	}
	if err := rotateLog(s.layout.log); err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(s.layout.log, os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, say.Errorf("log of PostgreSQL: %w", err)
	}
	defer logFile.Close()
	from, err := logFile.Seek(0, 2)
	if err != nil {
		return nil, say.Errorf("log of PostgreSQL: %w", err)
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
				from = max(from, info.Size()-int64(len(said))) // the reason for its exit is at the end
			}
			n, _ := logFile.ReadAt(said, from) // best effort: the error is its exit
			return nil, say.Errorf("PostgreSQL did not start: %w: %s", c.err, lastLines(withoutRefusals(string(said[:n])), 10))
		}
		if wait.For(ctx, delay) != nil {
			_ = s.shutdown(ctx, c) // ctx has ended, so it is not clean; the next start recovers
			return nil, say.Errorf("PostgreSQL did not become ready (%w): %w", err, ctx.Err())
		}
	}
}

// withoutRefusals removes the lines about connections, including our own, that arrived while the server was not ready.
// There is one per attempt, and they may follow the line with the reason for the server's exit.
func withoutRefusals(said string) string {
	var lines strings.Builder
	for line := range strings.Lines(said) {
		if !strings.Contains(line, "FATAL:  the database system is ") && !strings.Contains(line, " startup packet") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// accepts connects once. It compares the recorded process number, because a predecessor may still answer.
func (s *Server) accepts(ctx context.Context, c *child) error {
	pid, err := recordedPID(s.layout)
	if err != nil {
		return err
	}
	if pid != c.pid {
		return say.New("it has not taken the data directory yet")
	}
	return ping(ctx, s.URL("postgres"))
}

func ping(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return say.Errorf("connect: %w", err)
	}
	return conn.Close(ctx)
}

// ready creates the ledger's database and writes the server's socket to the lock file.
func (s *Server) ready(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return say.Errorf("connect: %w", err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+Database)
	// The database exists, or this is a standby (read_only_sql_transaction) whose primary has created it.
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == "42P04" || pgErr.Code == "25006") {
		err = nil
	}
	if err == nil {
		err = configureArchive(ctx, conn)
	}
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return say.Errorf("make the database: %w", err)
	}
	return s.lock.write(holder{PID: os.Getpid(), Purpose: s.cfg.Purpose, Serving: s.cfg.Serving, Socket: s.layout.socket})
}

// supervise owns the child until Stop and restarts it whenever it dies.
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
		s.cfg.Log.Error("PostgreSQL died and is restarted", "pid", c.pid, "error", s.layout.withoutRoom(c.err))
		s.child.Store(nil)
		began := time.Now()
		if c, err = s.bringUp(s.alive, true); err == nil {
			s.child.Store(c)
			s.cfg.Log.Info("PostgreSQL restarted", "pid", c.pid, "after", time.Since(began).Round(time.Millisecond))
		}
	}
	if s.alive.Err() != nil {
		err = nil // Stop was called while it was down
	} else {
		err = s.layout.withoutRoom(err)
		s.cfg.Log.Error("restarting PostgreSQL failed", "error", err)
	}
	s.finish(err)
}

// finish releases the lock once no child is left.
func (s *Server) finish(err error) {
	s.child.Store(nil)
	if s.layout.shared {
		err = errors.Join(err, os.RemoveAll(s.layout.socket))
	}
	s.err = errors.Join(err, s.lock.release())
}

// shutdown stops the child and waits for its exit. If ctx ends, it cuts the clean shutdown short.
func (s *Server) shutdown(ctx context.Context, c *child) error {
	c.signal(syscall.SIGINT)
	if s.exits(ctx, c, fastShutdown) {
		if c.err != nil {
			return say.Errorf("PostgreSQL did not stop cleanly: %w", c.err)
		}
		return nil
	}
	s.cfg.Log.Warn("PostgreSQL did not stop in time; ending it immediately", "pid", c.pid)
	c.signal(syscall.SIGQUIT)
	if !s.exits(context.Background(), c, immediateShutdown) {
		c.signal(syscall.SIGKILL)
		<-c.exited
	}
	return say.New("PostgreSQL did not stop cleanly: it recovers at the next start")
}

func (s *Server) exits(ctx context.Context, c *child, within time.Duration) bool {
	wait.Interrupted(within, ctx.Done(), c.exited)
	return c.gone()
}

// URL returns the URL of a database of the server, through its socket. It does not change when the server restarts.
func (s *Server) URL(database string) string { return socketURL(s.layout.socket, database) }

// Program returns the path that a program such as pgbench has in the server's installation. It may not exist. Call it
// only on a server from Start.
func (s *Server) Program(name string) string { return filepath.Join(s.program.dir, name) }

// PID returns the postmaster's process number, 0 while none runs or if another process runs it.
func (s *Server) PID() int {
	if c := s.child.Load(); c != nil {
		return c.pid
	}
	return 0
}

// Done returns a channel that is closed when the server is stopped, or has died and could not be restarted. The channel
// of another process's server is never closed.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns, after Done, the reason why the server ended, nil after a clean stop.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop stops the server cleanly, or immediately if ctx ends first. It leaves another process's server running.
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

// rotateLog renames a log that has reached maxLog and keeps one old log.
func rotateLog(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() < maxLog {
		return nil
	}
	if err == nil {
		err = os.Rename(path, path+".1")
	}
	if err != nil {
		return say.Errorf("rotate the log of PostgreSQL: %w", err)
	}
	return nil
}
