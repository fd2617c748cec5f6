// Package domain holds what the ledger is about: its types and ids, the commands that it takes, the events that they
// become, the decision which commands are accepted (State.Decide), how an event changes the state (State.Apply), and
// the canonical bytes of events.
//
// It is pure: no I/O, no clock, no goroutines, nothing of HTTP. Time comes in as an argument, and a command draws each
// random value once and keeps it, so that a decision can be repeated and a history replayed. One file holds one
// aggregate: its commands, its events and what they change. The table in event.go declares every event type once.
//
// # Glossary
//
// Documents of origin systems:
//
//	origin system   a system of a customer that declares versions of its documents
//	declaration     what an origin system says about one version: hash, size, type, times, references
//	document        all versions under one reference of one source, in one company
//	version         one version of a document, reserved first or registered at once; its key is organization,
//	                company, source, document reference and number
//	reservation     a version that has its public id and no content yet; it expires, its public id stays
//	record          a version once it is registered: signed, with a public id that anybody may look up
//	register        to accept a declaration and sign its record
//	reserve         to give a version its public id before the file is final
//	supersede       what a higher version does to the current one
//	revoke          to end a record, a certificate or a key for good; what was signed stays
//	public id       the name of a version or certificate in links; unpredictable, and it leads to the shard
//
// Who acts, and where:
//
//	organization    a customer; the border of everything that it owns
//	company         an internal partition of an organization; versions belong to one
//	member          a person's membership of one organization, with a role
//	API key         a member's credential, with scopes, limits and an end; never called just "key" beside another key
//	signing key     what records and certificates are signed with; log key: what checkpoints are signed with
//	scope           one permission of a key or token; it never raises a role
//	grant           that a key may use a company
//	OAuth subject   a person at an OAuth provider, held as a keyed digest of issuer and subject
//	link            a member's consent to act with tokens of an OAuth subject
//	passkey         a member's WebAuthn credential, for signing in to the console
//	session         a member who has signed in to the console
//	operator        the one that runs the service; acts through the command line, without an API key
//	Origin          on whose behalf a command acts, and in which request
//
// Event sourcing:
//
//	command         something that an organization asks for; Decide makes drafts of it, or refuses
//	draft           an event before it has its place and time
//	event           what has happened, as canonical bytes that never change; its Hash is a leaf of the transparency log
//	shard           one ordered log; every organization lives in one
//	position        an event's place in its shard, without gaps
//	sequence        an event's place in its organization, without gaps
//	state           what Decide may know; replaying the events makes it again
//	needs           what a command has to have loaded into the state
//	draw            to make an id, a salt, a secret at random: once a command, so that Decide is repeatable
//	projection      a table that follows from the events alone
//	transparency    the signed tree over all events (the log of the program is just "log")
//	text            words or an address of a person; events name it by salted hash, so that it can be erased
//	claim           one request's hold on an Idempotency-Key
//
// Certification (/api/v1/artifacts and what follows from it):
//
//	artifact        a document whose bytes the service analyses; its versions count from 1
//	analysis        the words for what detectors find in a file
//	review          a member's declaration of having read a version
//	approval        a member's consent to a reviewed version
//	certificate     a signed statement about an approved version; the next version's replaces it
//	retention       for how many days bytes are kept; content is erased when it ends
//
// What it costs:
//
//	plan            an organization's allowances and its requests per minute
//	allowance       how many versions, requests, registrations or webhook attempts a month includes
//	usage           how much of an allowance a month has taken
//	quota warning   the event that 80, 95 or 100 percent of an allowance are used
//	credit          one registration of an artifact beyond the allowance
//
// Webhooks:
//
//	destination     an address of the organization that receives events, with a secret that signs them
//	delivery        one event on its way to one destination, in as many attempts as it takes
package domain
