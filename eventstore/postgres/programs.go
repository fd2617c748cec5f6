package postgres

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"integrityledger/domain/say"
)

// oldestMajor is the oldest PostgreSQL version for a new data directory.
const oldestMajor = 15

// ErrNoPrograms means that the machine has no usable PostgreSQL server programs.
var ErrNoPrograms = say.New("no PostgreSQL server programs found")

// programs is one installation: a directory with both initdb and postgres.
type programs struct {
	dir   string
	major int
}

var versionOutput = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// findPrograms returns every installation in the directories, newest first.
func findPrograms(ctx context.Context, candidates []string) ([]programs, error) {
	var found []programs
	seen := map[string]bool{}
	for _, dir := range candidates {
		// initdb finds its share directory relative to its real path.
		resolved, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
		if err != nil {
			continue
		}
		dir = filepath.Dir(resolved)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output() //nolint:gosec // the directory comes from PATH or the operator
		match := versionOutput.FindSubmatch(out)
		if err != nil || match == nil {
			continue
		}
		if major, err := strconv.Atoi(string(match[1])); err == nil {
			found = append(found, programs{dir: dir, major: major})
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil,
			say.Errorf("%w (initdb and postgres, version %d or newer): install them (Debian, Ubuntu: apt-get install "+
				"postgresql) or set INTEGRITY_DATABASE_URL to a running server",
				ErrNoPrograms, oldestMajor)
	}
	slices.SortStableFunc(found, func(a, b programs) int { return cmp.Compare(b.major, a.major) })
	return found, nil
}

// has returns an error if the installation lacks one of the programs.
func (p programs) has(names ...string) error {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(p.dir, name)); err != nil {
			return say.Errorf(
				"%s of PostgreSQL %d is not in %s: install it (Debian, Ubuntu: apt-get install postgresql-client-%d "+
					"postgresql-%d): %w",
				name, p.major, p.dir, p.major, p.major, err,
			)
		}
	}
	return nil
}

func candidateDirs(ctx context.Context) []string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/lib/postgresql*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql*/bin",
		"/usr/libexec/postgresql*",
	} {
		matches, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		dirs = append(dirs, matches...)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
}

// findPrograms sets the installation to use for a data directory.
func (s *Server) findPrograms(ctx context.Context, l layout) error {
	installed, err := findPrograms(ctx, candidateDirs(ctx))
	if err == nil {
		s.program, err = choose(installed, l)
	}
	return err
}

// choose returns the installation for a data directory: the version that wrote it, or the newest for a new one.
func choose(installed []programs, l layout) (programs, error) {
	written, err := l.majorVersion()
	if err != nil {
		return programs{}, err
	}
	if written == 0 {
		if installed[0].major < oldestMajor {
			return programs{},
				say.Errorf("the newest PostgreSQL programs found are version %d (%s): install version %d or newer",
					installed[0].major, installed[0].dir, oldestMajor)
		}
		return installed[0], nil
	}
	return chooseMajor(installed, written, l.data)
}

// chooseMajor returns the installation of the version that wrote the data.
func chooseMajor(installed []programs, written int, data string) (programs, error) {
	var versions []string
	for _, p := range installed {
		if p.major == written {
			return p, nil
		}
		versions = append(versions, strconv.Itoa(p.major))
	}
	return programs{},
		say.Errorf("%s was written by PostgreSQL %d, but only version %s is installed: install the PostgreSQL %d "+
			"programs beside it (Debian: apt-get install postgresql-%d), or move the data with pg_upgrade or pg_dump; "+
			"nothing was changed",
			data, written, strings.Join(versions, ", "), written, written)
}
