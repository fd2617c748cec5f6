// Package web renders what people see in a browser: the page on which anybody
// compares a file, the front page, and the pages that explain codes and limits.
//
// It knows no request, record or database: its caller decides, it shows. Every
// text is in one catalogue of two languages; a page carries the panels of all
// results as templates, so that the script holds no text and the server and the
// script show the same ones. Nothing a page loads comes from elsewhere, and no
// page has inline script or style: the policy of [PageHeader] forbids both.
//
// The worker that hashes is bundled from build/, where package.json says how; the
// result is committed, and a test makes it again and compares.
package web
