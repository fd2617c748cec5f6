// Package transparency keeps one Merkle tree (RFC 6962) over the events of all
// organizations of all shards, and lets anybody check that its history was never
// rewritten. A leaf is an event's hash (contract, section 4.3); leaves stand in
// the order in which the tree took them, which transparency_runs remembers. The tree shows
// hashes and how many there are, and nothing else; it says nothing about when.
//
// It works after the commit. No writer of the ledger waits for it, or knows of it:
// whatever fails here, registrations go on, and the tree catches up.
//
//	events ──▶ integrate: tiles, runs, root ── COMMIT ──▶ sign ── COMMIT ──▶ served
//
// Of all processes one works at a time: it holds a lease (eventstore.Lease). Who
// was frozen for longer than that may still believe that it holds it, so every
// process that takes the tree over raises its generation, and each later write
// names the generation that it knows.
//
// A checkpoint is signed only once the tree that it covers is committed, with the
// server's plain word that it is on the disk, and where there is a synchronous
// standby there too. So no failure that an acknowledged registration survives can
// make the tree forget what it has signed, and there are never two roots for one
// size. What a crash leaves:
//
//	before the first COMMIT   nothing: the events are read again, in another order perhaps
//	between the two           a tree that nobody outside has seen; its checkpoint is signed next
//	after the second          a checkpoint that is served
//
// A commit whose outcome is unknown is not guessed at: the tree is read again, by
// a transaction that itself is written and flushed, which proves that what it has
// seen will stay.
//
// A database restored to an earlier state would grow into another tree than the
// one that was published. The epoch, which a restore raises, stops the tree until
// the operator has compared it with what is known outside (Resume). A tree that goes
// on as another history goes on under a key that was made after the restore; transparency_keys
// bars all others.
package transparency
