package domain

import (
	"fmt"
	"slices"
)

// Release is a version of the program, major.minor.patch, as the one number by which a database compares it:
// 1.2.3 is 1002003. Minor and patch stay below 1,000.
type Release int64

// ThisRelease is the version of this program. A semantic version: a rule below needs a new minor version at least.
const ThisRelease Release = 1_000_000

// String writes major.minor.patch.
func (r Release) String() string {
	return fmt.Sprintf("%d.%d.%d", r/1_000_000, r/1_000%1_000, r%1_000)
}

// Rule names a decision that programs before some release take in another way. Processes of both releases may write one
// ledger for a while, and must decide alike: the rule is off until every process knows it, and then stays on. Whether
// it is on is read with the shard's head, so that all groups of a shard follow it from one position on.
type Rule string

// WarningsByLimit lets quota warnings belong to a limit, so that they start anew with a plan, and be about webhook
// attempts, pending reservations and unfinalized versions.
const WarningsByLimit Rule = "warnings-by-limit"

// RuleEntry describes a rule to operators.
type RuleEntry struct {
	Name    Rule
	Since   Release // the first program that knows it; programs before it may not write a ledger in which it is on
	Changes string
}

// Rules lists every rule, in the order in which releases brought them. Names are for ever: ledgers store them.
func Rules() []RuleEntry {
	return []RuleEntry{
		{WarningsByLimit, 1_000_000, "quota warnings start anew with another limit, and are about webhook attempts and reservations too"},
	}
}

// RuleNames lists the names of every rule.
func RuleNames() []Rule {
	var names []Rule
	for _, r := range Rules() {
		names = append(names, r.Name)
	}
	return names
}

// Follow switches rules on for the decisions of this state. It does not judge whether they are known.
func (s *State) Follow(rules ...Rule) { s.rules = append(s.rules, rules...) }

func (s *State) follows(r Rule) bool { return slices.Contains(s.rules, r) }
