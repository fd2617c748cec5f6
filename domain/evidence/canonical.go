// Package evidence holds what the ledger signs and how anyone verifies it: the canonical payloads, the keys, the
// operator's pinned set of trusted keys, the portable envelope and the verification of a receipt. The server's public
// comparison, the command line and the tests use this one implementation.
//
// Three rules carry the rest. Signed bytes are made once and kept; nothing is encoded again to be verified. A key found
// in a receipt proves nothing: only the pinned set can name a key (RFC 8037 keys, RFC 7638 names). A verdict is a set
// of findings, never one boolean.
//
// The package is pure: it reads no clock, no file and no network, and it never
// knows a company, an organization or a document beyond what a payload says.
package evidence

import (
	"strconv"

	"integrityledger/domain/strictjson"
)

// Contract identifiers: they fix the meaning of a payload and its algorithms, and no member selects another.
const (
	RecordContract     = "integrity-v1"
	StatusContract     = "integrity-status-v1"
	StatusAsOfContract = "integrity-status-as-of-v1"
	EnvelopeContract   = "integrity-evidence-v1"

	hashAlgorithm = "SHA-256"
	timeSource    = "service-clock"
)

// AppendString appends s as RFC 8785, section 3.2.2.2 writes a string. What is
// signed must be UTF-8 already; an invalid byte is written as U+FFFD.
func AppendString(dst []byte, s string) []byte { return strictjson.AppendString(dst, s) }

// AppendInt appends n. RFC 8785 numbers are doubles, so n must lie within ±(2^53−1), where both notations agree.
func AppendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// appendText and appendNumber append a member; before is everything up to the
// value, a constant whose name needs no escapes.
func appendText(dst []byte, before, s string) []byte {
	return AppendString(append(dst, before...), s)
}

func appendNumber(dst []byte, before string, n int64) []byte {
	return AppendInt(append(dst, before...), n)
}
