// Package bench measures the ledger beside what it is compared with, all in one
// run on one machine and one PostgreSQL, and verifies afterwards what it wrote.
//
// A contender is one way of doing work: one file, one function that makes it. All
// contenders of a run take turns, round by round (A B C, A B C), so that a busy
// neighbour hits all of them; a figure is the median of its rounds, and a ratio
// the median of the ratios of each round. Absolute figures belong to the machine
// and the moment: the ratios of one run are the result.
//
// What is measured is what runs: the service is a child process "integrity serve"
// with its default settings, except that the limits of requests a minute are
// raised by configuration; an answer means committed and flushed. PostgreSQL is
// the embedded one with its durable settings. The load generator, the service and
// PostgreSQL share the machine, and their CPU time is told apart by /proc.
//
// What must stay true: every registration that is counted was acknowledged, and
// every acknowledged one is in the database exactly once (verify.go), or the run
// fails. A figure that was not measured is never shown as a number.
package bench
