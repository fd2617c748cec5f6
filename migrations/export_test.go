package migrations

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

// AddFile adds a migration to the program's migrations, or changes one, until the test ends.
func AddFile(t *testing.T, name, text string) {
	t.Helper()
	before, all := files, fstest.MapFS{name: {Data: []byte(text)}}
	names, err := fs.Glob(before, "*.sql")
	for _, n := range names {
		if n == name || err != nil {
			continue
		}
		all[n] = &fstest.MapFile{}
		all[n].Data, err = fs.ReadFile(before, n)
	}
	if err != nil {
		t.Fatal(err)
	}
	files = all
	t.Cleanup(func() { files = before })
}
