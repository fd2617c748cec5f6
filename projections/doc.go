// Package projections is the write side of what is derived from the log: Load reads the state that a group of commands
// is decided on, Apply writes the projections of its events, Enqueue queues what they give reason to send, and Rebuild
// derives the projections again. Package query reads them, package queue works the queues off.
//
// Apply is a function of events alone: it is called in a group's transaction and again by replay, and cutting one
// history into other groups must give the same tables. Queues of deliveries are not projections and never written by
// Apply. Every statement names the shard.
package projections
