// Package cluster connects to the servers of a ledger's database: which of them is the primary, with which settings and
// role each kind of work connects, whether a pooler in between keeps sessions, and what is different on Citus.
//
// A Primary is a value: all pools that are made from one share what any of them has seen, so that none uses a former
// primary once its successor was met.
package cluster
