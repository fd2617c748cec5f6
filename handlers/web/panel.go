package web

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// The results that have a panel: those of the public comparison (specification), the lack of an answer, and the two of
// a hash that was pasted. A certificate's are shown under the same names: valid is MATCH_CURRENT, replaced
// MATCH_HISTORICAL, revoked RECORD_REVOKED, and there is nothing pending.
const (
	MatchCurrent     = "MATCH_CURRENT"
	MatchHistorical  = "MATCH_HISTORICAL"
	HashMismatch     = "HASH_MISMATCH"
	RecordRevoked    = "RECORD_REVOKED"
	FileNotCompared  = "FILE_NOT_COMPARED"
	SignatureInvalid = "SIGNATURE_INVALID"
	Pending          = "REGISTRATION_PENDING"
	NotFound         = "RECORD_NOT_FOUND"
	Unavailable      = "UNAVAILABLE"
	HashMatch        = "HASH_MATCH"
	HashDiffers      = "HASH_DIFFERS"
)

// fileResults are those which the script may have to show.
func (k Kind) fileResults() []string {
	results := []string{MatchCurrent, MatchHistorical, HashMismatch, RecordRevoked, FileNotCompared, SignatureInvalid, NotFound, Unavailable}
	if k == Record {
		results = append(results, Pending)
	}
	return results
}

// Values are what a panel says of the three things that are reported apart. An empty one is "none".
type Values struct {
	File      string // match, mismatch, hash-match, hash-mismatch
	Signature string // valid, invalid, untrusted
	State     string // of a record current, superseded, revoked, pending; of a certificate valid, replaced, revoked
}

// panel is a result as it is shown.
type panel struct {
	T      map[string]any
	Result string
	outcome
	Checks []checkRow
	Note   string // why there is no answer
	Wait   string // seconds
	Facts  bool   // the script adds what it knows of the file
}

type checkRow struct {
	Name, Label string
	Choices     []choice
}

// choice is a value with its words. A template holds all that can be, and the script takes away all but one.
type choice struct{ Value, Text, Mark string }

// mark is the sign beside a value: yes, no or none. A result without a file has no sign, so that nothing looks
// verified.
func mark(result, value string) string {
	switch result {
	case FileNotCompared, HashMatch, HashDiffers:
		return "none"
	}
	switch value {
	case "match", "valid", "current":
		return "yes"
	case "mismatch", "invalid", "untrusted", "revoked":
		return "no"
	default:
		return "none"
	}
}

// choices are the values with these words, in the order of their names.
func choices(result string, words map[string]string) (list []choice) {
	for _, value := range slices.Sorted(maps.Keys(words)) {
		list = append(list, choice{value, words[value], mark(result, value)})
	}
	return list
}

// panel shows a result with these values.
func (t *texts) panel(result string, v Values) panel {
	one := func(value string, words map[string]string) []choice {
		value = cmp.Or(value, "none")
		return []choice{{value, words[value], mark(result, value)}}
	}
	return t.panelOf(result, one(v.File, t.File), one(v.Signature, t.Signature), one(v.State, t.State))
}

// blank is the panel of a result with every value that it might have for a file.
func (t *texts) blank(result string) panel {
	file := slices.DeleteFunc(choices(result, t.File), func(c choice) bool { return strings.HasPrefix(c.Value, "hash-") })
	p := t.panelOf(result, file, choices(result, t.Signature), choices(result, t.State))
	p.Facts = true
	return p
}

func (t *texts) panelOf(result string, file, signature, state []choice) panel {
	return panel{T: t.words, Result: result, outcome: t.Outcomes[result], Checks: []checkRow{
		{"file", t.FileCheck, file}, {"signature", t.SignatureCheck, signature}, {"state", t.StateCheck, state},
	}}
}
