// Package web renders what people see in a browser: the page on which anybody compares a file, the front page, the
// pages that explain codes and limits, and those for developers.
//
// It knows no request, record or database: its caller decides, it shows. Every text is in one catalogue of two
// languages; a page carries the panels of all results as templates, so that the script holds no text and the server and
// the script show the same ones. Nothing a page loads comes from elsewhere, and no page has inline script or style: the
// policy of [PageHeader] forbids both.
//
// The pages for developers are templates of one language each, with the same sections and anchors in both, in
// templates/developers; what is to be copied stands once, in templates/samples. Package reference reads the published
// OpenAPI documents for the reference. A new operation needs its words in texts/es.json, a new download its
// purpose in both languages, and both a line in the changelog; tests find the first two.
//
// The worker that hashes is bundled from build/, where package.json says how; the result is committed, and a test makes
// it again and compares.
package web
