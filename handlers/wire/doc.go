// Package wire holds the JSON of the API's requests and answers, as the published OpenAPI documents describe it. The
// handlers write these types and handlers/client reads them, so the two cannot disagree. It knows neither the server
// nor how anything is stored.
//
// Timestamps are RFC 3339 text in UTC. All members are always present unless a tag says omitempty; null stands for what
// is not established.
package wire
