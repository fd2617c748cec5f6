package operator

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"integrityledger/migrations"
)

// mostDrifts is how many differences of the schema the doctor lists.
const mostDrifts = 30

// schema compares the database with the migrations of this program. It reads the catalogue, which needs no right to any
// table.
func (d *doctor) schema(ctx context.Context, conn *pgx.Conn) error {
	const check = "schema"
	expected, err := migrations.Expected()
	if err != nil {
		return err
	}
	actual, err := migrations.Actual(ctx, conn)
	if err != nil {
		return err
	}
	drifts := migrations.Compare(expected, actual)
	for _, drift := range drifts[:min(mostDrifts, len(drifts))] {
		state, found, do := judgeDrift(expected, actual, drift)
		d.every(check, verdict{true, state, found, do})
	}
	if more := len(drifts) - mostDrifts; more > 0 {
		d.fail(check, fmt.Sprintf("%d more differences", more), "mend these first")
	}
	edited, err := migrations.Edited(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range edited {
		d.fail(check, name+" is not the migration that this database has applied: its statements were edited",
			"use the program as it was released: what an edited migration says is not in the database")
	}
	d.every(
		check,
		verdict{
			len(drifts)+len(edited) == 0, StateOK, fmt.Sprintf("its %d parts are as the migrations make them", len(expected)),
			"",
		},
	)
	return nil
}

func judgeDrift(expected, actual []migrations.Object, drift migrations.Drift) (state, found, do string) {
	name := drift.String()
	switch {
	case drift.Extra:
		return stateWarn, name + " is in no migration", "drop it unless it is known to refuse nothing that the service writes"
	case drift.Kind == migrations.TableObject:
		if now := migrations.RenamedTo(expected, actual, drift.Table); now != "" {
			_, old, _ := strings.Cut(drift.Table, ".")
			return StateFail, fmt.Sprintf(
				"%s is missing; it was renamed to %s", name, now,
			), fmt.Sprintf("ALTER TABLE %s RENAME TO %s", now, old)
		}
		if migrations.IsProjection(drift.Table) {
			return StateFail, name + " is missing", "integrity rebuild makes it again from the log"
		}
		return StateFail, name + " is missing", "restore a backup: the log does not hold what was in it"
	case drift.Found == "":
		return StateFail, name + " is missing", mending(drift.Object)
	default:
		return StateFail, fmt.Sprintf("%s differs: %s", name, oneLine(drift.Found)), mending(drift.Object)
	}
}

// mending is the statement that makes an object.
func mending(o migrations.Object) string {
	if o.Kind == migrations.GrantObject && migrations.IsProjection(o.Table) {
		return "integrity rebuild, then " + o.SQL
	}
	return oneLine(o.SQL)
}

func oneLine(sql string) string { return strings.Join(strings.Fields(sql), " ") }
