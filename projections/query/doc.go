// Package query answers readers: every question that handlers, the MCP server and operators ask of the projections, and
// authentication, which is asked before each of them. It never writes what Apply writes; the few rows that it writes
// (meters, claims of Idempotency-Keys, last uses of keys, replays of deliveries) are no projections. Every statement
// names the shard.
package query
