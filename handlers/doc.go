// Package handlers is the HTTP service. It assembles the processing that surrounds every request (edge), the actions
// (action), and the faces that offer the actions: to programs (api), models (mcp), people who have signed in (console),
// and everyone (site).
//
// # The life of a declaration
//
// An origin system sends POST /api/v1/integrity/records. The request passes these files in order:
//
//  1. handlers/edge/router.go finds the endpoint for the path. handlers/api/endpoints.go lists all endpoints of the
//     API with their method, path, reader, action and policy.
//  2. handlers/edge/middleware.go makes the checks that precede an action, in the order of contract section 2, and
//     finally writes the log line.
//  3. handlers/edge/decision.go decides who acts and whether the caller is authorized. A caller in the cache costs no
//     statement, because the group makes the final decision.
//  4. handlers/edge/body.go reads the body within its time and size limits.
//  5. domain/declaration.go reads the declaration from the JSON value and reports all of its errors at once. Later it
//     prepares the command: it creates the record and has domain/evidence/payload.go write the bytes to sign.
//  6. handlers/action/record.go is the action. handlers/action/admission.go limits the number of requests that an
//     organization has in progress.
//  7. eventstore/queue.go places the command in its organization's queue.
//  8. eventstore/group.go commits the waiting commands of a shard in one transaction: it counts the minute, locks the
//     shard's head, loads, decides, appends and applies. Its comments explain the effect of a crash at each step.
//  9. projections/load.go loads the state that the decisions of a group need, in one statement.
//  10. domain/declaration.go decides (Register.Decide): a new version, a replay, or a refusal. domain/state.go
//     numbers the events, and domain/event.go defines how their bodies are stored.
//  11. projections/apply.go writes the projections of the events: records, feed, usage. The sequence of an event is
//     the cursor of the feed.
//  12. projections/enqueue.go queues work outside the service, such as a delivery for each webhook that subscribes to
//     the event.
//  13. handlers/wire/integrity.go and append.go encode the answer as JSON; handlers/edge/response.go writes it.
//
// After the commit eventstore/transparency/keeper.go adds the event to the tree, and
// projections/queue/webhooks/worker.go sends the delivery.
//
// # How to extend the service
//
// The README lists the steps for a new event type, endpoint, projection or setting.
package handlers
