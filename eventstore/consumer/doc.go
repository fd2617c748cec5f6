// Package consumer runs what follows the log after the commit: Watermill's router, over subscribers of watermill-sql
// whose topics are rows of our own.
//
// A Source is one topic: a row that remembers how far its work has come, and the work. Each message is one page:
//
//	BEGIN ── Claim locks the row, unless another process has it ── Handle ── Advance ── COMMIT
//
// The row lock is the lease. Of all processes one at a time works on a Source, no clock is compared, and whatever ends
// a process or its connection frees the row. A process that is frozen while it holds the row loses its transaction
// after two seconds, by PostgreSQL's idle_in_transaction_session_timeout, and with it all that it could still write.
//
// A page has 1.5 s. No transaction is open for longer than 2 s, so slow work outside (a broker) gets only what it can
// do in that time done, advances by that, and leaves the rest to the next page. Handle that fails or panics is repeated
// with growing pauses and smaller pages, outside of the transaction. Nothing is ever skipped.
//
// What a crash leaves: before the COMMIT, the page comes again; after it, the next one. The position may also be lost
// in a crash of the database, whose commits are not waited for, and then pages come again too. So effects outside of
// the transaction must be idempotent, and effects inside of it happen once.
package consumer
