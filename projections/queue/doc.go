// Package queue holds the workers behind a commit: they take the rows that projections.Enqueue has queued, act outside
// any transaction (a mail server, a blob store, a receiver's endpoint) and record what came of it.
package queue
