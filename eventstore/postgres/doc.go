// Package postgres runs a private PostgreSQL as a child process, in a data directory that belongs to one process at a
// time. It knows nothing about the ledger: it returns a connection URL and keeps the server behind it alive.
//
// A data directory looks like this:
//
//	postgres.lock   locked with flock while a process runs the server; names that process
//	postgres.log    PostgreSQL's own messages (never a statement or a parameter)
//	pgdata/         PostgreSQL's own directory; exists only complete
//	pgdata.init/    an unfinished initdb; worthless, removed at the next start
//	pgdata.restore/ an unfinished restore; started again, never served from
//	socket/         mode 0700: the only way in
//
// The package maintains these invariants:
//
//   - Only the holder of the lock starts, initializes or repairs anything. The kernel releases the lock when the
//     holder dies, however it dies, so a left-over lock file means nothing.
//   - The kernel sends PostgreSQL SIGINT (a clean, fast shutdown) when its parent dies. The signal follows the thread
//     that forked, so that thread lives exactly as long as the child.
//   - A postmaster may briefly outlive its parent, and processes may outlive a killed postmaster. They are waited for
//     or ended. PostgreSQL's own interlocks (postmaster.pid, the shared memory key) decide, and are never removed.
//   - PostgreSQL admits root and the user of the process that started it, as the kernel identifies the peer of the
//     socket. The user that PostgreSQL itself runs as is admitted only if it is one of these.
//   - A data directory of another major version is refused, never converted and never emptied.
//
// It works on Linux only: the parent-death signal and /proc have no portable counterpart.
package postgres
