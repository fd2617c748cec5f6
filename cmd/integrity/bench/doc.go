// Package bench measures the ledger beside what it is compared with, all in one
// run on one machine and one PostgreSQL, and verifies afterwards what it wrote.
//
// A contender is one way of doing work: a row of the table in contender.go. All contenders of a run take turns, round
// by round (A B C, A B C), so that a busy neighbour hits all of them; a figure is the median of its rounds, and a ratio
// the median of the ratios of each round. Absolute figures belong to the machine and the moment: the ratios of one run
// are the result. Of two contenders the ratio of their processor time is judged (service, PostgreSQL and load generator
// together), because a neighbour changes it least; the ratio on the clock stands beside it. The targets are one table
// (goals in result.go).
//
// People at the console (people.go) are 200 sessions, begun by links as any other, of which each opens the overview, the
// records and the history in turn, one page every ten seconds: 20 pages a second in all. Registrations at c = 64 are
// measured with nobody signed in, beside the 200 idle, and beside the 200 at their pages, in an order that changes from
// round to round. The pages take processor time that registrations would have had, so what they cost is taken off before
// the ratio is judged, and only that: a page's cost is that of pages by themselves at full load, where it is least, and
// whatever more it costs beside registrations counts as loss of these. With nothing taken off the ratio stands in the
// note, and the wall ratio has nothing taken off either. Of the p99 nothing is taken off.
//
// The lone caller, pgbench, the idle service and the quiet tenant begin when what was done before them is over (settle in
// service.go); nothing is subtracted from what they cost. pgbench begins every round with the same rows.
//
// What is measured is what runs: the service is a child process "integrity serve" with its default settings, except
// that the limits of requests a minute are raised by configuration; an answer means committed and flushed. PostgreSQL
// is the embedded one with its durable settings. The load generator, the service and PostgreSQL share the machine, and
// their CPU time is separated by /proc.
//
// What must stay true: every registration that is counted was acknowledged, and every acknowledged one is in the log
// exactly once, which the program's own audit finds sound (verify.go), or the run fails. A figure that was not measured
// is never shown as a number, and a figure of another's program that was published is named as one.
//
// # What was tried, November 2026
//
// Two cores that also carry load generator and neighbours, so the ratios are of one
// run or of runs side by side; CPU is a registration's.
//
//	kept
//	arrays encoded in one pass (eventstore/cluster/codecs.go) pgx's encoding 12 % of the process → 2 %
//	a write's caller judged, and its request counted, by   c = 256: service 179 → 159 µs, PostgreSQL 120 → 78; c = 64:
//	  its group, in place of a statement before it           248 → 217 and 244 → 143
//	one group of a shard at a time, and one shard:         c = 256: service 159 → 151 µs, PostgreSQL 78 → 55; c = 64:
//	  a group is taken when the one before it is committed   217 → 204 and 143 → 133
//	                                                         Its price: rows of a company lie between those of others, the
//	                                                         feed costs 11.6 µs an event where it cost 5.0
//	a group's commands by organization                     the feed 11.6 → 9.6 µs an event, by SQL a fifth faster; 9 bytes a
//	                                                         row more in each index of documents and versions
//	one statement of authentication under way a shard      53 → 25 µs of statement a request that reads
//	fixed plans for readers too                            planning cost more than answering
//	comparisons share a statement; the event found by      PostgreSQL 96 → 57 µs a comparison
//	  its key (the plan had read the shard's other index)
//	signature checks of stored bytes remembered            service 213 → 130 µs a comparison
//	the hash of stored bytes remembered with what they     service 100 → 79 µs a comparison; half a million records in
//	  say, in place of the payload taken apart               63 MB where it was 16 thousand in 16
//	a comparison reads no more than it shows, and readers' 54 → 40 µs a lone comparison's statement, 11.0 → 9.6 in
//	  plans keep no results (enable_memoize)                 statements of 32; evidence 71 → 52 and 13.7 → 12.2
//	proofs of inclusion share a statement, and the hashes  evidence : comparison 0.20 → 0.47; service 530 → 220 µs, PostgreSQL
//	  within a tile are remembered                           450 → 170 an evidence; without a proof it would be 160 and 130
//	a registration's data scanned, not decoded by          16 → 5 µs an evidence on a busy machine
//	  reflection
//	the tree's right edge hashed once for a batch of       7 to 15 → 2 to 3 µs an evidence
//	  proofs
//	index of the search by hash without what it need not   88 → 30 bytes a record, a random page fewer in the cache
//	  hold
//	an eighth of the memory for PostgreSQL's pages         at 5,400,000 records 3.1 → 1.09 times the cost at 50,000, with the
//	  (it was 128 MB)                                        next but one
//
//	webhook workers woken only by a group that queued a    one caller: PostgreSQL's queue and notifications 240 to 300 µs → 2,
//	  delivery, NOTIFY only where a process has announced    the service's context switches 41 → 31 with the next; whether one
//	  that somebody waits                                    has is asked with the time, without a statement of its own
//	the tree of hashes grows when it can be signed, not    one caller: 0.6 → 0.1 statements of it a registration, 85 → 14 µs;
//	  every 50 ms                                            an inclusion comes no later: at rest 0.35 → 0.06 s, at most 1.0
//
//	pgbench in emptied tables, after a checkpoint, with a  CPU a row 37 to 45 µs in five runs at a load of 5 to 10 (13 and 79
//	  fixed number of clients; CPU of processes that end     before); 24,000 to 41,000 rows/s with the neighbours' load, and
//	                                                         half of it with a checkpoint under way
//	plain insert of a document that its event says is new  its statement 8.9 → 6.1 µs in groups of 74, three pages fewer;
//	                                                         WAL 2,690 → 2,640 bytes without full pages
//	companies and grants once a group, and a document      loading declarations 12.4 → 4.4 µs; PostgreSQL 65 → 59 µs in process
//	  that is not there gives no row
//	arrays unnested by the select list, not in FROM        PostgreSQL 53 → 48 µs in process
//	paths with at most one variable looked up in front     POST records 1,007 → 15 ns and 7 allocations fewer, a comparison
//	  of gorilla/mux                                         3,400 → 65 ns
//	answers of registration, batch and comparison          3.2 → 0.7 µs and 1.7 KB of garbage less an answer
//	  without reflection
//	lines of requests written several at a time            a line in a file 6.5 → 3.2 µs (text, wall)
//	looks of an idle service that find nothing come less   service and PostgreSQL 0.48 → 0.17 % of a core
//	  often
//	garbage up to four times what is in use under a        memory at c = 1,024 264 → 196 MB; CPU the same within the noise
//	  limit of 160 MiB or twice what is in use
//
//	groups of 512, not 256                                 119 → 98 µs an item of a batch of 500; a quiet tenant beside
//	                                                         batches waits 11 ms, not 6. With 1,024 it is 90 µs and 19 ms
//	a registration's data scanned where it is replayed,    18 → 2.3 µs an event; rebuild 22,000 → 35,000 events/s, audit
//	  audited and exported, and the next page read ahead     16,000 → 24,000, export 20,000 → 60,000
//	runs of the published tree remembered, its checkpoint  evidence : comparison 0.40 → 0.46
//	  for 200 ms, and evidence written without reflection
//
//	not kept
//	the line of a request formatted by hand                slog takes 1.5 µs of it once it is written with others: at
//	                                                         most 1 µs to gain of 340
//	GOGC 600, 800; a ballast of 64 or 100 MB               service 2 to 4 % less at best, 270 to 400 MB at c = 1,024
//	leaves of events and the checkpoint remembered too     PostgreSQL 170 → 160 µs an evidence, within the noise
//	a sender that yields before it takes a batch           within the noise
//	comparisons by = ANY of the ids, or their state as      within 1 µs of the joins, and a missing row would change the answer
//	  scalar subqueries
//	a table of sets for the checks that are remembered     200 ms under its lock to grow, and 80 MB for 100,000 records
//	full pages compressed in the WAL (pglz)                3.9 → 3.5 KB a registration at 5,300,000 records, and the processor
//	                                                         of a grown ledger spent on it
//	timer slack of 500 µs, for Go's monitor thread, by     a lone caller's service 833 → 720 µs; at c = 64 fewer groups a
//	  executing the program once more                        second beside other load, so not proven harmless
//	more connections that commit than processors and one,  smaller groups; two groups of four shards under way at a time
//	  more than one a shard                                  cost 285 µs at c = 256, one 289, one of one shard 252
//	GOMAXPROCS above the processors                        none of 3, 4, 8 helped
//	Ed25519 of cloudflare/circl                            24 to 27 µs, as the standard library (26 µs)
//	Ed25519 of oasisprotocol/curve25519-voi                12.5 µs, constant time, a tenth more registrations; without a
//	                                                         release or commit since 2023, and it would hold the signing key
//	inserts without the shard's head beside the arrays     59.6 and 59.9 µs: none; Citus needs it
//	feed rows that point to the event for id and time      a page of 1,000 by SQL 11 → 20 ms and more, for 24 of 2,140 bytes;
//	                                                         the previous version could not read them beside
//	documents with fill factor 95, 100                     14, 20 bytes less; HOT updates 100 → 96, 94 %. Updates of usage,
//	                                                         organization_state and shard_heads are all HOT
//	versions without its check constraint                  30 µs a group, and it guards the table
//	events compressed by PostgreSQL                        it compresses no row below 2 KB, whatever the table's target
//	commits that do not wait for the disk, answered when   readers would see what a crash takes back, and the feed would
//	  a later one has                                        give its sequence twice
//
// Over HTTP the processors are full. At 8,700/s and c = 256 the service takes 115 µs of them, PostgreSQL 45 and the load
// generator 37; of the service's, the signature is 20, what net/http does around the handlers 21, the group 19, decoding
// and preparing 9, the answer 6, collecting garbage 6. The empty POST beside it costs 37 altogether: a ratio of 0.19. On
// another machine of two processors it was 126, 44 and 41 beside 58: 0.27.
package bench
