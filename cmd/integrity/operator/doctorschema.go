package operator

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain/say"
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
		d.fail(check, say.Sentencef("%d more differences", more), say.Sentencef("mend these first"))
	}
	edited, err := migrations.Edited(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range edited {
		d.fail(
			check,
			say.Sentencef("%s differs from the migration that was applied to this database: its statements were edited", name),
			say.Sentencef("use the released program: the edited statements were never applied to the database"),
		)
	}
	d.every(
		check,
		verdict{
			len(drifts)+len(edited) == 0, StateOK, say.Sentencef("all %d parts agree with the migrations", len(expected)),
			say.Sentence{},
		},
	)
	return nil
}

func judgeDrift(expected, actual []migrations.Object, drift migrations.Drift) (state string, found, do say.Sentence) {
	name := drift.Said()
	switch {
	case drift.Extra:
		return stateWarn, say.Sentencef("%s comes from no migration", name),
			say.Sentencef("drop it, unless you know that it rejects nothing the service writes")
	case drift.Kind == migrations.TableObject:
		if now := migrations.RenamedTo(expected, actual, drift.Table); now != "" {
			_, old, _ := strings.Cut(drift.Table, ".")
			return StateFail, say.Sentencef("%s is missing; it was renamed to %s", name, now),
				run("ALTER TABLE " + now + " RENAME TO " + old)
		}
		if migrations.IsProjection(drift.Table) {
			return StateFail, say.Sentencef("%s is missing", name), say.Sentencef("integrity rebuild recreates it from the log")
		}
		return StateFail, say.Sentencef("%s is missing", name),
			say.Sentencef("restore a backup: the log does not contain its rows")
	case drift.Found == "":
		return StateFail, say.Sentencef("%s is missing", name), mending(drift.Object)
	default:
		return StateFail, say.Sentencef("%s differs: %s", name, oneLine(drift.Found)), mending(drift.Object)
	}
}

// mending returns the statement that creates an object.
func mending(o migrations.Object) say.Sentence {
	if o.OfService() && migrations.IsProjection(o.Table) {
		return say.Sentencef("integrity rebuild, then %s", o.SQL)
	}
	return run(oneLine(o.SQL))
}

func oneLine(sql string) string { return strings.Join(strings.Fields(sql), " ") }
