// Package ops holds what operators watch a service with: metrics for Prometheus, the page /ops, profiles, traces by
// OpenTelemetry, and beside the code a Grafana dashboard and alert rules, which are tested against a scrape.
//
// Labels are route templates, codes, shards, tables, pools and outcomes: never ids, references or hashes. It measures
// where others tell it (Observe in their Config) and otherwise asks when it is scraped, so a service that nobody
// scrapes pays for counters alone.
//
// Projections are written in the transaction of their events and so have no lag;
// consumers come after the commit, and have one.
package ops
