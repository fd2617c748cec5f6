// Package history reads the log: Tail follows it as replay, rebuild, consumers and waiting readers do; Reader reads it
// for an audit, with whatever is damaged; CheckHeads, StillPresent and Misplaced compare it with what stands beside it.
package history
