package queue

import (
	"testing"

	"integrityledger/eventstore/cluster/clustertest"
)

// See the test of the same name in projections.
func TestStatementsAreAimed(t *testing.T) {
	clustertest.Aimed(t, map[string]string{
		"due": takeDue, "unwarned": unwarned,
	})
}
