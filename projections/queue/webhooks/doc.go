// Package webhooks delivers the webhooks that projections.Enqueue has queued: it takes due rows, sends them to the
// receivers, and records the results.
//
// # One delivery
//
//	claim   find the destinations with due rows (one look-up each), then lease up to a window of rows
//	        of each; check authorizations and the month's allowance of attempts
//	send    outside any transaction, at most a few at once to each destination
//	record  many results in one statement; a delivery that has ended moves from
//	        webhook_deliveries to webhook_log
//
// A row is taken with FOR UPDATE SKIP LOCKED and a lease in leased_until, so several processes can work on one queue. A
// result is recorded only while the worker's own lease holds. If a process dies between sending and recording, its
// lease expires and another process sends the event again under the same id. Delivery is at least once. Commits of
// claims and results are not flushed: if a crash of the database loses one, the only effect is a repeated delivery.
//
// # Fairness
//
// Destinations take turns. Each has its own queue, window and number of connections. The window and the connections
// grow while the destination answers quickly, and shrink while it is slow or fails. A destination that answers after 14
// seconds therefore holds only a few rows and connections and delays no other. A row that has waited in the process for
// two seconds goes back unsent, because the results of its checks may be out of date.
//
// # Safety
//
// Tenants choose the receivers. Every connection is checked when it is dialled, after name resolution, so that no DNS
// answer can lead to a private address. No proxy is used, no redirect is followed, and only the status and the first
// kilobyte of an answer are kept, which only the members who manage the destination see.
package webhooks
