// Package audit proves a history from its stored bytes alone. It is fed with events as they stand in a log or in a
// bundle, and says where the first one is that cannot be what the ledger wrote.
//
// Of each event it recomputes the hash from the stored members (contract section 4.3) and the canonical form from what
// they say, checks signatures against pinned keys, historical ones included, the salted hashes of the texts that it
// names, and what a signed payload binds. Positions and sequences have no hole, and every event can follow those before
// it, by the same domain.State.Apply that the ledger decides with. No key acts before it was made or after it was
// revoked or has expired, no member who is not active. Limits, quotas, scopes and roles are not judged again: they
// depend on plans and policies as they were then. No time is checked against another clock.
//
// # Memory
//
// What grows with the history is the state of its documents and artifacts, and no document knows of another. So the
// first pass keeps only organizations, members, keys, companies and destinations; events of documents and artifacts are
// set aside in one of 256 parts, by the document's or artifact's id, and each part is replayed by itself at the end.
// The same parts hold what must be unique: one public id is one version, one reference is one document, one event id is
// one event.
//
// The package reads no database and no file. The caller keeps the parts.
package audit
