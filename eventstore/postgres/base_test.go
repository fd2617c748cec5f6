package postgres

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// madeBackup is a backup for tests: the entries of its archive, and the files that its manifest lists.
type madeBackup struct {
	entries  []tar.Header
	contents map[string]string
	listed   []string
}

// write writes the backup to a new directory.
func (m madeBackup) write(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "20261128T000000Z")
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(z)
	for _, entry := range m.entries {
		text := m.contents[entry.Name]
		if entry.Typeflag == tar.TypeReg {
			entry.Size = int64(len(text))
		}
		if err := archive.WriteHeader(&entry); err != nil {
			t.Fatal(err)
		}
		if entry.Typeflag == tar.TypeReg {
			if _, err := archive.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, name := range m.listed {
		sum := sha256.Sum256([]byte(m.contents[name]))
		files = append(files, fmt.Sprintf(
			`{"Encoded-Path": %q, "Size": %d, "Checksum-Algorithm": "SHA256", "Checksum": %q}`,
			hex.EncodeToString([]byte(name)), len(m.contents[name]), hex.EncodeToString(sum[:]),
		))
	}
	manifest := "{\"PostgreSQL-Backup-Manifest-Version\": 1,\n\"Files\": [\n" + strings.Join(files, ",\n") + "],\n"
	sum := sha256.Sum256([]byte(manifest))
	manifest += fmt.Sprintf("\"Manifest-Checksum\": %q}\n", hex.EncodeToString(sum[:]))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{baseFile: packed.String(), manifestFile: manifest} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func ordinaryBackup() madeBackup {
	return madeBackup{
		entries: []tar.Header{
			{Name: backupLabel, Typeflag: tar.TypeReg}, {Name: "base", Typeflag: tar.TypeDir},
			{Name: "base/1", Typeflag: tar.TypeReg}, {Name: "pg_wal", Typeflag: tar.TypeDir},
		},
		contents: map[string]string{backupLabel: "label", "base/1": strings.Repeat("row", 100_000)},
		listed:   []string{backupLabel, "base/1"},
	}
}

func TestUnpackBase(t *testing.T) {
	dir, to := ordinaryBackup().write(t), filepath.Join(t.TempDir(), "to")
	label, err := verifyBase(t.Context(), dir)
	if err != nil || label.String() != "label" {
		t.Errorf("verified: %q %v", label.String(), err)
	}
	if err := unpackBase(t.Context(), dir, to); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(to, "base", "1"))
	if err != nil || string(text) != ordinaryBackup().contents["base/1"] {
		t.Errorf("unpacked %d bytes: %v", len(text), err)
	}
	if info, err := os.Stat(filepath.Join(to, "pg_wal")); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("pg_wal: %v %v", info, err)
	}
}

