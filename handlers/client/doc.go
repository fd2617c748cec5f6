// Package client is what an origin system uses of the integrity API: it declares the hashes of final files, reserves
// links, looks records up, follows the change feed, compares, and keeps evidence that it can verify offline. It never
// sends the bytes of a file.
//
// A client speaks https, or http to this machine alone; it follows no redirect, bounds every request in time, and sends
// the key to the configured service only, never with a public question.
//
// # What became of a write
//
// No write is ever repeated by the client. When a write fails, ask two things. [Refused]: the service has decided
// against it; sending it again does not help, it needs correction. [Unknown]: it may have happened all the same. Then
// look the version up and send the exact same declaration again: what was registered already is answered as a replay,
// which consumes nothing. Everything else (408, 429, 503) is worth repeating after [Error].RetryAfter. Package outbox
// does all of that, and survives crashes.
//
// # What a read shows
//
// Everything that was committed before it. Within ten seconds of a write of the same client, look-ups and lists may
// come from a read replica of the service, and then show at least what the client has written and has read in the feed.
package client
