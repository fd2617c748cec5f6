// Package lab is the module of everything that judges the ledger and that no user runs: the benchmark, the weather
// drill, and tests by other people's code. The product's module does not require what only these need. The lab imports
// exported packages of the product, and otherwise sees only the running program.
package lab
