// Package postgres runs a private PostgreSQL as a child process of this one, in a data directory that belongs to one
// process at a time. It knows nothing of the ledger: it hands out a connection URL and keeps the server behind it
// alive.
//
// A data directory looks like this:
//
//	postgres.lock   flock'd by the process that runs the server, for as long as it does; says who that is
//	postgres.log    what PostgreSQL itself has to say (never a statement, never a parameter)
//	pgdata/         PostgreSQL's own directory; exists only complete
//	pgdata.init/    an initdb that has not finished; worthless, removed at the next start
//	pgdata.restore/ a restore that has not finished; begun again, never served from
//	socket/         mode 0700: the only way in
//
// What must stay true:
//
//   - Nobody starts, initialises or repairs anything without holding the lock. The kernel drops it when the holder dies,
//     however it dies, so a left-over lock file means nothing.
//   - PostgreSQL gets SIGINT (a clean, fast shutdown) from the kernel when its parent dies. The signal follows the thread
//     that forked, so that thread lives exactly as long as the child.
//   - A postmaster that outlives its parent for a moment, or processes that outlive a killed postmaster, are waited for or
//     ended; PostgreSQL's own interlocks (postmaster.pid, the shared memory key) decide, and are never removed.
//   - PostgreSQL lets in root and the user of the process that started it, by what the kernel says of the other end of the
//     socket (peer). The user that PostgreSQL itself runs as is let in only where it is one of them.
//   - A data directory of another major version is refused, never converted and never emptied.
//
// It is written for Linux: the parent-death signal and /proc have no portable counterpart.
package postgres
