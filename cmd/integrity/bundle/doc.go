// Package bundle is the form in which an organization's whole history leaves the
// service, to be audited without it: a directory of files.
//
//	manifest.json       what is here, by name, length and SHA-256 (Manifest)
//	events/<first>.ndjson  events in the order of their sequences, a JSON object a line (Line)
//	trusted-keys.json   the trusted-keys file as the service had it
//	checkpoint          the newest one of the transparency log then, a signed note; where there is one
//
// Segments of events are only ever added: a bundle that is brought up to date keeps every byte of the history that it
// had. The manifest is replaced whole, after what it names is on the disk, so a crash leaves a bundle that says it is
// not complete and that the next export goes on with.
//
// Nothing in a bundle is signed but what the service signed at the time: records, certificates and the checkpoint. That
// nobody has rewritten the rest is shown by the digest of its history, when that was kept elsewhere.
package bundle
