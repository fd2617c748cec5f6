// Package domain defines the ledger: its types and ids, commands, events, the decision to accept or refuse a command
// (State.Decide), the effect of an event on the state (State.Apply), and the canonical bytes of events.
//
// The package is pure: no I/O, no clock, no goroutines, no HTTP. Time is an argument. A command draws each random value
// once and keeps it, so a decision can be repeated and a history replayed. Each aggregate has one file with its
// commands, its events and their effects. The table in event.go declares every event type once.
//
// # Glossary
//
// Documents of origin systems:
//
//	origin system   a customer's system that declares versions of its documents
//	declaration     what an origin system says about one version: hash, size, type, times, references
//	document        all versions with one reference, from one source, in one company
//	version         one version of a document, reserved and then registered, or registered at once; its key is
//	                organization, company, source, document reference and number
//	reservation     a version that has its public id but no content yet; it expires, but keeps its public id
//	record          a registered version: signed, with a public id that anyone may look up
//	register        to accept a declaration and sign its record
//	reserve         to give a version its public id before the file is final
//	supersede       to replace the current version by registering a higher one
//	revoke          to end a record, certificate or key permanently; signed bytes are kept
//	public id       the name of a version or certificate in links; unpredictable, and it encodes the shard
//
// Identity and authorization:
//
//	organization    a customer (tenant); the boundary of all its data
//	company         an internal partition of an organization; every version belongs to one
//	member          a person's membership of one organization, with a role
//	API key         a member's credential, with scopes, limits and an expiry; never just "key" beside another key
//	signing key     the key that signs records and certificates
//	log key         the key that signs checkpoints
//	scope           one permission of an API key or token; it never extends a role
//	grant           permission for an API key to use a company
//	OAuth subject   a person at an OAuth provider, stored as a keyed digest of issuer and subject
//	link            a member's consent to let tokens of an OAuth subject act for the member
//	passkey         a member's WebAuthn credential for signing in to the console
//	session         a member who has signed in to the console
//	operator        the party that runs the service; it acts through the command line, without an API key
//	Origin          the actor of a command and the request that carried it
//
// Event sourcing:
//
//	command         a request to change the ledger; Decide turns it into drafts or refuses it
//	draft           an event before it has its position and time
//	event           a fact, stored as canonical bytes that never change; its Hash is a leaf of the transparency log
//	shard           one ordered log; every organization lives in one
//	position        an event's place in its shard, without gaps
//	sequence        an event's place in its organization, without gaps
//	state           the data that Decide may use; replaying the events rebuilds it
//	needs           the data that must be loaded into the state for a command
//	draw            to generate an id, salt or secret at random, once for each command, so that Decide is repeatable
//	projection      a table derived from the events alone
//	transparency    the signed tree over all events; the program's log output is just "log"
//	installation    the organization of the installation itself, in whose history the trusted keys are published
//	key set         the trusted keys as the service publishes them
//	text            words or an address of a person; events name it by salted hash, so that it can be erased
//	heal            to restore a lost record from what clients hold
//	alias           a former public id of a version that was registered again before it could be healed
//	claim           one request's hold on an Idempotency-Key
//
// What organizations say about themselves:
//
//	publisher       an organization as the public sees it: the domains that it has proven to control, and a name
//	proof           a TXT record or a file with the organization's id, which a daily check finds
//	lapse           the end of a proof after three failed days in a row
//	statement       a domain or a name, until it is removed, withdrawn or replaced
//
// Certification (/api/v1/artifacts and related endpoints):
//
//	artifact        a document whose bytes the service analyses; its versions count from 1
//	analysis        the findings of the detectors in a file
//	review          a member's declaration of having read a version
//	approval        a member's consent to a reviewed version
//	certificate     a signed statement about an approved version; the next version's certificate replaces it
//	retention       the number of days that bytes are kept; content is erased when it ends
//
// Plans and usage:
//
//	plan            an organization's allowances and its requests per minute
//	allowance       the number of versions, requests, registrations or webhook attempts included in a month
//	backfill        an allowance outside the months, for versions from before an organization began; charged first
//	usage           the part of an allowance used in a month
//	quota warning   the event recorded when usage reaches 80, 95 or 100 percent of an allowance
//	credit          one registration of an artifact beyond the allowance
//
// Webhooks:
//
//	destination     an organization's address that receives events, with a secret that signs them
//	delivery        one event on its way to one destination, in as many attempts as needed
//
// # Healing
//
// A ledger loses records when a standby without the last commits becomes the primary, or a backup is restored. Clients
// still hold their evidence and their outboxes. Heal restores the records from them, one command each, and decides like
// any other command: repeating it changes nothing.
//
// A healed record is an event of its own type, integrity.healed, and so a leaf of its own type in the transparency log.
// It has the members of a registration, and says what it rests on (HealProof):
//
//	receipt      payload, signature and receivedAt are those of the lost registration, byte for byte
//	declaration  only the origin says that the record existed: it is signed anew, received when it is healed
//
// The event obeys the rules of a registration, except that the operator acts, the company may be closed, and the
// allowance never refuses it: the organization had registered the version before. It counts in the month of receivedAt,
// where the lost registration counted, or in the backfill allowance while any of it is left. Whether it is superseded
// follows from the versions that the ledger has. Its revocation returns only if a signed observation shows it, dated
// when it is healed. In the change feed and for webhooks it is integrity.registered, because readers may have lost that
// event too.
//
// If the version was registered again under another public id, the new record stays. The lost public id becomes its
// alias (integrity.aliased), with a signed statement and the former receipt, and answers with that receipt and the
// state of the version.
//
// A receipt does not name the organization. The operator vouches for it, as the actor of the events shows. The shard in
// the public id and the company reference must agree. What contradicts the ledger is refused (HealReason) and changes
// nothing. The rule HealedRecords keeps the events out of ledgers that older programs write.
package domain
