package session

import (
	"context"
	"strings"
	"testing"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
)

// See the test of the same name in projections.
func TestStatementsAreAimed(t *testing.T) {
	clustertest.Aimed(t, map[string]string{
		"session": findSession, "insert_session": insertSession, "touch_session": touchSession,
		"sessions": listSessions, "end_oldest": endOldest, "memberships": findMemberships,
		"add_sign_in": insertSignInLink, "add_proof": insertProofLink, "sign_in": findSignInLink,
		"use_sign_in": useSignInLink, "use_challenge": useChallenge, "passkeys": findPasskeys,
		"use_passkey": usePasskey, "forget_sessions": forgetSessions, "forget_links": forgetLinks,
	})
}

// TestStatementsLookUpKeys: each request of a signed-in person runs the first statement.
func TestStatementsLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"session": findSession, "touch": touchSession, "delete": deleteSession, "sessions": listSessions,
		"end": endSession, "end_all": projections.EndSessions, "end_oldest": endOldest,
		"memberships": findMemberships, "membership": findMembership,
		"add_link": insertSignInLink, "link": findSignInLink, "use_link": useSignInLink,
		"passkeys": findPasskeys, "use_passkey": usePasskey,
		"forget_sessions": forgetSessions, "forget_links": forgetLinks, "forget_challenges": forgetChallenges,
		"never": "SELECT token_sha256 FROM console_sessions WHERE shard = $1 AND role = $2",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
	// This one also filters by rules, so only scans are checked.
	plan := pgtest.Explain(t, pool, "add_proof", insertProofLink)
	if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "(shard = $1)\n") {
		t.Errorf("add_proof:\n%s", plan)
	}
}
