// Package transparency keeps one Merkle tree (RFC 6962) over the events of all organizations of all shards, and lets
// anybody check that its history was never rewritten. A leaf is an event's hash (contract, section 4.3). Leaves stand
// in the order in which the tree took them, which transparency_runs remembers. The tree shows hashes and how many there
// are, and nothing else; it says nothing about when.
//
// It works after the commit. No writer of the ledger waits for it or knows of it: whatever fails here, registrations go
// on, and the tree catches up.
//
//	events ──▶ grow: tiles, runs, root ── COMMIT ──▶ settle ── COMMIT ──▶ sign ── COMMIT ──▶ served
//
// The tree is a source of package consumer: its one row remembers how far it has come in every shard, and the process
// that has locked it lets the tree grow, in one statement of that transaction. So each event is a leaf exactly once,
// whatever ends a process. Any process may sign: the tree only grows, and a checkpoint never gives way to a smaller
// one.
//
// A checkpoint is signed only once the tree that it covers is on the disk, by the server's plain word, and where there
// is a synchronous standby there too: settling is a commit that is flushed, and proves it of all that it has read. So
// no failure that an acknowledged registration survives can make the tree forget what it has signed, and there are
// never two roots for one size. What a crash leaves:
//
//	before the first COMMIT   nothing: the events are read again, in another order perhaps
//	before the third          a tree that nobody outside has seen; its checkpoint is signed next
//	after the third           a checkpoint that is served
//
// A database that was restored to an earlier state would grow into another tree than the one that was published. The
// epoch, which a restore raises, stops the tree until the operator has compared it with what is known outside (Resume).
// A tree that goes on as another history goes on under a key that was made after the restore; transparency_keys bars
// all others.
package transparency
