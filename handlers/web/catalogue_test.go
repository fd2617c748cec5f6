package web

import (
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/web/reference"
	"integrityledger/schemas"
)

// Both languages have every text, and the two texts differ.
func TestCatalogueIsWhole(t *testing.T) {
	// names, and words that both languages share
	same := map[string]bool{"Brand": true, "Plan": true, "webhooks": true, "Bytes": true, "CodeNoRetry": true}
	var compare func(path string, es, en reflect.Value)
	compare = func(path string, es, en reflect.Value) {
		switch es.Kind() {
		case reflect.String:
			if es.String() == "" || en.String() == "" || es.String() == en.String() && !same[path] {
				t.Errorf("%s: %q and %q", path, es, en)
			}
		case reflect.Slice:
			if es.Len() == 0 || es.Len() != en.Len() {
				t.Errorf("%s: %d and %d texts", path, es.Len(), en.Len())
				return
			}
			for i := range es.Len() {
				compare(fmt.Sprintf("%s[%d]", path, i), es.Index(i), en.Index(i))
			}
		case reflect.Map:
			if es.Len() == 0 || es.Len() != en.Len() {
				t.Errorf("%s: %d and %d texts", path, es.Len(), en.Len())
			}
			for _, key := range es.MapKeys() {
				other := en.MapIndex(key)
				if !other.IsValid() {
					t.Errorf("%s: no English %s", path, key)
					continue
				}
				compare(key.String(), es.MapIndex(key), other)
			}
		case reflect.Interface:
			compare(path, es.Elem(), en.Elem())
		case reflect.Struct:
			for i := range es.NumField() {
				if name := es.Type().Field(i).Name; name != "words" {
					compare(name, es.Field(i), en.Field(i))
				}
			}
		default:
			t.Errorf("%s is a %s", path, es.Kind())
		}
	}
	site, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Kind{Record, Certificate} {
		es, en := site.catalogue(evidence.Spanish, kind), site.catalogue(evidence.English, kind)
		compare("", reflect.ValueOf(*es), reflect.ValueOf(*en))
		compare("", reflect.ValueOf(es.words), reflect.ValueOf(en.words))
		results := kind.fileResults()
		for _, result := range results {
			if es.Outcomes[result].Title == "" {
				t.Errorf("%s of a %s is not explained", result, kind)
			}
		}
		for result, words := range es.Pasted {
			if words.Title == es.Outcomes[result].Title {
				t.Errorf("%s of a hash has the headline of a file's", result)
			}
		}
		if len(es.Outcomes) != len(results) {
			t.Errorf("%d results of a %s are explained", len(es.Outcomes), kind)
		}
	}
}

// Templates and the program use exactly the texts of the catalogue.
func TestCatalogueIsUsed(t *testing.T) {
	loaded, err := loadTexts()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	words := loaded[evidence.Spanish][Record].words
	inner := map[string]map[string]any{
		"T": words, "D": words["Developers"].(map[string]any), "v": words["Verify"].(map[string]any),
	}
	named := regexp.MustCompile(`\b([TDv])\.([A-Z]\w*)`)
	err = fs.WalkDir(templateFiles, "templates", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || path.Ext(file) != ".html" {
			return err
		}
		text, err := templateFiles.ReadFile(file)
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			if inner[found[1]][found[2]] == nil {
				t.Errorf("%s: there is no text %s", file, found[0])
			}
			used[found[1]+found[2]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	looked := map[string]reflect.Type{
		"T": reflect.TypeFor[texts](), "D": reflect.TypeOf(texts{}.Developers), "v": reflect.TypeFor[verifyTexts](),
	}
	for where, texts := range inner {
		for name := range texts {
			_, field := looked[where].FieldByName(name)
			if !field && !used[where+name] && name != string(Record) && name != string(Certificate) {
				t.Errorf("nothing shows the text %s.%s", where, name)
			}
		}
	}
}

// The page that verifies offline says the limits of each kind, and what both share about the operator, once.
func TestVerifyPageSaysTheOperatorOnce(t *testing.T) {
	site, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []evidence.Language{evidence.Spanish, evidence.English} {
		page, err := site.Verify(l)
		if err != nil {
			t.Fatal(err)
		}
		points := evidence.Limits(l, "")
		if n := strings.Count(string(page), points[len(points)-1]); n != 1 {
			t.Errorf("%s: %d times", l, n)
		}
	}
}

// renderReference renders the pages for developers with the published documents.
func renderReference(t *testing.T) (map[string][]byte, Developers) {
	t.Helper()
	site, err := New(Config{BaseURL: "https://integrity.example"})
	if err != nil {
		t.Fatal(err)
	}
	operating := fstest.MapFS{}
	for _, name := range slices.DeleteFunc(DeveloperPages(), func(name string) bool { return !isManual(name) }) {
		operating[manualFile(name)] = &fstest.MapFile{Data: []byte("# A\n")}
	}
	releases, err := schemas.Releases()
	if err != nil {
		t.Fatal(err)
	}
	d := Developers{Releases: releases, Manual: operating}
	for address, file := range map[string]string{
		"/api/integrity-openapi": schemas.OpenAPIFile, "/api/openapi": schemas.CertificationOpenAPIFile,
	} {
		text, err := schemas.OpenAPI(file, site.BaseURL)
		if err != nil {
			t.Fatal(err)
		}
		document, err := reference.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		d.Contracts = append(d.Contracts, Contract{Document: document, Address: address})
	}
	guides, err := site.Developers(d)
	if err != nil {
		t.Fatal(err)
	}
	return guides.Pages, d
}

// Every page for developers has a title, and an address of its own.
func TestDeveloperPagesAreWhole(t *testing.T) {
	pages, d := renderReference(t)
	want := len(DeveloperPages())
	for _, contract := range d.Contracts {
		want += len(contract.Groups)
	}
	if len(pages) != 2*want {
		t.Errorf("%d pages, want %d", len(pages), 2*want)
	}
	site, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range DeveloperPages() {
		for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
			if title := site.catalogue(language, Record).Developers.Pages[name]; title.Title == "" || title.Lead == "" ||
				title.Short == "" {
				t.Errorf("the page %q has no title in %s", name, language)
			}
		}
	}
}

// The first thing that a developer pastes has eight lines.
func TestFirstSampleHasEightLines(t *testing.T) {
	text, err := templateFiles.ReadFile("templates/samples/start/1-register.sh")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines != 8 {
		t.Errorf("it has %d", lines)
	}
}

// Samples ask the service that INTEGRITY_BASE_URL names, which need not be the one whose pages a reader has before
// them. One sets that variable, one is an answer, which is not pasted, and one downloads the program whose hash the
// page shows.
func TestSamplesAskTheServiceThatTheReaderNames(t *testing.T) {
	site, err := New(Config{BaseURL: "https://integrity.example"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := site.loadGuides()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for name, text := range g.samples {
		if strings.Contains(text, "{base}") {
			named[name] = true
		}
	}
	if want := map[string]bool{
		"start/environment.sh": true, "errors/error.json": true, "clients/program.sh": true,
	}; !reflect.DeepEqual(named, want) {
		t.Errorf("these samples have the address of the page: %v, want %v", named, want)
	}
}
