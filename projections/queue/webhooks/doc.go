// Package webhooks delivers what projections.Enqueue has queued: it takes due rows, speaks to the receivers, and
// records what came of it.
//
// # One delivery
//
//	claim   which destinations have something due (one look-up each), then up to
//	        a window of rows of each, leased; authorizations and the month's allowance of attempts are checked here
//	send    outside of any transaction, at most a few at once to a destination
//	record  many results in one statement; a delivery that has ended moves from
//	        webhook_deliveries to webhook_log
//
// A row is taken by FOR UPDATE SKIP LOCKED and a lease in leased_until, so several processes work on one queue. A
// result is recorded only while the lease is still the one that was taken. A process that dies between sending and
// recording lets its lease run out, and another sends the event again under the same id: at least once, never lost.
// Claims and results do not wait for the disk: a crash of the database that loses one repeats a delivery and does
// nothing else.
//
// # Fairness
//
// Rows are taken by destination, in turn, and each destination has a queue, a window and a number of connections of its
// own. Both grow while it answers quickly and shrink while it is slow or fails, so that a destination that answers
// after 14 seconds holds a handful of rows and connections, and no other waits behind it. A row that has waited here
// for two seconds goes back unsent: what was checked about it may have changed.
//
// # Safety
//
// Receivers are chosen by tenants. Every connection is checked when it is dialled, after the name was resolved, so that
// no answer of a DNS server leads to a private address; there is no proxy, no redirect is followed, and of an answer
// only the status is kept.
package webhooks
