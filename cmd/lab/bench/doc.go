// Command bench measures the ledger beside what it is compared with, in one run on one machine and one PostgreSQL, and
// verifies afterwards what it wrote.
//
// A contender is one way of doing work: a row of the table in contender.go. All contenders of a run take turns, round
// by round (A B C, A B C), so that a busy neighbour affects all of them. A figure is the median of its rounds, and a
// ratio the median of the ratios of each round. Absolute figures depend on the machine and the moment: the ratios of
// one run are the result. A ratio of two contenders judges their processor time (service, PostgreSQL and load generator
// together), because a neighbour changes it least; the ratio by the clock stands beside it. The targets are one table
// (goals in result.go).
//
// The console has 200 sessions (people.go), each of which opens the overview, the records and the history in turn, one
// page every ten seconds: 20 pages a second in all. Registrations at c = 64 are measured with nobody signed in, beside
// the 200 idle sessions, and beside the 200 at their pages, in an order that changes from round to round. The processor
// time of the pages is subtracted before the ratio is judged. A page costs what it costs when pages alone run at full
// load, which is the least: if it costs more beside registrations, that counts against the registrations. The note
// shows the ratio with nothing subtracted; nothing is subtracted from the ratio by the clock or from the p99.
//
// The lone caller, pgbench, the idle service and the quiet tenant begin when earlier work is finished (settle in
// service.go). pgbench begins every round with the same rows.
//
// The service is a child process, "integrity serve" with its default settings, except that configuration raises the
// limits of requests a minute. An answer means committed and flushed. PostgreSQL is the embedded one with its durable
// settings. The load generator, the service and PostgreSQL share the machine; /proc separates their processor time.
//
// A run fails unless every registration that it counted was acknowledged, every acknowledged one is in the log exactly
// once, and the program's own audit finds nothing wrong (verify.go). A figure that was not measured is never shown as a
// number.
package main
