package developers_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"io"
	"net/mail"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"integrityledger/handlers/developers"
)

// download returns the download of a kind.
func download(t *testing.T, kind string) developers.Download {
	t.Helper()
	list, err := developers.Downloads()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(d developers.Download) bool { return d.Kind == kind })
	if i < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return list[i]
}

// Each file of the wheel is in RECORD with its hash and size, the modules are the single files, and nothing depends on
// the time of packing.
func TestWheel(t *testing.T) {
	wheel := download(t, "wheel")
	if again := download(t, "wheel"); !bytes.Equal(again.Body, wheel.Body) {
		t.Error("two wheels differ")
	}
	archive, err := zip.NewReader(bytes.NewReader(wheel.Body), int64(len(wheel.Body)))
	if err != nil {
		t.Fatal(err)
	}
	texts, info := map[string][]byte{}, "integrity_client-"+developers.Version+".dist-info/"
	for _, file := range archive.File {
		if file.Modified.Year() != 1985 || file.Mode() != 0o644 || file.Method != zip.Store {
			t.Errorf("%s: %v %v %d", file.Name, file.Modified, file.Mode(), file.Method)
		}
		reader, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		if texts[file.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := csv.NewReader(bytes.NewReader(texts[info+"RECORD"])).ReadAll()
	if err != nil || len(rows) != len(archive.File) {
		t.Fatalf("RECORD: %v, %d rows for %d files", err, len(rows), len(archive.File))
	}
	for i, row := range rows {
		if row[0] != archive.File[i].Name {
			t.Errorf("RECORD has %s, the archive %s", row[0], archive.File[i].Name)
		}
		sum := sha256.Sum256(texts[row[0]])
		want := []string{row[0], "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]), strconv.Itoa(len(texts[row[0]]))}
		if row[0] == info+"RECORD" {
			want[1], want[2] = "", ""
		}
		if !slices.Equal(row, want) {
			t.Errorf("RECORD: %q, want %q", row, want)
		}
	}
	for _, module := range []string{"integrity_client.py", "integrity_webhook.py", "verify_integrity.py"} {
		if !bytes.Equal(texts[module], download(t, module).Body) {
			t.Errorf("%s is not the single file", module)
		}
	}
	metadata, err := mail.ReadMessage(bytes.NewReader(texts[info+"METADATA"]))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Name": "integrity-client", "Version": developers.Version, "Requires-Python": ">=3.11", "Metadata-Version": "2.1",
	} {
		if got := metadata.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// The served files contain the version, and the changelog describes its changes, newest first.
func TestVersion(t *testing.T) {
	list, err := developers.Downloads()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		if bytes.Contains(file.Body, []byte("@VERSION@")) {
			t.Errorf("%s has no version", file.Name)
		}
	}
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$`).FindAllStringSubmatch(string(text), -1)
	if strings.Count(string(text), "\n## ") != len(headings) || headings[0][1] != developers.Version {
		t.Errorf("CHANGELOG.md must have a heading for each version, that of %s first: %v", developers.Version, headings)
	}
}

// The sums cover all served files, so that sha256sum -c accepts saved files.
func TestSums(t *testing.T) {
	list, err := developers.Downloads()
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, file := range list[:len(list)-1] {
		want.WriteString(file.SHA256 + "  " + file.Name + "\n")
	}
	if last := list[len(list)-1]; last.Name != developers.SumsFile || string(last.Body) != want.String() {
		t.Errorf("%s: %s", last.Name, last.Body)
	}
}

// The samples are in ASCII: if the locale is not UTF-8, as in most containers, a Java 17 compiler refuses anything
// else.
func TestSamplesCompileWithoutALocale(t *testing.T) {
	for _, sample := range []string{"Register.java", "Register.cs"} {
		if i := bytes.IndexFunc(download(t, sample).Body, func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
			t.Errorf("%s has another character at %d", sample, i)
		}
	}
}
