// Package demo shows the service to a newcomer: what serve --demo makes and prints, and origin-demo.
//
// # The origin system
//
// It emits PDF documents, delivers them at once and registers them with the service, in the six steps of the
// specification's "Intended integration pattern".
//
//  1. Company, document and version references are allocated and stored.
//  2. The verification link is reserved, within --reserve-timeout.
//  3. Where that fails, for whatever reason, the document is emitted without the
//     link: emission and download never depend on the service.
//  4. The link is embedded, the PDF is finalized and its SHA-256 computed.
//  5. One SQLite transaction stores the final PDF, its references and the outbox
//     item with the declaration; the PDF is delivered immediately.
//  6. A worker (package outbox) registers the declaration and stores the answer and
//     the evidence.
//
// A document's principal QR code is its own direct download from this system. The
// service's link is a second one, labelled as verification.
//
// # A crash at any point
//
// Before step 5 commits, nothing was delivered or declared: the document, whose references stay, is made anew, and
// reserving again gives the same link. After it, the final bytes exist and are never changed: triggers refuse it, and
// every way out of the database compares them with their hash first. What was committed and not delivered is delivered
// at the next start; delivering twice writes the same file. Registration survives by itself, see package outbox.
package demo
