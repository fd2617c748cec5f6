package handlers_test

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// released has a directory for each version of the clients that integrators may have, as it was served, with the tests
// that it passed. A directory is added with each version and never changed, according to SHA256SUMS.
const released = "developers/testdata/released"

// Earlier versions of the clients work with the present service, so integrators need not change when the service does.
func TestReleasedClients(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the clients of every version")
	}
	t.Parallel()
	versions, err := os.ReadDir(released)
	check(t, err)
	for _, version := range versions {
		if !version.IsDir() {
			continue
		}
		t.Run(version.Name(), func(t *testing.T) {
			t.Parallel()
			directory, err := filepath.Abs(filepath.Join(released, version.Name()))
			check(t, err)
			t.Run("JavaScript", func(t *testing.T) {
				t.Parallel()
				s := open(t, options{})
				s.javaScriptStory(
					installedClient(t, filepath.Join(directory, "integrity-client-"+version.Name()+".tgz")), directory,
				)
			})
			files := pythonFiles{directory, directory}
			if wheels, _ := filepath.Glob(filepath.Join(directory, "*.whl")); wheels != nil {
				files.files = unpackedWheel(t, wheels[0])
			}
			t.Run("Python", func(t *testing.T) {
				t.Parallel()
				pythonClientStory(t, files)
			})
			t.Run("Python receiver", func(t *testing.T) {
				t.Parallel()
				pythonReceiverStory(t, files)
			})
		})
	}
}

// unpackedWheel is a folder with the files that pip would install from the wheel.
func unpackedWheel(t *testing.T, path string) string {
	t.Helper()
	archive, err := zip.OpenReader(path)
	check(t, err)
	defer archive.Close()
	directory := t.TempDir()
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, ".py") {
			continue
		}
		reader, err := file.Open()
		check(t, err)
		text, err := io.ReadAll(reader)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(directory, filepath.Base(file.Name)), text, 0o600))
	}
	return directory
}
