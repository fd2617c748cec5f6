package bundle

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
)

// TestLineWithMore: of a line that holds anything else nothing is taken, so that the history's digest differs too.
func TestLineWithMore(t *testing.T) {
	e := audit.Event{Event: domain.Event{Sequence: 1, V: 1, OccurredAt: time.Unix(0, 0), Data: []byte("{}"), Hash: [32]byte{1}}}
	e.ID[15] = 1
	text, err := line(&e, true)
	if err != nil {
		t.Fatal(err)
	}
	if read := readLine(text, e.Organization, 1); read.Fault != "" || read.Hash != e.Hash {
		t.Fatalf("%s: %+v", text, read)
	}
	good := string(text)
	for more, fault := range map[string]string{
		strings.Replace(good, "{", `{"more":1,`, 1):              `unknown field "more"`,
		strings.TrimSuffix(good, "\n") + "{}\n":                  "more than one value",
		strings.TrimSuffix(good, "\n") + " \x00\n":               "more than one value",
		strings.Replace(good, `"texts":[]`, `"texts":1`, 1):      "must be an array",
		strings.Replace(good, `"texts":[]`, `"texts":[{},1]`, 1): "element 0 is not whole", // the rest is not looked at
	} {
		if read := readLine([]byte(more), e.Organization, 7); !strings.Contains(read.Fault, fault) || read.Hash != [32]byte{} || read.Sequence != 7 {
			t.Errorf("%s: %+v", more, read)
		}
	}
}

// archived is an empty history in a zip file.
func archived(t *testing.T) []byte {
	t.Helper()
	var made bytes.Buffer
	organization := domain.OrganizationID{1}
	if _, err := NewArchive(&made, Config{Organization: organization, Issuer: "https://ledger.example", Texts: true, TrustedKeys: []byte("{}"), Now: "2026-11-01T10:00:00Z"}).Close(); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}

// nothing is a zip file with a manifest of empty segments: the first is looked at, and no other.
func nothing(t *testing.T) []byte {
	t.Helper()
	var made bytes.Buffer
	w := zip.NewWriter(&made)
	file, err := w.Create(ManifestFile)
	if err == nil {
		_, err = file.Write([]byte(`{"segments":[{},1]}`))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}

// TestArchive: a zip file is read as the directory would be. One that was cut off is refused, and one in which a name is
// there twice, where two readers could see different files.
func TestArchive(t *testing.T) {
	whole := archived(t)
	var twice bytes.Buffer
	source, err := zip.NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(&twice)
	for _, f := range append(source.File, source.File[0]) {
		if err := w.Copy(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		archive []byte
		wrong   string
	}{
		"whole": {whole, ""}, "cut off": {whole[:len(whole)-30], "not a valid zip file"}, "a name twice": {twice.Bytes(), "duplicate entries"},
		"segments of nothing": {nothing(t), "element 0 is not whole"},
		"no zip file":         {[]byte("{}"), "not a valid zip file"},
	} {
		path := filepath.Join(t.TempDir(), "bundle.zip")
		if err := os.WriteFile(path, c.archive, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := Open(path)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		keys, wrong, err := b.TrustedKeys()
		if err != nil || wrong != nil || string(keys) != "{}" || b.Events != 0 {
			t.Errorf("%s: %q, %v, %v, %+v", name, keys, wrong, err, b.Manifest)
		}
		b.Close()
	}
}
