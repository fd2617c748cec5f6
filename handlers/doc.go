// Package handlers is the service over HTTP: it assembles what surrounds every request (edge), what is done (action),
// and the faces that show it: programs (api), models (mcp), people who have signed in (console), and everybody (site).
//
// # The life of a declaration
//
// An origin system sends POST /api/v1/integrity/records. These files see it, in this order:
//
//  1. handlers/edge/router.go finds the row of the path. All rows of the API are in handlers/api/endpoints.go: method, path,
//     reader, action, and the policy of the endpoint.
//  2. handlers/edge/middleware.go takes the checks that come before an action, in the order of contract section 2, and
//     writes the line of the log at the end.
//  3. handlers/edge/decision.go decides who acts, and whether it may. A caller that was there before costs no statement:
//     its group has the last word.
//  4. handlers/edge/body.go takes the body in, in time and within its bounds.
//  5. domain/declaration.go reads the declaration from the JSON value, with everything that is wrong with it at once.
//     Later it prepares the command: it makes the record of it and has domain/evidence/payload.go write the bytes that
//     are signed.
//  6. handlers/action/record.go is the action. handlers/action/admission.go lets each organization have a few under way.
//  7. eventstore/queue.go has a place for the command, in the line of its organization.
//  8. eventstore/group.go takes what waits in a shard into one transaction: it counts the minute, locks the shard's head,
//     loads, decides, appends and applies. It says what a crash leaves.
//  9. projections/load.go loads what the decisions of a group need, in one statement.
//  10. domain/declaration.go decides (Register.Decide): a new version, a replay, or a refusal. domain/state.go numbers the
//     events, and domain/event.go says how their bodies are stored.
//  11. projections/apply.go writes what follows from the events: records, feed, usage. The sequence of an event is the
//     cursor of the feed.
//  12. projections/enqueue.go queues what must leave the service, such as a delivery for each webhook that wants the event.
//  13. handlers/wire/integrity.go and append.go are the answer as JSON; handlers/edge/response.go writes it.
//
// After the commit eventstore/transparency/keeper.go puts the event into the tree, and
// projections/queue/webhooks/worker.go sends the delivery.
//
// # How to add something
//
// README has the steps: an event type, an endpoint, a projection, a setting.
package handlers
