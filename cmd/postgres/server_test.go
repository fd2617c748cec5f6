package postgres

import "testing"

// TestWithoutRefusals: however often somebody connects to a server that is on its way out, its reason stays among the last lines.
func TestWithoutRefusals(t *testing.T) {
	const reason = "2026-11-21 19:37:30.700 UTC [1] FATAL:  recovery ended before configured recovery target was reached\n"
	said := "2026-11-21 19:37:30.699 UTC [2] FATAL:  the database system is starting up\n" + reason +
		"2026-11-21 19:37:30.705 UTC [3] FATAL:  the database system is not accepting connections\n" +
		"2026-11-21 19:37:30.706 UTC [4] FATAL:  the database system is shutting down\n" +
		"2026-11-21 19:37:30.707 UTC [5] LOG:  invalid length of startup packet\n"
	if got := withoutRefusals(said); got != reason {
		t.Errorf("%q", got)
	}
}
