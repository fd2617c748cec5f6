// Package lab is the root of a module for programs and tests that judge the ledger but are not part of the product: the
// benchmark, the weather drill, and tests with third-party code. Their dependencies stay out of the product's module.
// The lab imports exported packages of the product and otherwise sees only the running program.
package lab
