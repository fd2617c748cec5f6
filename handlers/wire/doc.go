// Package wire holds what the integrity operations of the API send and answer,
// as the published OpenAPI document describes it. The handlers write these types
// and handlers/client reads them, so the two cannot disagree. It knows neither
// the server nor how anything is stored.
//
// Timestamps are RFC 3339 text in UTC. All members are always present unless a
// tag says omitempty; null stands where nothing is established.
package wire
