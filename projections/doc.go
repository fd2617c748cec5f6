// Package projections holds what is derived from the log, one file a
// projection: how its rows are written (Apply) and asked for.
//
// Apply is a function of events alone: it is called in a group's transaction and
// again by replay, and cutting one history into other groups must give the same
// tables. Queues of deliveries are not projections and never written by Apply.
// Every statement names the shard.
package projections
