package operator

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"integrityledger/migrations"
)

// maxDrifts is the largest number of schema differences that the doctor lists.
const maxDrifts = 30

// schema compares the database with this program's migrations. It reads only the catalogue, so it needs no rights on
// tables.
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
	for _, drift := range drifts[:min(maxDrifts, len(drifts))] {
		state, found, do := judgeDrift(expected, actual, drift)
		d.every(check, verdict{true, state, found, do})
	}
	if more := len(drifts) - maxDrifts; more > 0 {
		d.fail(check, fmt.Sprintf("%d more differences", more), "mend these first")
	}
	edited, err := migrations.Edited(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range edited {
		d.fail(check, name+" differs from the migration that was applied to this database: its statements were edited",
			"use the released program: the edited statements were never applied to the database")
	}
	d.every(
		check,
		verdict{
			len(drifts)+len(edited) == 0, StateOK, fmt.Sprintf("all %d parts agree with the migrations", len(expected)),
			"",
		},
	)
	return nil
}

func judgeDrift(expected, actual []migrations.Object, drift migrations.Drift) (state, found, do string) {
	name := drift.String()
	switch {
	case drift.Extra:
		return stateWarn, name + " comes from no migration", "drop it, unless you know that it rejects nothing the service " +
			"writes"
	case drift.Kind == migrations.TableObject:
		if now := migrations.RenamedTo(expected, actual, drift.Table); now != "" {
			_, old, _ := strings.Cut(drift.Table, ".")
			return StateFail, fmt.Sprintf(
				"%s is missing; it was renamed to %s", name, now,
			), fmt.Sprintf("ALTER TABLE %s RENAME TO %s", now, old)
		}
		if migrations.IsProjection(drift.Table) {
			return StateFail, name + " is missing", "integrity rebuild recreates it from the log"
		}
		return StateFail, name + " is missing", "restore a backup: the log does not contain its rows"
	case drift.Found == "":
		return StateFail, name + " is missing", mending(drift.Object)
	default:
		return StateFail, fmt.Sprintf("%s differs: %s", name, oneLine(drift.Found)), mending(drift.Object)
	}
}

// mending returns the statement that creates an object.
func mending(o migrations.Object) string {
	if o.Kind == migrations.GrantObject && migrations.IsProjection(o.Table) {
		return "integrity rebuild, then " + o.SQL
	}
	return oneLine(o.SQL)
}

func oneLine(sql string) string { return strings.Join(strings.Fields(sql), " ") }
