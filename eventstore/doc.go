// Package eventstore is the append-only log. It takes commands, has them decided, and appends their events, with many
// commands in one transaction.
//
// # Group commit
//
// A shard is one ordered log. Positions are assigned under the row lock of the shard's head, which is held until the
// commit, so they are gapless and in commit order. A reader that has passed a position never meets an earlier one
// later; a database sequence could not guarantee that. Because of the lock, writers take turns, so each transaction
// carries all the commands that are waiting:
//
//	Execute ─▶ queue (bounded, round robin by organization)
//	               └▶ group of up to 512 commands
//	                    1. count requests, and commit that
//	                       BEGIN; lock the head; load what the commands need
//	                       judge each actor and decide in memory, in arrival order
//	                    2. events, projections, queues, head; COMMIT
//	               ◀── everyone is answered
//
// Admit takes a command's place in the queue before the command is created, so that no signature is spent on a command
// that the queue would refuse. An organization may take at most a quarter of the places and at most as many as it
// leaves free. It may take an eighth of a group while other organizations use the shard.
//
// A process has one group per shard in progress; commands that arrive meanwhile form the next group. There is no
// batching delay: a lone command is a group of one.
//
// # Failures
//
// A refusal or a panic in a decision affects only its command. An error in a command's data (SQLSTATE classes 22, 23,
// 54) halves the group until the bad command stands alone and gets 500. Serialization failures, deadlocks and
// connections lost before the commit was sent are retried, at most three times. If the commit was sent but its outcome
// is unknown, nothing is repeated and no caller is answered with success: callers get 503, look up the result, and send
// the same command again. A process that freezes while it holds the lock loses its transaction after five seconds.
//
// When a standby replaces a lost primary, every pool finds the new primary by itself. A former primary that returns is
// recognized by its timeline (cluster.Primary). With a synchronous standby, a commit is acknowledged once both servers
// have it. If PostgreSQL warns that it did not wait for the standby, the outcome is unknown.
package eventstore
