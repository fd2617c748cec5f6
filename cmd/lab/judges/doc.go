// Package judges holds tests in which third-party code judges the running program: libraries that verify webhooks and
// the proofs of transparency logs, a strict mail server, a generator of API clients, Prometheus, and an OpenTelemetry
// collector. Each test sees the program as users do.
package judges
