// Command bench measures the ledger beside its alternatives, in one run on one machine and one PostgreSQL, and then
// verifies the written data.
//
// A contender is one way of doing work: a row of the table in contender.go. All contenders of a run take turns, round
// by round (A B C, A B C), so that a busy neighbour affects all of them. A figure is the median of its rounds, and a
// ratio is the median of the ratios of each round. Absolute figures depend on the machine and the moment, so only the
// ratios of one run count as results. A ratio compares the processor time of two contenders (service, PostgreSQL and
// load generator together), because a neighbour changes it least. The wall-clock ratio is shown beside it. The targets
// are one table (goals in result.go).
//
// The console has 200 sessions (people.go). Each opens the overview, the records and the history in turn, one page
// every ten seconds: 20 pages a second in all. Registrations at c = 64 are measured with no sessions, beside the 200
// idle sessions, and beside the 200 active sessions, in an order that changes from round to round. The processor time
// of the pages is subtracted before the ratio is judged. The subtracted cost of a page is its cost when pages alone run
// at full load, which is the minimum: any extra cost beside registrations counts against the registrations. The note
// shows the ratio without the subtraction. The wall-clock ratio and the p99 have no subtraction.
//
// The lone caller, pgbench, the idle service and the quiet tenant start when earlier work is finished (settle in
// service.go). pgbench starts every round with the same rows.
//
// The service is a child process, "integrity serve" with its default settings, except that its configuration raises the
// limits of requests per minute. An answer means committed and flushed. PostgreSQL is the embedded one with its durable
// settings. The load generator, the service and PostgreSQL share the machine; /proc separates their processor time.
//
// With --peers, other products take turns with the service in the same rounds: durable, at the same concurrency, with
// entries of 900 bytes, about as large as the data of a registration's event. Their programs are built from
// cmd/lab/peers, a module of its own: immudb's server, a load generator with immudb's Go client, and a small HTTP
// server for a log of Tessera on its POSIX driver. PostgreSQL has no part in their work, so its processor time and WAL
// are left out of their rows. A round of a peer starts when earlier work is finished; the service's own rounds under
// load do not wait for that.
//
// No peer decides on an entry, signs it, or knows organizations, idempotency keys and quotas, so each needs less work
// for an answer. Each has what the ledger lacks:
//
//   - immudb is a general database with SQL. An answer to Set means committed and synced, in an authenticated session.
//     With VerifiedSet and VerifiedGet the client also checks a proof of inclusion and consistency, which our
//     registration does not return and our evidence does. The server waits at least 5 ms for more transactions before
//     it syncs, which a lone caller notices. Its limit of concurrent transactions is raised, because the default, 30,
//     refuses 64 callers.
//   - Tessera answers when entry, tiles and tree state are synced, like its own example program. It publishes a signed
//     checkpoint over them later, at most every 100 ms; "published" waits for that. (Our registration does not wait for
//     the transparency log either.) It has no authentication, no look-up by name and no check for duplicates, and any
//     web server can serve its files. It writes a batch of 256 entries, or at an age of 1 s or 5 ms a smaller one: with
//     1 s, 256 callers fill every batch and fewer callers wait for the age.
//   - pgbench's plain table is the least that PostgreSQL can do: a random UUID and 900 bytes, one row a transaction.
//
// A run fails unless every registration that it counted was acknowledged, every acknowledged registration is in the log
// exactly once, and the program's own audit reports no error (verify.go). A figure that was not measured is never shown
// as a number.
package main
