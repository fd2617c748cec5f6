package webhooks

import (
	"testing"

	"integrityledger/eventstore/cluster/clustertest"
)

// See the test of the same name in projections.
func TestStatementsAreAimed(t *testing.T) {
	clustertest.Aimed(t, map[string]string{
		"due": findDue, "none": findNone, "take": takeRows, "charge": chargeAttempts, "cap": capAttempts,
		"refund": refundAttempts, "prune": pruneLog,
		"lock": lockHeld, "log": logEnded, "end": removeEnded, "retry": writeRetried, "release": writeReleased,
		"working": writeWorking, "write_failing": writeFailing, "find_failing": findFailing,
	})
}