// TestDamagedBase: each fault of the bytes, and each entry that a data directory cannot have, is found, and nothing is
// written outside.
func TestDamagedBase(t *testing.T) {
	with := func(entry tar.Header, text string) func(*madeBackup) {
		return func(m *madeBackup) {
			m.entries = append(m.entries, entry)
			m.contents[entry.Name] = text
			m.listed = append(m.listed, entry.Name)
		}
	}
	inFile := func(name string, change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, change(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		make  func(*madeBackup)
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"a file above":     {make: with(tar.Header{Name: "../evil", Typeflag: tar.TypeReg}, "x"), want: "../evil is outside"},
		"an absolute path": {make: with(tar.Header{Name: "/tmp/evil", Typeflag: tar.TypeReg}, "x"), want: "is outside"},
		"a directory above": {
			make: with(tar.Header{Name: "base/../../evil", Typeflag: tar.TypeDir}, ""), want: "is outside",
		},
		"a link": {
			make: with(tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, ""), want: "neither a file",
		},
		"a hard link": {
			make: with(tar.Header{Name: "link", Typeflag: tar.TypeLink, Linkname: "base/1"}, ""), want: "neither a file",
		},
		"a file twice": {
			make: func(m *madeBackup) { m.entries = append(m.entries, m.entries[2]) }, want: "base/1 is not in the manifest",
		},
		"a file too many": {make: func(m *madeBackup) { m.listed = m.listed[:1] }, want: "base/1 is not in the manifest"},
		"a file too few":  {make: func(m *madeBackup) { m.entries = m.entries[:2] }, want: "base/1 is missing"},
		"another content": {
			spoil: func(t *testing.T, dir string) {
				m := ordinaryBackup()
				m.contents["base/1"] = strings.Repeat("low", 100_000)
				other, err := os.ReadFile(filepath.Join(m.write(t), baseFile))
				if err != nil {
					t.Fatal(err)
				}
				inFile(baseFile, func([]byte) []byte { return other })(t, dir)
			}, want: "base/1 does not have the SHA-256",
		},
		"a changed manifest": {
			spoil: inFile(manifestFile, func(b []byte) []byte {
				return bytes.Replace(b, []byte("300000"), []byte("300001"), 1)
			}),
			want: "does not have its own checksum",
		},
		"no manifest": {
			spoil: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, manifestFile)); err != nil {
					t.Fatal(err)
				}
			}, want: "no such file",
		},
		"a changed byte": {
			spoil: inFile(baseFile, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), want: "is damaged",
		},
		"a changed last byte": {
			spoil: inFile(baseFile, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), want: "is damaged",
		},
		"half a file": {spoil: inFile(baseFile, func(b []byte) []byte { return b[:len(b)/2] }), want: "is damaged"},
		"no compression": {
			spoil: inFile(baseFile, func([]byte) []byte { return make([]byte, 10240) }), want: "is damaged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := ordinaryBackup()
			if test.make != nil {
				test.make(&m)
			}
			dir := m.write(t)
			if test.spoil != nil {
				test.spoil(t, dir)
			}
			above := t.TempDir()
			_, err := verifyBase(t.Context(), dir)
			unpacking := unpackBase(t.Context(), dir, filepath.Join(above, "to"))
			for _, err := range []error{err, unpacking} {
				if err == nil || !strings.Contains(err.Error(), test.want) ||
					!strings.Contains(err.Error(), "the backup 20261128T000000Z is damaged: ") {
					t.Errorf("got %v, want %q", err, test.want)
				}
			}
			if left, err := os.ReadDir(above); err != nil || len(left) > 1 {
				t.Errorf("written outside: %v %v", left, err)
			}
		})
	}
	// A full disk is no damage.
	refused := fmt.Errorf("no space")
	_, err := readBase(t.Context(), ordinaryBackup().write(t), func(string) error { return nil },
		func(string) (io.WriteCloser, error) { return nil, refused })
	if err == nil || strings.Contains(err.Error(), "damaged") {
		t.Errorf("a failed write: %v", err)
	}
}

func TestArchiveOf(t *testing.T) {
	for _, dir := range []string{"/srv/backup/wal/x", "/back'ups/100%/a; b'; f=c/\\"} {
		if got := archiveOf(archiveCommand(dir)); got != dir {
			t.Errorf("%q became %q", dir, got)
		}
	}
	for _, command := range []string{"", noArchive, "cp %p /elsewhere/%f"} {
		if got := archiveOf(command); got != "" {
			t.Errorf("%q archives to %q", command, got)
		}
	}
}

func TestSegmentName(t *testing.T) {
	for _, name := range []string{"000000010000000000000001", "0000000A00000001000000FF"} {
		n, ok := segmentNumber(name)
		if got := segmentName(name, n); !ok || got != name {
			t.Errorf("%s became %s", name, got)
		}
	}
	n, _ := segmentNumber("0000000200000007000000FF")
	if got := segmentName("0000000200000007000000FF", n+1); got != "000000020000000800000000" {
		t.Errorf("after the last segment of a log file comes %s", got)
	}
}
