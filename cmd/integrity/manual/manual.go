// Package manual holds the operators' manual, which the service shows at /developers/operating and below it.
package manual

import "embed"

// Pages are the pages of the manual in Markdown. index.md is the first.
//
//go:embed *.md
var Pages embed.FS
