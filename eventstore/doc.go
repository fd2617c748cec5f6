// Package eventstore is the log: it takes commands, has them decided, and appends their events, many commands to a
// transaction.
//
// # Group commit
//
// A shard is one ordered log. Its positions are handed out under the row lock of its head, held to the commit, so they
// are gapless and in commit order: a reader that has passed a position can never meet an earlier one later, which a
// database sequence could not promise. The lock makes writers take turns, so a transaction carries as many commands as
// are waiting:
//
//	Execute ─▶ queue (bounded, round robin by organization)
//	               └▶ group of up to 512 commands
//	                    1. count requests, and commit that
//	                       BEGIN; lock the head; load what the commands need
//	                       judge each actor and decide in memory, in arrival order
//	                    2. events, projections, queues, head; COMMIT
//	               ◀── everyone is answered
//
// Before a command is made its place in the queue can be taken (Admit), so that no signature is spent on one that the
// queue would refuse. An organization has at most a quarter of the places, as many as it leaves free, and an eighth of
// a group while others use the shard.
//
// A process has one group of a shard under way; what arrives meanwhile becomes the next. Nobody waits for a timer: a
// lone command is a group of one.
//
// # When it fails
//
// A refusal or a panic in a decision concerns its command. An error in a command's data (SQLSTATE classes 22, 23, 54)
// halves the group until the bad one stands alone and gets 500. Serialization failures, deadlocks and connections lost
// before the commit was sent are tried again, three times at most. When the commit was sent and its answer is not
// known, nothing is repeated and no caller is answered with success: callers get 503, look up, and send the same
// command again. A process that freezes with the lock loses its transaction after five seconds.
//
// When the primary is lost and a standby promoted, every pool finds the new primary by itself, and a former one that
// comes back is known by its timeline (cluster.Primary). With a synchronous standby a commit is acknowledged once both
// have it; a warning that the standby was not waited for makes the outcome unknown.
package eventstore
