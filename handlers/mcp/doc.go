// Package mcp speaks the Model Context Protocol on behalf of an HTTP handler: Streamable HTTP without sessions and
// without event streams, one JSON answer a request, in the protocol versions of Versions. The protocol itself is the
// official SDK's. What stands in front of it here is what a strict server owes its callers and the SDK leaves out:
// JSON-RPC errors as JSON, ids that come back as they were sent, batches where the version has them, panics contained,
// an answer to tools/list that only its caller may keep.
//
// It knows nothing of ledgers, keys or limits: who may call, what a call costs and what a tool does is for the maker of
// an Endpoint to say.
package mcp
