// Package bench measures the ledger beside what it is compared with, all in one
// run on one machine and one PostgreSQL, and verifies afterwards what it wrote.
//
// A contender is one way of doing work: a row of the table in contender.go. All contenders of a run take turns, round
// by round (A B C, A B C), so that a busy neighbour hits all of them; a figure is the median of its rounds, and a ratio
// the median of the ratios of each round. Absolute figures belong to the machine and the moment: the ratios of one run
// are the result.
//
// What is measured is what runs: the service is a child process "integrity serve" with its default settings, except
// that the limits of requests a minute are raised by configuration; an answer means committed and flushed. PostgreSQL
// is the embedded one with its durable settings. The load generator, the service and PostgreSQL share the machine, and
// their CPU time is separated by /proc.
//
// What must stay true: every registration that is counted was acknowledged, and every acknowledged one is in the log
// exactly once, which the program's own audit finds sound (verify.go), or the run fails. A figure that was not measured
// is never shown as a number.
//
// # What was tried, November 2026
//
// Two cores that also carry load generator and neighbours, so the ratios are of one
// run or of runs side by side; CPU is a registration's.
//
//	kept
//	arrays encoded in one pass (eventstore/cluster/codecs.go) pgx's encoding 12 % of the process → 2 %
//	garbage up to three times what is in use (GOGC 300)     service 75 → 60 µs in process; memory at c = 1,024 110 → 180 MB
//	a group is taken when the one before it is decided,    over HTTP, c = 256: 15 → 29 commands a group,
//	  one connection more than processors                    PostgreSQL 184 → 90 µs, 3,700 → 5,200/s with the next two
//	one statement of authentication under way a shard      53 → 25 µs of statement a request
//	fixed plans for readers too                            planning cost more than answering
//	comparisons share a statement; the event found by      PostgreSQL 96 → 57 µs a comparison
//	  its key (the plan had read the shard's other index)
//	signature checks of stored bytes remembered            service 213 → 130 µs a comparison
//	proofs of inclusion share a statement, and the hashes  evidence : comparison 0.20 → 0.47; service 530 → 220 µs, PostgreSQL
//	  within a tile are remembered                           450 → 170 an evidence; without a proof it would be 160 and 130
//	index of the search by hash without what it need not   88 → 30 bytes a record, a random page fewer in the cache
//	  hold
//	an eighth of the memory for PostgreSQL's pages         at 5,400,000 records 3.1 → 1.09 times the cost at 50,000, with the
//	  (it was 128 MB)                                        next but one
//
//	not kept
//	leaves of events and the checkpoint remembered too     PostgreSQL 170 → 160 µs an evidence, within the noise
//	a sender that yields before it takes a batch           within the noise
//	full pages compressed in the WAL (pglz)                3.9 → 3.5 KB a registration at 5,300,000 records, and the processor
//	                                                         of a grown ledger spent on it
//	four, eight connections that commit                    smaller groups: 23, 15 commands; 15 to 35 % slower than three
//	two, one                                               larger groups: 41 and more; no faster than three
//	GOMAXPROCS above the processors                        none of 3, 4, 8 helped
//	Ed25519 of cloudflare/circl                            24 to 27 µs, as the standard library (26 µs)
//	Ed25519 of oasisprotocol/curve25519-voi                12.5 µs, constant time, a tenth more registrations; without a
//	                                                         release or commit since 2023, and it would hold the signing key
//	commits that do not wait for the disk, answered when   readers would see what a crash takes back, and the feed would
//	  a later one has                                        give its sequence twice
//
// Where HTTP misses its targets the processors are full: at 5,600/s over HTTP the load generator takes 47 µs of them,
// PostgreSQL 90, the service 145, of which the signature is 26, the authentication 14, the group 20, net/http with its
// system calls 45. The empty POST beside it costs 43 µs altogether, so 0.30 of it would leave 95 µs for the service and
// PostgreSQL: less than the registration costs in process. It takes a load generator or a PostgreSQL on a machine of
// its own.
package bench
