package clientcmd

import (
	"strings"
	"testing"
)

func TestReadLocation(t *testing.T) {
	id := strings.Repeat("a", 26)
	for text, want := range map[string]recordLocation{
		id:                                     {"", id},
		"https://x.example/integrity/" + id:    {"https://x.example", id},
		"https://x.example/en/integrity/" + id: {"https://x.example", id},
		"http://127.0.0.1:1/api/public/integrity/" + id + "/receipt?sha256=1": {"http://127.0.0.1:1", id},
		"HTTPS://x.example/INTEGRITY/" + strings.ToUpper(id):                  {"https://x.example", id},
		"https://x.example/integrity/" + id + ".":                             {"https://x.example", id},
		"http://x.example/integrity/" + id:                                    {},
		"https://u:p@x.example/integrity/" + id:                               {},
		"https://x.example/other/" + id:                                       {},
		"ftp://x.example/integrity/" + id:                                     {},
		strings.ToUpper(id):                                                   {},
		"":                                                                    {},
	} {
		if got, err := readLocation(text); got != want || (err == nil) != (want.publicID != "") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestReferenceFromName(t *testing.T) {
	for path, want := range map[string]string{
		"/x/contract v1.pdf":     "contract-v1.pdf",
		"_Größe.pdf":             "Gr-e.pdf",
		"...":                    "",
		strings.Repeat("a", 200): strings.Repeat("a", 128),
		"a  b":                   "a-b",
		"7.pdf":                  "7.pdf",
	} {
		if got, err := referenceFrom(path); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
}
