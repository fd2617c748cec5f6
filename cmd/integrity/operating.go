package main

import _ "embed"

// operating is the operators' manual, which the service shows at /developers/operating.
//
//go:embed OPERATING.md
var operating []byte
