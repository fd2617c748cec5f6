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
// A run fails unless every registration that it counted was acknowledged, every acknowledged registration is in the log
// exactly once, and the program's own audit reports no error (verify.go). A figure that was not measured is never shown
// as a number.
package main
