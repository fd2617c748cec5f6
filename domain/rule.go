package domain

import (
	"fmt"
	"slices"

	"integrityledger/domain/say"
)

// Release is a version of the program, major.minor.patch, as the one number by which a database compares it:
// 1.2.3 is 1002003. Minor and patch stay below 1,000.
type Release int64

// ThisRelease is the semantic version of this program, and the only place that sets it. schemas/releases.json describes
// it. A new rule requires at least a new minor version.
const ThisRelease Release = 1_002_000

// Floor is the lowest version that may write a ledger of this program, unless a rule requires a later one: the first
// release whose schema begins with the current baseline.
const Floor Release = 1_000_000

// String returns major.minor.patch.
func (r Release) String() string {
	return fmt.Sprintf("%d.%d.%d", r/1_000_000, r/1_000%1_000, r%1_000)
}

// Rule names a decision that programs before some release make differently. Processes of both releases may write one
// ledger for a while and must decide alike. A rule is therefore off until every process knows it, and then stays on.
// Its status is read with the shard's head, so that all groups of a shard follow it from one position on.
type Rule string

// RuleEntry describes a rule to operators.
type RuleEntry struct {
	Name    Rule
	Since   Release // the first program that knows it; programs before it may not write a ledger in which it is on
	Changes say.Word
}

// Rules lists all rules, in the order of their releases. Never change a name, because ledgers store it.
func Rules() []RuleEntry {
	return []RuleEntry{
		{HealedRecords, 1_001_000, "integrity heal restores lost records as events of new types"},
		{BackfillAllowances, 1_002_000, "an organization may have an allowance of new versions beside the months"},
		{PublisherStatements, 1_002_000, "an organization may prove its domains and publish its name"},
		{KeySets, 1_002_000, "integrity keys publish publishes the trusted keys in the transparency log"},
	}
}

// Follow switches rules on for the decisions of this state. It does not check whether they are known.
func (s *State) Follow(rules ...Rule) { s.rules = append(s.rules, rules...) }

// Follows reports whether a rule is on. A decision that depends on a rule must call it.
func (s *State) Follows(r Rule) bool { return slices.Contains(s.rules, r) }
