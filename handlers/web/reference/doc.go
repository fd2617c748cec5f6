// Package reference reads an OpenAPI 3.1 document into what a page shows of it: groups of operations with their
// parameters, bodies, answers and refusals.
//
// It understands what the documents of package schemas use, keeps the order in which they say things, resolves every
// $ref, and refuses what it does not know, so that no constraint is lost in silence. It knows no page and no request.
package reference
