// Package domain holds what the ledger is about: its types and ids, commands, events, the decision which commands are
// accepted (Decide), how an event changes the state (State.Apply), and the canonical bytes of events.
//
// It is pure: no I/O, no clock, no goroutines. Time and random bytes come in as
// arguments, so that a decision can be repeated and a history replayed.
package domain
